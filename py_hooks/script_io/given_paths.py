"""Paths that a script passes to functions of `os`: made absolute, and examined.

Nothing here changes a file, or knows the trial.
"""
from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def text_of(file: Any) -> str | None:
    """A file argument as text, None for a descriptor or a stream."""
    if isinstance(file, bytes):
        return os.fsdecode(file)
    if hasattr(file, "__fspath__"):
        file = os.fspath(file)
    return file if isinstance(file, str) else None


def absolute(file: Any) -> str | None:
    """The absolute path of a file argument; None for a descriptor, a stream, a device, or a file of /proc or /sys."""
    file = text_of(file)
    if file is None:
        return None
    path = os.path.abspath(file)
    return None if path.startswith(("/dev/", "/proc/", "/sys/")) and not path.startswith("/dev/shm/") else path


def at(path: Any, dir_fd: object) -> Any:
    """A path that is relative to an open directory."""
    if dir_fd is None or not isinstance(dir_fd, int):
        return path
    folder, name = path_of(dir_fd), absolute(path)
    if folder is None or name is None:
        return None
    return os.path.join(folder, os.fsdecode(path))


def path_of(descriptor: int) -> str | None:
    """The path of an open descriptor; None if it has none."""
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return path if path.startswith("/") and os.path.lexists(path) else None


def is_folder(path: str) -> bool:
    """Whether a path is a folder, and not a link to one."""
    return os.path.isdir(path) and not os.path.islink(path)


def is_empty_folder(path: str) -> bool:
    """Whether a path is a folder without entries, and not a link to one."""
    try:
        return is_folder(path) and not os.listdir(path)
    except OSError:
        return False


def is_in(path: str, folder: str) -> bool:
    """Whether a path is that of a folder, or of something in it."""
    return path == folder or path.startswith(folder + os.sep)


def listed(folder: str) -> list[list[str]]:
    """The folders in a folder, including itself, and the files, by their paths in it. Empty if it is no folder."""
    folders: list[str]
    names: list[str]
    folders, names = [], []
    for place, _, found in os.walk(folder):
        inside = os.path.relpath(place, folder)
        folders.append(inside)
        names.extend(os.path.normpath(os.path.join(inside, name)) for name in sorted(found))
    return [sorted(folders), names]


def can_be_moved(source: str, target: str, is_from_folder: bool) -> bool:
    """Whether a rename will change anything."""
    if is_in(target, source) or not os.path.isdir(os.path.dirname(target)):
        return False
    if not os.path.lexists(target):
        return True
    # A rename between two names of one file does nothing.
    is_same = os.path.samestat(os.lstat(source), os.lstat(target))
    return not is_same and is_folder(target) == is_from_folder and (not is_from_folder or is_empty_folder(target))
