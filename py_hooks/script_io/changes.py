"""Each kind of line of the journal of files (`ledger.py`): how its change is taken back, and made again.

A function that takes a change back returns whether nothing of the change is left. `aside` and `original` are the paths that
the line has in `aside/` and in `originals/`. Each step can be repeated, and the process may die between any two.
"""
from __future__ import annotations

import io
import json
import os

# Not `os`: its functions are replaced, and note the calls.
import posix
import stat

from py_hooks.script_io import disk, given_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    # What JSON has of a line of the journal.
    Entry = dict[str, Any]

    class _Redo(Protocol):
        def __call__(self, path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None: ...

# In `aside/`, after a number: the bytes that were set aside before a replay appended again.
LONGER = ".longer"

# Suffixes of the files of a TensorFlow cache, after its name: finished ones, and those of a shard that is being filled.
# Source: tensorflow 1.15.5 and 2.21.0, core/kernels/data/cache_dataset_ops.cc; core/util/tensor_bundle/naming.cc.
_OF_CACHE = r"(_\d+)?\.(index|lockfile|data-\d{5}-of-\d{5}(\.tempstate\d+)?)"


def _undo_created(path: str, aside: str, original: str, entry: Entry) -> bool:
    if os.path.lexists(path):
        disk.move(path, aside)
    else:
        disk.discard(aside)
    return True


def _redo_created(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    if not is_written and os.path.lexists(aside) and _is_missing(path, aside):
        disk.move(aside, path)
    elif is_written and not os.path.lexists(path):
        # The replay has made it and removed it.
        disk.discard(aside)


def _undo_made(path: str, aside: str, original: str, entry: Entry) -> bool:
    if given_paths.is_folder(path) and os.listdir(path):
        return False
    return _undo_created(path, aside, original, entry)


def _redo_made(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    if not is_written and os.path.lexists(aside) and not os.path.lexists(path):
        disk.move(aside, path)
    elif is_written:
        disk.discard(aside)


def _undo_removed(path: str, aside: str, original: str, entry: Entry) -> bool:
    if not os.path.lexists(original):
        return True
    if disk.is_same(path, original):
        # It was not removed, or the process died before the move back to another file system was complete.
        disk.discard(original)
    elif given_paths.is_folder(original) and given_paths.is_folder(path):
        # The entries that the trial put into it have separate lines.
        posix.chmod(path, stat.S_IMODE(posix.lstat(original).st_mode))
        posix.rmdir(original)
    else:
        _undo_created(path, aside, original, entry)
        disk.move(original, path)
    return True


def _redo_removed(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    if is_written:
        if os.path.lexists(original):
            disk.discard(aside)
        return
    if not os.path.lexists(original) and os.path.lexists(path):
        if given_paths.is_folder(path) and os.listdir(path):
            return
        disk.make_folders(os.path.dirname(original))
        disk.move(path, original)
    if os.path.lexists(aside) and not os.path.lexists(path):
        disk.move(aside, path)


def _undo_appended(path: str, aside: str, original: str, entry: Entry) -> bool:
    length, longer = entry["bytes"], disk.read(aside + LONGER) or b""
    if os.path.isfile(path) and os.path.getsize(path) >= length:
        with io.FileIO(path) as file:
            file.seek(length)
            rest = file.readall()
        if longer.startswith(rest):
            rest = longer
        if rest:
            disk.write(aside, rest)
        posix.truncate(path, length)
    return True


def _redo_appended(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    length = entry["bytes"]
    if not is_written and os.path.isfile(path) and os.path.isfile(aside) and os.path.getsize(path) >= length:
        posix.truncate(path, length)
        disk.write(path, disk.read(aside), "a")
    disk.discard(aside)
    if is_written:
        disk.discard(aside + LONGER)


def _undo_overwritten(path: str, aside: str, original: str, entry: Entry) -> bool:
    if os.path.isfile(path) and os.path.isfile(original) and not disk.is_equal(path, original):
        disk.copy_whole(path, aside)
        # Into the file itself: it may have other names, and keeps its owner and mode.
        disk.copy(original, path)
    return True


def _redo_overwritten(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    if not is_written and os.path.isfile(path) and os.path.isfile(aside):
        disk.copy(aside, path)
    disk.discard(aside)


def _undo_changed(path: str, aside: str, original: str, entry: Entry) -> bool:
    if os.path.exists(path):
        found = posix.stat(path)
        disk.write(aside, json.dumps({"mode": stat.S_IMODE(found.st_mode), "times": disk.times_of(found)}).encode())
        disk.set_mode_and_times(path, entry)
    return True


def _redo_changed(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    text = disk.read(aside)
    if text and os.path.exists(path):
        disk.set_mode_and_times(path, json.loads(text.decode()))
    disk.discard(aside)


def files_of_cache(path: str) -> list[str]:
    """The files of the cache of this name."""
    import re

    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, each) for each in names if re.fullmatch(re.escape(name) + _OF_CACHE, each)]


def _undo_begun(path: str, aside: str, original: str, entry: Entry) -> bool:
    for each in files_of_cache(path):
        disk.make_folders(aside)
        disk.move(each, os.path.join(aside, os.path.basename(each)))
    return True


def _redo_begun(path: str, aside: str, original: str, entry: Entry, is_written: bool) -> None:
    for name in os.listdir(aside) if given_paths.is_folder(aside) and not is_written else ():
        target = os.path.join(os.path.dirname(path), name)
        if not os.path.lexists(target):
            disk.move(os.path.join(aside, name), target)
    disk.discard(aside)


# By kind.
UNDO: dict[str, Callable[[str, str, str, Entry], bool]] = {
    "created": _undo_created, "logged": _undo_created, "made": _undo_made, "removed": _undo_removed,
    "appended": _undo_appended, "overwritten": _undo_overwritten, "changed": _undo_changed, "begun": _undo_begun,
}  # fmt: skip
REDO: dict[str, _Redo] = {
    "created": _redo_created, "logged": _redo_created, "made": _redo_made, "removed": _redo_removed,
    "appended": _redo_appended, "overwritten": _redo_overwritten, "changed": _redo_changed, "begun": _redo_begun,
}  # fmt: skip


def _is_missing(path: str, aside: str) -> bool:
    """Whether a path has no real content: no file, or only an empty one in place of a file that the replay has muted."""
    if not os.path.lexists(path):
        return True
    is_empty = os.path.isfile(path) and not os.path.islink(path) and not os.path.getsize(path)
    return is_empty and (given_paths.is_folder(aside) or posix.lstat(aside).st_size > 0)
