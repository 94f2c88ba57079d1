"""Warnings that Python shows once for each place: those shown before a kill are not shown again after a resume.

Calls that a replay answers, mutes or skips give no warnings, so for Python the next warning at such a place would be the
first. The checkpoints contain the warnings that were shown, and at the resume point they are entered in Python's registries.

Source: CPython 3.7 to 3.13, Python/_warnings.c, `already_warned` and `call_show_warning`; Lib/warnings.py.
"""
from __future__ import annotations

import sys
import warnings

from py_hooks import own_account, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import numpy

# For all places together. Nobody reads more, and each takes some hundred bytes in every checkpoint.
_MOST = 1000


class GivenWarnings:
    """The warnings that were shown, in order. A provider of state."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str, str, int], None] = {}

    def install(self) -> None:
        """Notes the warnings that Python shows from now on."""
        show, really_show = warnings._showwarnmsg, warnings._showwarnmsg_impl  # type: ignore[attr-defined]  # it is private

        def note_and_show(message: warnings.WarningMessage) -> None:
            # Within `catch_warnings(record=True)` this is another function: a caught warning was not shown.
            if warnings._showwarnmsg_impl is really_show and len(self._given) < _MOST:  # type: ignore[attr-defined]  # private
                self._note(message)
            show(message)

        warnings._showwarnmsg = note_and_show  # type: ignore[attr-defined]  # it is private

    def _note(self, message: warnings.WarningMessage) -> None:
        category = message.category
        name = f"{category.__module__}:{category.__qualname__}"
        self._given[str(message.message), name, message.filename, message.lineno] = None

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], list[list[Any]]]:
        """The warnings that were shown: text, category, file and line."""
        return [], [list(each) for each in self._given]

    def restore(self, _tensors: dict[str, numpy.ndarray], state: list[list[Any]] | None) -> None:
        """Enters the warnings in Python's registries that were shown before the kill and not in the replay."""
        missing = [each for each in map(tuple, state or ()) if each not in self._given]
        if not missing:
            return
        modules = {places.file_of(module): module for module in list(sys.modules.values())}
        show, warnings._showwarnmsg = warnings._showwarnmsg, _show_nothing  # type: ignore[attr-defined]  # it is private
        try:
            for text, category, filename, line in missing:
                self._given[text, category, filename, line] = None
                if filename in modules:
                    with own_account.scripts_account():
                        _give(text, category, filename, line, modules[filename])
        finally:
            warnings._showwarnmsg = show  # type: ignore[attr-defined]  # it is private


def _show_nothing(_message: warnings.WarningMessage) -> None:
    pass


def _give(text: str, category: str, filename: str, line: int, module: ModuleType) -> None:
    package, _, name = category.partition(":")
    kind = getattr(sys.modules.get(package), name, None)
    if not isinstance(kind, type) or not issubclass(kind, Warning):
        return
    registry = places.names_of(module).setdefault("__warningregistry__", {})
    try:
        warnings.warn_explicit(text, kind, filename, line, module.__name__, registry)
    except kind:
        # A filter of the script now turns it into an error, so Python does not count it.
        return
