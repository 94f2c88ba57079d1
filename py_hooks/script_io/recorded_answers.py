"""How answers of the file system are recorded (`observations.py`): as JSON, and as what the function returns in a replay.

The record of an answer has what a script may compare or print, and leaves out what a question itself changes (the time of the
last access). A replay returns objects with the interface of those of `os`, without asking the system.
"""
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any


def _stat_noted(found: Any) -> tuple[list[Any], os.stat_result]:
    # The access time is left out: reading the file changes it.
    numbers, more = found.__reduce__()[1]
    numbers = list(numbers)
    numbers[7] = numbers[8]
    more = dict(more, st_atime=more["st_mtime"], st_atime_ns=more["st_mtime_ns"])
    return [numbers, {name: value for name, value in more.items() if value is not None}], found


def _stat_told(recorded: list[Any], path: object) -> os.stat_result:
    if isinstance(recorded[0], list):
        return os.stat_result(tuple(recorded[0]), recorded[1])
    return os.stat_result(tuple(recorded))


def _access_noted(answer: bool) -> tuple[bool, bool]:
    return bool(answer), answer


def _access_told(recorded: bool, path: object) -> bool:
    return recorded


def _link_noted(target: str | bytes) -> tuple[str, str | bytes]:
    return os.fsdecode(target), target


def _link_told(recorded: str, path: object) -> str | bytes:
    return os.fsencode(recorded) if isinstance(path, bytes) else recorded


def _names_noted(names: list[str] | list[bytes]) -> tuple[list[str], list[str] | list[bytes]]:
    return [os.fsdecode(name) for name in names], names


def _names_told(recorded: list[str], path: object) -> list[str] | list[bytes]:
    return [os.fsencode(name) for name in recorded] if isinstance(path, bytes) else list(recorded)


class _Entries:
    """The iterator that `os.scandir` returns."""

    def __init__(self, entries: Iterable[_Entry | os.DirEntry[Any]]) -> None:
        self._entries: Iterator[_Entry | os.DirEntry[Any]] = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry | os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops the entries that are left."""
        self._entries = iter(())


class _Entry:
    """An `os.DirEntry` of a replay."""

    def __init__(self, name: str, folder: Any, is_bytes: bool, mode: str, inode: int) -> None:
        self.name: Any = os.fsencode(name) if is_bytes else name
        self.path = os.path.join(folder, self.name)
        self._mode = mode
        self._inode = inode

    def __fspath__(self) -> str | bytes:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        """As of `os.DirEntry`."""
        return self._inode

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """As of `os.DirEntry`."""
        return self._kind(follow_symlinks) == "d"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """As of `os.DirEntry`."""
        return self._kind(follow_symlinks) == "f"

    def is_symlink(self) -> bool:
        """As of `os.DirEntry`."""
        return self._mode.startswith("l")

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As of `os.DirEntry`."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def _kind(self, follows: bool) -> str:
        return self._mode[-1] if follows or not self.is_symlink() else "l"


def _entry_mode(entry: os.DirEntry[Any]) -> str:
    try:
        kind = "d" if entry.is_dir() else "f" if entry.is_file() else "-"
    except OSError:
        kind = "-"
    return "l" + kind if entry.is_symlink() else kind


def _entries_noted(iterator: Any) -> tuple[list[list[Any]], _Entries]:
    with iterator:
        entries = list(iterator)
    return [[os.fsdecode(entry.name), _entry_mode(entry), entry.inode()] for entry in entries], _Entries(entries)


def _entries_told(recorded: list[Any], path: Any) -> _Entries:
    folder = os.fspath(path)
    return _Entries([_Entry(name, folder, isinstance(folder, bytes), mode, inode) for name, mode, inode in recorded])


# By function of `os`: an encoder, which returns the record of an answer and the answer to return; and a decoder of records.
CODECS: dict[str, tuple[Callable[[Any], tuple[Any, Any]], Callable[[Any, Any], Any]]] = {
    "stat": (_stat_noted, _stat_told),
    "lstat": (_stat_noted, _stat_told),
    "access": (_access_noted, _access_told),
    "readlink": (_link_noted, _link_told),
    "listdir": (_names_noted, _names_told),
    "scandir": (_entries_noted, _entries_told),
}
