"""Files that the script reads: a resume goes on with the data that the training began with, or stops.

What a recorded call was given is compared with its record. That leaves what will only be read later: the rows of a
data file that no batch has held yet. So the first time that the script opens a file for reading, its size and a
checksum are noted; checkpoints keep the notes, and a start that finds another file at its place ends with exit code 76.

Left out are files below hidden folders (caches), of the interpreter and its packages, Python sources (compared by
`entries.describe_sources`), what the trial itself wrote, what is opened by an import or in a child process, and what
C code opens by itself (HDF5, TensorFlow's readers).
"""
import os
import stat
import sys
import threading
import zlib

from py_hooks.advice import calls as recorder
from py_hooks.advice import places

# Up to this size all of a file is read; of a larger one, blocks at even distances, the first and the last among them.
WHOLE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 14

# A folder of a million images: the first of them tell whether it is another one.
MAX_FILES = 1000

_PREFIXES = tuple(os.path.abspath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix, "/etc", "/usr"))


class Inputs:
    """The files that this process has read, and those of the checkpoint. A provider of state."""

    def __init__(self):
        self._found = {}
        self._expected = {}
        self._opened_at = {}
        self._pid = os.getpid()
        self._lock = threading.Lock()

    def reading(self, path):
        """The script is about to read the file of this absolute path."""
        if path in self._opened_at or len(self._found) >= MAX_FILES or self._pid != os.getpid():
            return
        with self._lock:
            place = _place(path)
            self._opened_at[path] = place
            found = _checksum(path) if place is not None else None
        if found is not None:
            name = places.display_path(path)
            self._found[name] = found
            self._compare(name, found, place)

    def begin(self, state):
        """The trial has begun: compares what was read before.

        Args:
            state: what `capture` returned for the checkpoint that is resumed; empty where there is none.
        """
        self._expected = state
        for path, place in list(self._opened_at.items()):
            name = places.display_path(path)
            if name in self._found:
                self._compare(name, self._found[name], place)

    def capture(self):
        """Sizes and checksums by path: part of a checkpoint."""
        return [], dict(self._found)

    def restore(self, tensors, state):
        """The replay is over. Files that are only read from now on are still compared."""

    def _compare(self, name, found, place):
        expected = self._expected.get(name, found)
        if expected == found:
            return
        recorder.stop(
            recorder.CALLS,
            76,
            f"the replay differs from the record: the file `{name}` has changed\n"
            "  read at {}:{}\n".format(*place) + "  recorded: {} bytes, checksum {:08x}\n".format(*expected)
            + "  now: {} bytes, checksum {:08x}\n".format(*found)
            + "  the run was stopped; the checkpoint and the log are kept",
            "put the file back as it was; `--fresh` begins a new trial",
        )


def _place(path):
    """The line of the script that reads a file; None for a file that does not count."""
    hidden = os.sep + "." in path
    if hidden or path.endswith((".py", ".pyc")) or path.startswith(_PREFIXES) or not places.is_user_file(path):
        return None
    frame = sys._getframe(2)
    while frame is not None and not places.is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return None
        frame = frame.f_back
    return None if frame is None else (places.display_path(frame.f_code.co_filename), frame.f_lineno)


def _checksum(path):
    """`[size, crc32]` of a regular file; None for anything else. What cannot be read, the script will hear of."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            return None
        crc = 0
        for offset in _offsets(about.st_size):
            crc = zlib.crc32(os.pread(file, _BLOCK_BYTES, offset), crc)
        return [about.st_size, crc]
    except OSError:
        return None
    finally:
        os.close(file)


def _offsets(size):
    if size <= WHOLE_BYTES:
        return range(0, size, _BLOCK_BYTES)
    last = size - _BLOCK_BYTES
    count = WHOLE_BYTES // _BLOCK_BYTES
    return [last * block // (count - 1) for block in range(count)]
