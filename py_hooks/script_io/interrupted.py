"""What a command has done to files when the process is killed while it runs: taken back before the command runs again.

A command that was running at a kill runs again, and has done a part of its work: `echo done >> log.txt` has appended its line,
`mv a b` has moved the file. So before a command starts, the files that its words name are noted in its line:

    {"started": n, ..., "before": {path: null}}                           there is nothing at this path
    {"started": n, ..., "before": {path: [bytes, hash]}}                  a regular file, and the hash of its last bytes

`interrupted/n/` in the trial directory has a copy of each such file, or another name of it if it is longer than `MAX_COPIED`.
The folder is removed when the end of the command is noted. Before a command runs again:

    is now                      was                         what is done
    a file or a link            nothing                     moved to `aside/`
    an empty folder             nothing                     removed
    longer, with the same start a file                      cut; the rest is kept in `aside/`
    nothing                     a file                      put back
    another content             a file of `MAX_COPIED`      moved to `aside/`, and the copy is written into the file
    anything else               anything else               stays, and is named

Only paths below the directory that the trial was started in are noted: a copied trial does not change the files of its
original. The files that the script writes itself are not: the replay makes them anew. What a command changes without naming it
stays.
"""
from __future__ import annotations

import io
import os

# Not `os`, in which these functions are replaced.
import posix
import stat

from py_hooks.script_io import disk, kept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from py_hooks.script_io.ledger import Ledger

# A longer file is not copied before a command.
MAX_COPIED = 1 << 20

# The number of bytes at the end of a file by which it is recognized. All of a file that is copied.
_COMPARED = MAX_COPIED

_FOLDER = "interrupted"


class Before:
    """The files that commands may change, as they were before.

    Args:
        directory: the trial directory.
        files: the journal of the files of the script.
    """

    def __init__(self, directory: str, files: Ledger) -> None:
        self._directory = directory
        self._files = files

    def note(self, number: int, paths: Iterable[str]) -> dict[str, Any]:
        """Keeps the files at these paths.

        Args:
            number: the number of the command.
            paths: that its words may name. Those of other things than regular files are left out.

        Returns:
            By stored path, None for nothing, or the number of bytes and their hash.
        """
        noted: dict[str, Any] = {}
        for path in sorted(paths):
            if not self._files.is_inside(path):
                continue
            found = _stat(path)
            if found is None:
                noted[self._files.stored(path)] = None
            elif stat.S_ISREG(found.st_mode):
                last = _hash_of_last(path, found.st_size)
                if last is not None:
                    self._keep(path, self._place(number, len(noted)), found)
                    noted[self._files.stored(path)] = [found.st_size, last]
        return noted

    def _keep(self, path: str, place: str, found: os.stat_result) -> None:
        disk.make_folders(os.path.dirname(place))
        try:
            if found.st_size <= MAX_COPIED:
                disk.copy_whole(path, place)
            else:
                posix.link(path, place, follow_symlinks=False)
        except OSError:
            # Without it the file can still be cut; if that is not enough, the file is named.
            pass

    def forget(self, number: int) -> None:
        """The end of a command is noted, or it runs again under another number."""
        disk.discard(self._place(number))

    def take_back(self, number: int, noted: Any) -> tuple[list[str], list[str]]:
        """Takes back what an interrupted command has changed. Can be repeated after a kill.

        Args:
            number: the number of the command.
            noted: what `note` returned, as the journal has it.

        Returns:
            The paths that are as before again, and those that differ and stay.
        """
        mended: list[str] = []
        left: list[str] = []
        for index, (name, before) in enumerate(_whole(noted)):
            path = self._files.resolved(name)
            if not self._files.is_inside(path):
                continue
            aside = os.path.join(self._directory, "aside", f"command-{number}-{index}")
            try:
                if _is_as(path, before):
                    continue
                disk.make_folders(os.path.dirname(aside))
                done = _mend(path, before, self._place(number, index), aside)
            except OSError:
                done = False
            (mended if done else left).append(path)
        return mended, left

    def _place(self, number: int, index: int | None = None) -> str:
        folder = os.path.join(self._directory, _FOLDER, str(number))
        return folder if index is None else os.path.join(folder, str(index))


def _mend(path: str, before: list[Any] | None, copy: str, aside: str) -> bool:
    """Makes a path what it was before. Returns whether it is."""
    found = _stat(path)
    if before is None:
        return _remove(path, found, aside)
    if found is not None and not stat.S_ISREG(found.st_mode):
        return False
    if found is not None and found.st_size > before[0] and _hash_of_last(path, before[0]) == before[1]:
        with io.FileIO(path) as file:
            file.seek(before[0])
            disk.write(aside, file.readall())
        posix.truncate(path, before[0])
        return True
    return _is_as(copy, before) and _put_back(path, found, copy, aside)


def _remove(path: str, found: os.stat_result, aside: str) -> bool:
    if not stat.S_ISDIR(found.st_mode):
        disk.move(path, aside)
    elif os.listdir(path):
        return False
    else:
        posix.rmdir(path)
    return True


def _put_back(path: str, found: os.stat_result | None, copy: str, aside: str) -> bool:
    if found is None:
        disk.move(copy, path)
        return True
    if posix.lstat(copy).st_size > MAX_COPIED:
        return False
    disk.copy_whole(path, aside)
    # Into the file itself: it may have other names, and keeps its owner and mode.
    disk.copy(copy, path)
    return True


def _is_as(path: str, before: list[Any] | None) -> bool:
    found = _stat(path)
    if found is None or before is None:
        return found is before
    return stat.S_ISREG(found.st_mode) and [found.st_size, _hash_of_last(path, found.st_size)] == before


def _stat(path: str) -> os.stat_result | None:
    try:
        return posix.lstat(path)
    except (OSError, ValueError):
        return None


def _hash_of_last(path: str, length: int) -> str | None:
    """The hash of the last of the first `length` bytes of a file; None if it cannot be read."""
    try:
        with io.FileIO(path) as file:
            file.seek(max(0, length - _COMPARED))
            return kept.hash_of(file.read(min(length, _COMPARED)))
    except OSError:
        return None


def _whole(noted: Any) -> list[tuple[str, list[Any] | None]]:
    """The pairs of a record, as `note` made them; none if it was not made by pedl-run."""
    if not isinstance(noted, dict):
        return []
    return [
        (name, before)
        for name, before in noted.items()
        if before is None or (isinstance(before, list) and len(before) == 2 and type(before[0]) is int and before[0] >= 0)
    ]
