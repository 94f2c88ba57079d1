"""Folders and links that commands of the script have made, changed or removed (`folders.py`).

They belong to the commands until the script uses one: then it is noted as if the script had made or removed it.
"""
from __future__ import annotations

import os

from py_hooks.script_io import given_paths
from py_hooks.script_io.noted_changes import ABSENT, MAX_WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from py_hooks.script_io.noted_changes import NotedChanges


class CommandedEntries:
    """What the commands of one trial have done to folders and links.

    Args:
        notes: the changes of the script.
    """

    def __init__(self, notes: NotedChanges) -> None:
        self._notes = notes
        # Entries that commands have made, changed or removed, and the script has not used yet: the state before, by path.
        self._states: dict[str, list[Any] | None] = {}
        # Folders that answered commands have made. The files that commands had put into them are missing.
        self._answered: set[str] = set()
        self._pid = os.getpid()

    def note(self, changes: dict[str, list[Any]], is_answered: bool = False) -> None:
        """A command has made, changed or removed folders and links.

        Args:
            changes: the state before and the state now, by path.
            is_answered: whether the command is answered: it did so when it was run.
        """
        if changes:
            self._notes.forget_paths()
        if not is_answered:
            self._answered.clear()
        around: set[str] | None = None
        for path, (before, after) in changes.items():
            if path in self._notes.noted or len(self._states) >= MAX_WAITING:
                continue
            if before is not None and after is not None and before[0] == after[0] == "folder":
                # A changed mode is kept.
                continue
            self._states.setdefault(path, before)
            if before is not None and not is_answered:
                around = self._around_written() if around is None else around
                if path in around:
                    self.take(path)

    def _around_written(self) -> set[str]:
        around: set[str] = set()
        for path in self._notes.written:
            folder = path
            while folder not in around and folder != os.path.dirname(folder):
                around.add(folder)
                folder = os.path.dirname(folder)
        return around

    def take(self, *paths: str) -> None:
        """The script uses entries that its commands have made or removed: they become the script's."""
        if not self._states or self._pid != os.getpid():
            return
        for path in paths:
            parts = path.split(os.sep)
            for end in range(2, len(parts) + 1):
                entry = self._notes.entry(os.sep.join(parts[:end]))
                if entry in self._states:
                    self._note_taken(entry, self._states.pop(entry, None))

    def _note_taken(self, path: str, before: list[Any] | None) -> None:
        self._notes.written.add(path)
        if path in self._notes.noted:
            return
        if before is None:
            if os.path.lexists(path):
                self._notes.announce("made" if given_paths.is_folder(path) else "created", path, path)
        elif not self._is_in_own(path):
            kind, value = before
            original, more = ((value,), {}) if kind == "link" else ((), {"mode": value})
            self._notes.announce("removed", path, path, original=original, **more)
        if os.path.islink(path):
            self._notes.ledger().note_link(path, os.readlink(path))

    def note_answered(self, path: str) -> None:
        """An answered command has made a folder or a link, or that exists already."""
        self._answered.add(path)
        self._notes.written.add(path)

    def brings_back_moved(self, src: object, dst: object) -> bool:
        """Whether a folder is moved that an answered command has made. If so, the target is restored as it was left."""
        if not self._answered or not self._notes.is_scripts():
            return False
        if self._notes.calls.exactness.causes and not self._notes.calls.is_past:
            return False
        source, target = self._notes.entry(given_paths.absolute(src)), self._notes.entry(given_paths.absolute(dst))
        if source is None or target is None or os.path.lexists(target) or not given_paths.is_folder(source):
            return False
        if any(given_paths.is_in(each, source) for each in self._answered):
            self._notes.bring_back(target)
        if not os.path.lexists(target):
            return False
        self._notes.whole.add(target)
        self._answered.add(target)
        self._remove_known(source)
        return True

    def _remove_known(self, folder: str) -> None:
        """Removes a folder of the script with the script's entries in it."""
        for place, _, names in os.walk(folder, topdown=False):
            for path in (os.path.join(place, name) for name in names):
                if self._notes.is_known(path):
                    os.unlink(path)
            if self._notes.is_known(place):
                self._notes.remove_empty(place)

    def _is_in_own(self, path: str) -> bool:
        """Whether a path is in a folder that the script has made."""
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            if ABSENT.intersection(self._notes.noted.get(path, ())):
                return True
        return False

    def paths(self) -> list[str]:
        """Paths that commands have made, changed or removed, and the script has not used yet."""
        return list(self._states)
