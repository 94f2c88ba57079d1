"""Repeats in a replay what the script reads from files of kernel random numbers: `/dev/urandom` and the like.

Each `open` in code of the script draws a key from the trial's entropy (`entropy.py`), as `os.urandom` does. The bytes that
the script reads are computed from that key, the first time too. So they do not depend on when, and in what pieces, they are
read. The file is the real one, opened as the script asks, but nothing is read from it. If the script asks for its descriptor,
it can read around this, which is a cause. It is also a cause if the script opens the file by `os.open`, or also for writing.
"""
from __future__ import annotations

import io

from py_hooks.script_io.functions_of_os import is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from _typeshed import WriteableBuffer

    from py_hooks.script_io.clock import Clock

UUID = "/proc/sys/kernel/random/uuid"

_KEY_BYTES = 32
_BLOCK_BYTES = 1 << 16
_UUID_BYTES = 16

_OPTIONS = ("buffering", "encoding", "errors", "newline", "closefd", "opener")

# Modules that open files on behalf of their caller.
_OPENERS = frozenset(["io", "codecs", "pathlib", "pathlib._local", "pathlib._abc"])


class _Stream:
    """Endless bytes that are computed from a key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0
        self._left = b""

    def take(self, size: int) -> bytes:
        """The next bytes."""
        import hashlib

        while len(self._left) < size:
            self._left += hashlib.shake_256(self._key + b"%d" % self._count).digest(_BLOCK_BYTES)
            self._count += 1
        taken, self._left = self._left[:size], self._left[size:]
        return taken


class _Drawn(io.FileIO):
    """One of the files. Its position, its name and its state are those of the real one."""

    def begin(self, key: bytes, refuse: Callable[[str], None]) -> None:
        """Sets the key of the bytes that are read.

        Args:
            key: the key of the stream.
            refuse: called if the script asks for the descriptor.
        """
        self._stream = _Stream(key)
        self._refuse = refuse

    def fileno(self) -> int:
        """As of any file; what is read through it does not come from the trial."""
        self._refuse(f"`{self.name}` by its descriptor")
        return io.FileIO.fileno(self)

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As of any file."""
        # If the file is closed, this raises.
        self.readable()
        room = memoryview(buffer).cast("B")
        data = self._next(len(room))
        room[:len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        return self._stream.take(size)

    def read(self, size: int | None = -1) -> bytes:
        """As of any file."""
        return io.RawIOBase.read(self, -1 if size is None else size)

    def readall(self) -> bytes:
        """As of any file."""
        return io.RawIOBase.readall(self)


class _DrawnUuid(_Drawn):
    """The kernel's UUID file has a new UUID whenever it is read from its beginning."""

    _text = b""

    def _next(self, size: int) -> bytes:
        position = self.tell()
        if position == 0:
            self._text = _uuid_of(self._stream.take(_UUID_BYTES))
        data = self._text[position:position + size]
        self.seek(position + len(data))
        return data


def _uuid_of(data: bytes | bytearray) -> bytes:
    """A random UUID in the kernel's format."""
    data = bytearray(data)
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])).encode() + b"\n"


def opened(
    clock: Clock,
    refuse: Callable[[str], None],
    frame: FrameType | None,
    path: str,
    mode: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The file that the script opens; NotImplemented if this module does not handle it.

    Args:
        clock: the clock of the trial, which knows its entropy.
        refuse: called with what cannot be repeated.
        frame: the frame that calls `open`.
        path: one of `file_calls.DRAWN_PATHS`.
        mode: as of `open`.
        args: the positional arguments that follow.
        kwargs: the named arguments that follow.
    """
    while frame is not None and frame.f_globals.get("__name__") in _OPENERS:
        frame = frame.f_back
    options = dict(zip(_OPTIONS, args), **kwargs)
    is_read = "r" in mode or "+" in mode
    if frame is None or not is_read or not clock.is_asked_by_user(frame) or not is_plain(options.pop("opener", None)):
        return NotImplemented
    real = _real(path, mode, options)
    if real is None:
        # Python itself raises the error.
        return NotImplemented
    with real:
        if "+" in mode:
            refuse(f"`{path}`, which it may write to, too")
            return NotImplemented
        key = clock.draw(frame, f"open {path}", _KEY_BYTES).to_bytes(_KEY_BYTES, "little")
        file = (_DrawnUuid if path == UUID else _Drawn)(path, "r")
        file.begin(key, refuse)
        buffering = options.get("buffering", -1)
        if buffering == 0:
            return file
        buffered = io.BufferedReader(file, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        if "b" in mode:
            return buffered
        text: Any = io.TextIOWrapper(buffered, real.encoding, real.errors, options.get("newline"), buffering == 1)
        text.mode = mode
        return text


def _real(path: str, mode: str, options: dict[str, Any]) -> Any:
    """The file as Python opens it, to see whether it can be opened, and how; None if not."""
    import _io

    try:
        return _io.open(path, mode, **options)
    except Exception:  # noqa: BLE001 - whatever is wrong with what the script gives
        return None
