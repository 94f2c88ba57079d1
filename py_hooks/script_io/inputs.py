"""Files that the script reads: a resume continues with the data that the training began with, or stops.

The arguments of a recorded call are compared with its record. This does not cover data that is only read later, such as the
rows of a data file that no batch has contained yet. So the first time that the script opens a file for reading, its size and
a checksum are noted. Checkpoints keep the notes, and a start that finds another file at the path ends with exit code 76.

Left out are files in caches (below hidden folders), of the interpreter and its packages and below `/etc`, Python sources
(compared by `entries.describe_sources`), and files that the trial itself wrote. Also left out are files opened before the
first framework is imported, by the import of a library, in a child process, or by C code alone (TensorFlow's readers; not
HDF5, which h5py opens). Of files above `WHOLE_BYTES` only blocks are read: a row that changed between two blocks is not noticed.
"""
from __future__ import annotations

import io
import os
import sys
import threading
import zlib

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.recording import ending, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy

# Up to this size all of a file is read; of a larger one, evenly spaced blocks, including the first and the last.
WHOLE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 14

# Of a folder with a million images, the first ones show whether it is another folder.
MAX_FILES = 1000

# Of the interpreter and the system. Not `/usr`, the prefix of Debian's Python, because containers keep projects there.
_PREFIXES = tuple({os.path.abspath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix, "/etc")} - {"/usr/"})


class Inputs:
    """The files that this process has read, and those of the checkpoint. A provider of state."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}
        self._expected: dict[str, list[int]] = {}
        # By path, the name in records and the line of the script that reads it; None for files that are left out.
        self._read: dict[str, tuple[str, tuple[str, int]] | None] = {}
        self._pid = os.getpid()
        # A signal handler of the script may open a file while this thread holds it.
        self._lock = threading.RLock()

    def reading(self, path: str) -> None:
        """The script is about to read the file at this absolute path."""
        if path in self._read or len(self._read) >= MAX_FILES or self._pid != os.getpid() or is_left_out(path):
            return
        with self._lock:
            place = _place()
            found = checksum(path) if place is not None else None
            self._read[path] = None
            if found is None:
                return
            name = places.display_path(path)
            self._read[path] = (name, place)
            self._found[name] = found
        self._compare(name, place)

    def has_read(self, path: str) -> bool:
        """Whether the script has read the file at this absolute path."""
        return self._read.get(path) is not None

    def begin(self, state: dict[str, list[int]]) -> None:
        """The trial has begun: compares the files that were read before.

        Args:
            state: what `capture` returned for the checkpoint that is resumed; empty if there is none.
        """
        self._expected = state
        for name, place in [read for read in self._read.values() if read is not None]:
            self._compare(name, place)

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, list[int]]]:
        """Sizes and checksums by path: part of a checkpoint. A resumed start has not opened all of them again."""
        return [], dict(self._expected, **self._found)

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """The replay is over. Files that are only read from now on are still compared."""

    def _compare(self, name: str, place: tuple[str, int]) -> None:
        (size, crc), (file, line) = self._found[name], place
        expected_size, expected_crc = self._expected.get(name, (size, crc))
        if (expected_size, expected_crc) == (size, crc):
            return
        ending.stop(
            recorder.CALLS,
            ExitCode.DIVERGED,
            f"the replay differs from the record: the file `{name}` has changed\n"
            f"  read at {file}:{line}\n"
            f"  recorded: {expected_size} bytes, checksum {expected_crc:08x}\n"
            f"  now: {size} bytes, checksum {crc:08x}\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "put the file back as it was; `--fresh` begins a new trial",
        )


def is_left_out(path: str) -> bool:
    """Whether a file is no input of the script: of a cache, the interpreter, a package, or the system."""
    if path.endswith((".py", ".pyc")) or path.startswith(_PREFIXES):
        return True
    return places.is_in_cache(path) or not places.is_user_file(path)


def _place() -> tuple[str, int] | None:
    """The line of the script that reads a file; `("?", 0)` in a thread of a framework; None in the import of a library."""
    frame = sys._getframe(2)
    while frame is not None and not places.is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return None
        frame = frame.f_back
    return ("?", 0) if frame is None else (places.display_path(frame.f_code.co_filename), frame.f_lineno)


def checksum(path: str) -> list[int] | None:
    """`[size, crc32]` of a regular file; None for anything else. An error is left to the script, whose read will fail too."""
    if not os.path.isfile(path):
        # A pipe must not even be opened: closing it again would end its writer.
        return None
    try:
        with io.FileIO(path) as file:
            size, crc = os.fstat(file.fileno()).st_size, 0
            for offset in _offsets(size):
                crc = zlib.crc32(os.pread(file.fileno(), _BLOCK_BYTES, offset), crc)
            return [size, crc]
    except OSError:
        return None


def _offsets(size: int) -> Sequence[int]:
    if size <= WHOLE_BYTES:
        return range(0, size, _BLOCK_BYTES)
    last = size - _BLOCK_BYTES
    count = WHOLE_BYTES // _BLOCK_BYTES
    return [last * block // (count - 1) for block in range(count)]
