"""Suppresses warnings from calls that pedl-run makes for itself.

pedl-run looks at models, optimizers and arrays, and imports parts of libraries, when python would not. A warning from that is
not the script's: it must not be shown, and with `warnings.simplefilter("error")` it must not be raised. Calls of the script,
and of a library on its behalf, are never made within `own_account`: they warn as under python.

A filter is put in front of the script's filters, and removed afterwards. It matches only in the thread that looks.
`warnings.catch_warnings` would swap the list for all threads, and drop the warnings and filters that other threads add
meanwhile. Nor does this make warnings new that were given once (`warnings._filters_mutated`), as `catch_warnings` does. The
list changes between two steps of python, so C code that iterates over it never sees a partial change. If another thread ends
a `catch_warnings` meanwhile, `warnings.filters` is another list: then the script's filters apply to the rest of the look.

Source: CPython 3.7 to 3.13, Python/_warnings.c, `get_filter` and `check_matched`; an ignored warning is noted nowhere.
"""
from __future__ import annotations

import _thread
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    _Parameters = ParamSpec("_Parameters")
    _Result = TypeVar("_Result")


class _Looking(_thread._local):
    """Replaces the pattern of a filter. It has a different `match` in each thread, and none is a function of Python."""

    # No text of a warning is equal to it.
    match = "\0".__eq__


_LOOKING = _Looking()
_ANY_TEXT = "\0".__ne__
_FILTER = ("ignore", _LOOKING, Warning, None, 0)


class _OwnAccount:
    """See `own_account`."""

    __slots__ = ("_filters",)

    def __enter__(self) -> None:
        held = _LOOKING.__dict__
        if "match" in held:
            # Nested in another one.
            self._filters = None
            return
        self._filters = _filters()
        self._filters.insert(0, _FILTER)
        held["match"] = _ANY_TEXT

    def __exit__(self, *exception: object) -> None:
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

    def __enter__(self) -> None:
        self._held = _LOOKING.__dict__.pop("match", None)

    def __exit__(self, *exception: object) -> None:
        if self._held is not None:
            _LOOKING.__dict__["match"] = self._held


def own_account() -> _OwnAccount:
    """A context manager: what this thread calls in it gives no warnings."""
    return _OwnAccount()


def scripts_account() -> _ScriptsAccount:
    """A context manager within `own_account`: the filters of the script apply again."""
    return _ScriptsAccount()


def is_ours(entry: object) -> bool:
    """Whether an entry of `warnings.filters` is the filter of this module."""
    return entry is _FILTER


def on_own_account(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Wraps one of our functions that calls nothing on behalf of the script."""
    # Not imported at the top: the boot does not need it.
    import functools

    @functools.wraps(function)
    def called(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _OwnAccount():
            return function(*args, **kwargs)

    return called


def _filters() -> list[Any]:
    """The active filters. Without `warnings`, which is not imported for this, they are those of its C part."""
    module = sys.modules.get("warnings")
    filters = getattr(module, "filters", None)
    if isinstance(filters, list):
        return filters
    import _warnings

    return _warnings.filters
