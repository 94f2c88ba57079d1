"""What code of ours has the libraries do on its own account warns of nothing.

It looks at models, optimizers and arrays, and imports parts of libraries, where python would not. A warning of that is none of
the script's: it must not be shown, and with `warnings.simplefilter("error")` it must not be raised. What the script calls, and
what a library does on its behalf, is never called within this: it warns as under python.

A filter is put in front of the script's own ones, and taken away again. It counts in the thread that looks, and in no other:
`warnings.catch_warnings` would swap the list for all threads, and drop the warnings, and the filters, that others give
meanwhile. Nor does what was given once become new (`warnings._filters_mutated`), as it does behind `catch_warnings`. The list
changes between two steps of python: who goes through it, in C, does not see half of it. If another thread ends a
`catch_warnings` meanwhile, `warnings.filters` is another list: then the rest of the look goes by the script's filters.

Source: CPython 3.7 to 3.13, Python/_warnings.c, `get_filter` and `check_matched`; an ignored warning is noted nowhere.
"""
import _thread
import sys


class _Looking(_thread._local):
    """Stands in the place of a filter's pattern. It has another `match` in each thread, and none is a function of Python."""

    # No warning's text is equal to it.
    match = "\0".__eq__


_LOOKING = _Looking()
_ANY_TEXT = "\0".__ne__
_FILTER = ("ignore", _LOOKING, Warning, None, 0)


class _OwnAccount:
    """See `own_account`."""

    __slots__ = ("_filters",)

    def __enter__(self):
        held = _LOOKING.__dict__
        if "match" in held:
            # Within another one.
            self._filters = None
            return
        self._filters = _filters()
        self._filters.insert(0, _FILTER)
        held["match"] = _ANY_TEXT

    def __exit__(self, *exception):
        if self._filters is None:
            return
        del _LOOKING.__dict__["match"]
        try:
            self._filters.remove(_FILTER)
        except ValueError:
            # Another thread has emptied the list.
            return


class _ScriptsAccount:
    """See `scripts_account`."""

    __slots__ = ("_held",)

    def __enter__(self):
        self._held = _LOOKING.__dict__.pop("match", None)

    def __exit__(self, *exception):
        if self._held is not None:
            _LOOKING.__dict__["match"] = self._held


def own_account():
    """What this thread calls in a `with` of this warns of nothing."""
    return _OwnAccount()


def scripts_account():
    """Within `own_account`: the filters of the script count again, in a `with`."""
    return _ScriptsAccount()


def is_ours(entry):
    """Whether an entry of `warnings.filters` is the one of a look that is made now."""
    return entry is _FILTER


def on_own_account(function):
    """A function of ours that calls nothing on behalf of the script."""
    # Not at the head: the boot has no need of it.
    import functools

    @functools.wraps(function)
    def called(*args, **kwargs):
        with _OwnAccount():
            return function(*args, **kwargs)

    return called


def _filters():
    """The filters that count now. Without `warnings`, which is not imported for this, they are those of its part in C."""
    module = sys.modules.get("warnings")
    filters = getattr(module, "filters", None)
    if isinstance(filters, list):
        return filters
    import _warnings

    return _warnings.filters
