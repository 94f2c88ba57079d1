"""What the operating system draws for the script, again in a replay, and nowhere readable.

A script draws keys, tokens and salts by `os.urandom` and `secrets`. They stand in no file of the trial: each is made, by
SHAKE-256, of a key and of the place where it is asked for: the line, how many calls were recorded before, and how many
times the line had asked since. A replay asks at the same places.

The key is 32 bytes that the operating system has drawn once for the trial. It lies in `entropy.key` of the trial
directory, which nobody but its owner may read, and is durable before the first checkpoint; a trial that draws nothing
has none. Checkpoints hold a name of the key, from which nothing else can be told, and a resume without that very key is
refused: it would go on with other numbers.
"""
import os

from py_hooks.refusal import Refusal

FILE_NAME = "entropy.key"

_KEY_BYTES = 32


class KeyLost(Refusal):
    """The key that the trial has drawn by is not there."""

    exit_code = 65


class Entropy:
    """The stream of one trial.

    Args:
        directory: the trial directory, which need not exist.
        is_begun: whether the trial was begun by an earlier start.
        urandom: the function of the operating system.

    Attributes:
        has_drawn: whether anything was drawn by the key, in this start or before a checkpoint that is resumed.
    """

    def __init__(self, directory, is_begun, urandom):
        self._path = os.path.join(directory, FILE_NAME)
        self._urandom = urandom
        self._key = _read(self._path) if is_begun else None
        self._is_kept = self._key is not None
        self._asked = {}
        self.has_drawn = False

    def expect(self, name):
        """A checkpoint whose trial has drawn by the key of this name is resumed.

        Raises:
            KeyLost: it is another key, or there is none.
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

    def draw(self, place, position, size):
        """So many bytes, as a number, for a line that asks after so many recorded calls."""
        if self._key is None:
            self._key = self._urandom(_KEY_BYTES)
        self.has_drawn = True
        last, count = self._asked.get(place, (position, -1))
        count = count + 1 if last == position else 0
        self._asked[place] = position, count
        return int.from_bytes(self._stream(f"{position} {count} {place}", size), "little")

    def name(self):
        """What tells the key from others, and nothing about it."""
        return self._stream("name", 8).hex()

    def keep(self):
        """Makes the key durable. The trial directory is there by now.

        Raises:
            OSError: it cannot be written.
        """
        if not self._is_kept:
            _write(self._path, self._key)
            self._is_kept = True

    def _stream(self, what, size):
        import hashlib

        return hashlib.shake_256(self._key + what.encode()).digest(size)


def _read(path):
    """The key in a file; None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        key = os.read(descriptor, _KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    return key if len(key) == _KEY_BYTES else None


def _write(path, key):
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
