"""Storage of a trial beside its log of calls: contents by their hash, each once, and lines of JSON.

Contents are on the disk before a line refers to them. A process that dies while it writes a line leaves a torn line, which
readers ignore.
"""
from __future__ import annotations

import errno
import io
import os

# Not `os`: its functions are replaced, and note the calls.
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from py_hooks.recording.recorder import Calls

_FOLDER = "kept"

# The maximum for all contents of a trial together.
MAX_BYTES = 1 << 30


class Kept:
    """The kept contents of a trial.

    Args:
        directory: the trial directory.
        calls: the recorder, which ends the process if the disk has no room.
    """

    def __init__(self, directory: str, calls: Calls) -> None:
        self._folder = os.path.join(directory, _FOLDER)
        self._calls = calls
        self._bytes = 0

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be kept."""
        return self._bytes + size <= MAX_BYTES

    def keep(self, data: bytes) -> str:
        """Keeps bytes. Returns their hash; empty for no bytes."""
        if not data:
            return ""
        name = hash_of(data)
        path = os.path.join(self._folder, name)
        if not os.path.exists(path):
            self._bytes += len(data)
            try:
                if not os.path.isdir(self._folder):
                    # Others may not read it: a command may have printed a password.
                    os.mkdir(self._folder, 0o700)
                write(path + ".new", data)
                os.rename(path + ".new", path)
            except OSError as error:
                from py_hooks.recording.ending import stop_for_file

                stop_for_file(self._calls, path, error)
        return name

    def read(self, name: str) -> bytes:
        """The bytes with this hash."""
        if not name:
            return b""
        path = os.path.join(self._folder, os.path.basename(name))
        # Does not follow a link, or wait for a pipe, that somebody has put there.
        with os.fdopen(posix.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", 0) as file:
            data = file.readall()
        if hash_of(data) != name:
            raise OSError(errno.EIO, "it does not match its hash, which is its name", path)
        return data


class Lines:
    """A file of the trial directory that grows by lines of JSON. The first line creates it.

    Args:
        path: of the file.
        calls: the recorder, which ends the process if the disk has no room.
    """

    def __init__(self, path: str, calls: Calls) -> None:
        self._path = path
        self._calls = calls
        self._file: int | None = None

    def add(self, line: dict[str, Any], is_durable: bool = False) -> None:
        """Adds a line. A durable one is on the disk when this returns."""
        import json

        data = (json.dumps(line) + "\n").encode()
        try:
            if self._file is None:
                data = (b"\n" if _is_torn(self._path) else b"") + data
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._file = os.open(self._path, flags, 0o600)
            os.write(self._file, data)
            if is_durable:
                os.fdatasync(self._file)
        except OSError as error:
            from py_hooks.recording.ending import stop_for_file

            stop_for_file(self._calls, self._path, error)


def lines(path: str) -> Iterator[dict[str, Any]]:
    """The lines of such a file, as dicts; none if the file does not exist."""
    import json

    for line in content(path).split(b"\n"):
        try:
            found = json.loads(line.decode())
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def content(path: str) -> bytes:
    """The bytes of a file, without the `open` that scripts see; none if the file does not exist."""
    try:
        with io.FileIO(path) as file:
            return file.readall()
    except FileNotFoundError:
        return b""


def _is_torn(path: str) -> bool:
    data = content(path)
    return bool(data) and not data.endswith(b"\n")


def hash_of(data: bytes) -> str:
    """The hash of bytes, by which they are named."""
    import hashlib

    return hashlib.sha256(data).hexdigest()


def write(path: str, data: bytes, mode: str = "w") -> None:
    """Writes all of a file durably, without the `open` that scripts see."""
    with io.FileIO(path, mode) as file:
        file.truncate(len(data))
        view = memoryview(data)
        while view:
            view = view[file.write(view):]
        os.fsync(file.fileno())
