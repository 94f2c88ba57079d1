"""Folders and links that commands of the script make, change and remove: a replay finds them as the command left them.

A script runs `mkdir -p runs/3` and writes into that folder, or `rm -rf runs/2`, or moves its folder by `mv`. The record of
the end of a command contains what the command did to folders and links: by path, the state before and the state after.

    "folders": {path: [before, after], ...}        each is ["folder", mode], ["link", target], or null

If the script uses one of them, it becomes the script's (`commanded_entries.py`). The journal of files then has a line for it,
as if the script had made or removed it. So the next start takes it back, and the answered command makes the change again.
The others belong to commands alone, and remain as they are. A folder with entries that the replay does not know is not removed.

What a command may change is examined before and after the command: what the script has written, with the folders around
it, what the words of the command name, and the entries of the folders of all these and of the current folder.
"""
from __future__ import annotations

import itertools
import os

# Not `os`, in which these functions are replaced.
import posix
import stat

from py_hooks import places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from typing import Any

    from py_hooks.script_io.files import Files
    from py_hooks.script_io.ledger import Ledger

    # `["folder", mode]` or `["link", target]`.
    _State = list[Any]
    # The state before and the state after; None for neither a folder nor a link.
    _Change = list[_State | None]

# The maximum number of entries of one folder that are examined, and of folders of one command that are noted.
MAX_LISTED = 10_000


class Look:
    """The folders and links that a command may change, as they are now.

    Args:
        files: the files of the trial.
        named: the paths that the words of the command name.
        folder: the directory that the command runs in.

    Attributes:
        found: the state of each of them, by path.
    """

    def __init__(self, files: Files, named: Collection[str], folder: str) -> None:
        self._files = files
        self._written = files.written_paths()
        looked_at = {*files.commanded.paths(), *named}
        listed: dict[str, list[str]] = {path: [] for path in (folder, places.STARTED_IN, *filter(os.path.isdir, named))}
        for path in self._written:
            listed.setdefault(os.path.dirname(path), []).append(path)
        for path, written in listed.items():
            looked_at.add(path)
            found = _listed(path)
            looked_at.update(written if found is None else found)
        self.found: dict[str, _State] = {}
        self._add(looked_at)

    def _add(self, paths: Iterable[str]) -> None:
        # The folders around the directory that the trial was started in are not the script's.
        seen = set(_around(os.path.join(places.STARTED_IN, "in")))
        for path in paths:
            for each in itertools.chain([path], _around(path)):
                if each in seen:
                    break
                seen.add(each)
                is_what = None if self._files.is_of_trial(each) else what_is(each)
                if is_what is not None:
                    self.found[each] = is_what

    def changes_until(self, later: Look) -> dict[str, _Change]:
        """What has changed until a later look, by path: the state now and the state then."""
        made = later._written - self._written
        changes: dict[str, _Change] = {}
        for path in sorted(set(self.found).union(later.found)):
            before, after = self.found.get(path), later.found.get(path)
            if before == after or (path in made and before is None):
                # The script itself has made it meanwhile, in a thread.
                continue
            changes[path] = [before, after]
            if before is None and after[0] == "folder":
                changes.update((inside, [None, what_is(inside)]) for inside in _all_in(path))
        return changes


def put(files: Files, ledger: Ledger, entries: dict[str, Any]) -> list[str]:
    """Changes folders and links of the script as a command has changed them.

    Args:
        files: the files of the trial.
        ledger: their journal.
        entries: the record of the end of the command. Malformed ones are left out.

    Returns:
        The paths of those that the trial may not change.
    """
    changes = {ledger.resolved(name): change for name, change in entries.items() if _is_whole(change)}
    files.commanded.note(changes, is_answered=True)
    known = [path for path in sorted(changes) if files.is_known(path)]
    own = [path for path in known if ledger.may_touch(path) and ledger.may_lead(path, changes[path][1])]
    for path in reversed(own):
        _remove(files, path, changes[path][1])
    for path in own:
        _make(path, changes[path][1])
        if changes[path][1] is not None:
            files.commanded.note_answered(path)
    return [path for path in known if path not in own]


def _remove(files: Files, path: str, after: _State | None) -> None:
    """Removes what a command has removed or replaced."""
    there = what_is(path)
    if there is None or (after is not None and after[0] == there[0] == "folder") or after == there:
        return
    if there[0] == "link":
        os.unlink(path)
        return
    saved = files.saved.paths()
    for place, _, names in os.walk(path, topdown=False):
        for inside in (os.path.join(place, name) for name in names):
            if inside in saved:
                # The stand-in for a model.
                os.unlink(inside)
        if place == path or files.is_known(place):
            files.remove_empty(place)


def _make(path: str, after: _State | None) -> None:
    """Makes what a command has made."""
    if after is None:
        return
    kind, value = after
    if kind == "link":
        if not os.path.lexists(path):
            _make_around(path)
            os.symlink(value, path)
        return
    if not os.path.lexists(path):
        _make_around(path)
        os.mkdir(path)
    found = what_is(path)
    if found is not None and found[0] == "folder" and found[1] != value:
        posix.chmod(path, value)


def _make_around(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)


def what_is(path: str) -> _State | None:
    """The state of a folder or a link; None for anything else."""
    try:
        found = posix.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return ["link", posix.readlink(path)]
    except (OSError, ValueError):
        return None
    return ["folder", stat.S_IMODE(found.st_mode)] if stat.S_ISDIR(found.st_mode) else None


def _is_whole(change: object) -> bool:
    """Whether this has the form of a change that pedl-run writes."""
    return isinstance(change, list) and len(change) == 2 and all(each is None or _is_what(each) for each in change)


def _is_what(value: object) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    kind, more = value
    if kind == "folder":
        return type(more) is int and 0 <= more <= 0o7777
    return kind == "link" and isinstance(more, str) and bool(more) and "\0" not in more


def _around(path: str) -> Iterator[str]:
    """The folders around a path, the inner ones first."""
    while path != os.path.dirname(path):
        path = os.path.dirname(path)
        yield path


def _listed(folder: str, limit: int | None = MAX_LISTED) -> list[str] | None:
    """The folders and links in a folder; None if it has too many entries."""
    try:
        with posix.scandir(folder) as entries:
            found = [entry.path for entry in itertools.islice(entries, limit) if not entry.is_file(follow_symlinks=False)]
            return found if next(entries, None) is None else None
    except OSError:
        return []


def _all_in(folder: str) -> list[str]:
    """The folders and links in a folder and in its subfolders."""
    found: list[str] = []
    waiting = [folder]
    while waiting and len(found) <= MAX_LISTED:
        inside = [path for path in _listed(waiting.pop(), limit=None) if what_is(path) is not None]
        found.extend(inside)
        waiting.extend(path for path in inside if not os.path.islink(path))
    return found
