"""Random bytes of the operating system for the script: a replay draws the same ones, and no file contains them.

A script draws keys, tokens and salts by `os.urandom` and `secrets`. No file of the trial contains them: each is computed by
SHAKE-256 from a key and from the place of the draw. The place is the line, the number of calls that were recorded before,
and how often the line has drawn since then. A replay draws at the same places.

The key is 32 bytes that the operating system has drawn once for the trial. It is in the file `entropy.key` of the trial
directory, which only its owner may read, and is durable before the first checkpoint. A trial that draws nothing has none.
Checkpoints hold a name of the key, which reveals nothing else about it. A resume without that very key is refused, because
it would continue with other numbers.
"""
from __future__ import annotations

import os

from py_hooks.border import ExitCode
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FILE_NAME = "entropy.key"

_KEY_BYTES = 32


class KeyLost(Refusal):
    """The key that the trial has drawn with is missing, or is another one."""

    exit_code = ExitCode.CONFIGURATION


class Entropy:
    """The stream of one trial.

    Args:
        directory: the trial directory, which need not exist.
        is_begun: whether an earlier start has begun the trial.
        urandom: the function of the operating system.

    Attributes:
        has_drawn: whether the key was used, in this start or before the checkpoint that is resumed.
    """

    def __init__(self, directory: str, is_begun: bool, urandom: Callable[[int], bytes]) -> None:
        self._path = os.path.join(directory, FILE_NAME)
        self._urandom = urandom
        self._key = _read(self._path) if is_begun else None
        self._is_kept = self._key is not None
        self._asked: dict[str, tuple[int, int]] = {}
        self.has_drawn = False

    def expect(self, name: str) -> None:
        """A checkpoint is resumed whose trial has drawn with the key of this name.

        Raises:
            KeyLost: the key is another one, or is missing.
        """
        if self._key is None or self.name() != name:
            found = "it is another one" if self._key is not None else "it is not there, or cannot be read"
            raise KeyLost(
                f"cannot continue the trial without the key `{self._path}`\n"
                f"  {found}\n"
                "  the script draws from the operating system, and would go on with other numbers\n"
                "  nothing of the trial was changed, and the script was not started",
                "copy the file from where the trial was, or begin a new trial with `--fresh`",
            )
        self.has_drawn = True

    def draw(self, place: str, position: int, size: int) -> int:
        """`size` bytes, as a number, for a line (`place`) that draws after `position` recorded calls."""
        if self._key is None:
            self._key = self._urandom(_KEY_BYTES)
        self.has_drawn = True
        last, count = self._asked.get(place, (position, -1))
        count = count + 1 if last == position else 0
        self._asked[place] = position, count
        return int.from_bytes(self._stream(f"{position} {count} {place}", size), "little")

    def name(self) -> str:
        """A name that distinguishes the key from others, and reveals nothing about it."""
        return self._stream("name", 8).hex()

    def keep(self) -> None:
        """Makes the key durable. The trial directory exists by now.

        Raises:
            OSError: the key cannot be written.
        """
        if not self._is_kept:
            _write(self._path, self._key)
            self._is_kept = True

    def _stream(self, what: str, size: int) -> bytes:
        import hashlib

        return hashlib.shake_256(self._key + what.encode()).digest(size)


def _read(path: str) -> bytes | None:
    """The key in a file; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        key = os.read(descriptor, _KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    return key if len(key) == _KEY_BYTES else None


def _write(path: str, key: bytes) -> None:
    staged = path + ".pedl-new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(staged, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, key)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(staged, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
