"""Operations on files, links and folders by which the trial takes changes back and makes them again.

A file that is written or copied exists completely at its path, or not at all; a move to another file system, too. Nothing
here goes through `os` or `open`, whose replacements note what the script does.
"""
from __future__ import annotations

import errno
import io
import os

# Not `os`: its functions are replaced, and note the calls.
import posix
import stat

from py_hooks.script_io.given_paths import is_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The suffix of a file that is not complete yet.
_NEW = ".pedl-new"

_COPIED_AT_ONCE = 1 << 20


def is_same(path: str, other: str) -> bool:
    """Whether two paths are names of one file; on two file systems, whether the files are equal."""
    try:
        one, two = posix.lstat(path), posix.lstat(other)
    except OSError:
        return False
    if one.st_dev == two.st_dev:
        return one.st_ino == two.st_ino
    return stat.S_ISREG(one.st_mode) and stat.S_ISREG(two.st_mode) and is_equal(path, other)


def is_equal(path: str, other: str) -> bool:
    """Whether two files have the same content."""
    if os.path.getsize(path) != os.path.getsize(other):
        return False
    with io.FileIO(path) as one, io.FileIO(other) as two:
        while True:
            data = one.read(_COPIED_AT_ONCE)
            if data != two.read(_COPIED_AT_ONCE):
                return False
            if not data:
                return True


def read(path: str) -> bytes | None:
    """The bytes of a file, without the `open` that scripts see; None if there is none."""
    try:
        with io.FileIO(path) as file:
            return file.readall()
    except OSError:
        return None


def write(path: str, data: bytes, mode: str = "w") -> None:
    """Writes or appends bytes, durably. A file that is written anew is complete or does not exist."""
    target = path if mode == "a" else path + _NEW
    with io.FileIO(target, mode) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view):]
        os.fsync(file.fileno())
    if target != path:
        posix.rename(target, path)


def copy(source: str, target: str) -> None:
    """Copies the content of a file into one that may exist."""
    with io.FileIO(source) as one, io.FileIO(target, "w") as two:
        while True:
            view = memoryview(one.read(_COPIED_AT_ONCE))
            if not view:
                break
            while view:
                view = view[two.write(view):]
        os.fsync(two.fileno())


def copy_whole(source: str, target: str) -> None:
    """Copies a file to a path, completely or not at all; with its mode and times, and as root with its owner."""
    new = target + _NEW
    copy(source, new)
    found = posix.stat(source)
    if posix.geteuid() == 0:
        posix.chown(new, found.st_uid, found.st_gid)
    posix.chmod(new, stat.S_IMODE(found.st_mode))
    posix.utime(new, ns=tuple(times_of(found)))  # type: ignore[arg-type]  # there are two
    posix.rename(new, target)


def move(source: str, target: str) -> None:
    """Renames, or copies if the two are on different file systems. An entry at the target is replaced."""
    make_folders(os.path.dirname(target))
    if is_folder(target) or is_folder(source) or is_same(source, target):
        # A rename between two names of one file does nothing.
        discard(target)
    try:
        posix.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_entry(source, target + _NEW)
        posix.rename(target + _NEW, target)
        if is_folder(source):
            # So that the source exists completely or not at all.
            posix.rename(source, source + ".pedl-old")
            source += ".pedl-old"
        discard(source)


def _copy_entry(source: str, target: str) -> None:
    """Copies a file, a link or a folder to another file system."""
    discard(target)
    mode = posix.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        posix.symlink(posix.readlink(source), target)
    elif stat.S_ISDIR(mode):
        posix.mkdir(target)
        for name in os.listdir(source):
            _copy_entry(os.path.join(source, name), os.path.join(target, name))
        posix.chmod(target, stat.S_IMODE(mode))
    elif stat.S_ISREG(mode):
        copy_whole(source, target)
    else:
        posix.mknod(target, mode)


def discard(path: str) -> None:
    """Removes the entry at a path, if there is one."""
    if is_folder(path):
        for name in os.listdir(path):
            discard(os.path.join(path, name))
        posix.rmdir(path)
    elif os.path.lexists(path):
        posix.unlink(path)


def make_folders(path: str) -> None:
    """Does what `os.makedirs` does, whose calls would be noted."""
    if not path or os.path.isdir(path):
        return
    make_folders(os.path.dirname(path))
    posix.mkdir(path)


def times_of(found: os.stat_result) -> list[int]:
    """The times of the last access and modification, from the result of `stat`."""
    return [found.st_atime_ns, found.st_mtime_ns]


def set_mode_and_times(path: str, entry: dict[str, Any]) -> None:
    """Sets the `mode` and the `times` of a line of the journal."""
    posix.chmod(path, entry["mode"])
    posix.utime(path, ns=tuple(entry["times"]))
