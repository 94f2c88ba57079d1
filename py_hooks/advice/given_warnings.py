"""Warnings that Python gives once for each place: what was given before a kill is not given again after a resume.

What a replay answers, mutes or skips gives no warnings, so for Python the next one at such a place would be the first.
The warnings that were shown belong to the checkpoints, and at the resume point Python's own registries are told of them.

Source: CPython 3.7 to 3.13, Python/_warnings.c, `already_warned` and `call_show_warning`; Lib/warnings.py.
"""
import sys
import warnings

from py_hooks import own_account
from py_hooks.advice import places

# Over all places; of more nobody reads, and they take some hundred bytes each in every checkpoint.
_MOST = 1000


class GivenWarnings:
    """The warnings that were shown, in order. A provider of state."""

    def __init__(self):
        self._given = {}

    def install(self):
        """Has what Python shows noted from now on."""
        show, really_show = warnings._showwarnmsg, warnings._showwarnmsg_impl

        def note_and_show(message):
            # Within `catch_warnings(record=True)` it is another: what is caught was given to nobody.
            if warnings._showwarnmsg_impl is really_show and len(self._given) < _MOST:
                self._note(message)
            show(message)

        warnings._showwarnmsg = note_and_show

    def _note(self, message):
        category = message.category
        name = f"{category.__module__}:{category.__qualname__}"
        self._given[str(message.message), name, message.filename, message.lineno] = None

    def capture(self):
        """What was shown: text, category, file and line."""
        return [], [list(each) for each in self._given]

    def restore(self, _tensors, state):
        """Tells Python of what was shown before, and not in the replay."""
        missing = [each for each in map(tuple, state or ()) if each not in self._given]
        if not missing:
            return
        modules = {places.file_of(module): module for module in list(sys.modules.values())}
        show, warnings._showwarnmsg = warnings._showwarnmsg, _show_nothing
        try:
            for text, category, filename, line in missing:
                self._given[text, category, filename, line] = None
                if filename in modules:
                    with own_account.scripts_account():
                        _give(text, category, filename, line, modules[filename])
        finally:
            warnings._showwarnmsg = show


def _show_nothing(_message):
    pass


def _give(text, category, filename, line, module):
    package, _, name = category.partition(":")
    kind = getattr(sys.modules.get(package), name, None)
    if not isinstance(kind, type) or not issubclass(kind, Warning):
        return
    registry = places.names_of(module).setdefault("__warningregistry__", {})
    try:
        warnings.warn_explicit(text, kind, filename, line, module.__name__, registry)
    except kind:
        # The script has it raised by now, so it keeps no count of it.
        return
