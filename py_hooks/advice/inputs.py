"""Files that the script reads: a resume goes on with the data that the training began with, or stops.

What a recorded call was given is compared with its record. That leaves what will only be read later: the rows of a
data file that no batch has held yet. So the first time that the script opens a file for reading, its size and a
checksum are noted; checkpoints keep the notes, and a start that finds another file at its place ends with exit code 76.

Left out are files in caches (below hidden folders), of the interpreter and its packages and below `/etc`, Python
sources (compared by `entries.describe_sources`), what the trial itself wrote, what is opened before the first framework
is imported, by the import of a library or in a child process, and what C code opens by itself (TensorFlow's readers;
not HDF5, which h5py opens). Of files above `WHOLE_BYTES` only blocks are read: a row that changed between two of them
is not seen.
"""
import io
import os
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

# Of the interpreter and the system. Not `/usr`, which is the prefix of Debian's Python: containers keep projects there.
_PREFIXES = tuple({os.path.abspath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix, "/etc")} - {"/usr/"})


class Inputs:
    """The files that this process has read, and those of the checkpoint. A provider of state."""

    def __init__(self):
        self._found = {}
        self._expected = {}
        # The place of the script and the name in records, by path; None for what does not count.
        self._read = {}
        self._pid = os.getpid()
        # A handler of the script's own may open a file while it is held.
        self._lock = threading.RLock()

    def reading(self, path):
        """The script is about to read the file of this absolute path."""
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

    def has_read(self, path):
        """Whether the script has read the file of this absolute path."""
        return self._read.get(path) is not None

    def begin(self, state):
        """The trial has begun: compares what was read before.

        Args:
            state: what `capture` returned for the checkpoint that is resumed; empty where there is none.
        """
        self._expected = state
        for name, place in [read for read in self._read.values() if read is not None]:
            self._compare(name, place)

    def capture(self):
        """Sizes and checksums by path: part of a checkpoint. A resumed start has not opened all of them again."""
        return [], dict(self._expected, **self._found)

    def restore(self, tensors, state):
        """The replay is over. Files that are only read from now on are still compared."""

    def _compare(self, name, place):
        (size, crc), (file, line) = self._found[name], place
        expected_size, expected_crc = self._expected.get(name, (size, crc))
        if (expected_size, expected_crc) == (size, crc):
            return
        recorder.stop(
            recorder.CALLS,
            76,
            f"the replay differs from the record: the file `{name}` has changed\n"
            f"  read at {file}:{line}\n"
            f"  recorded: {expected_size} bytes, checksum {expected_crc:08x}\n"
            f"  now: {size} bytes, checksum {crc:08x}\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "put the file back as it was; `--fresh` begins a new trial",
        )


def is_left_out(path):
    """Whether a file is none of the script's inputs: of a cache, the interpreter, a package, or the system."""
    if path.endswith((".py", ".pyc")) or path.startswith(_PREFIXES):
        return True
    return places.is_in_cache(path) or not places.is_user_file(path)


def _place():
    """The line of the script that reads a file, unknown in a thread of a framework; None in the import of a library."""
    frame = sys._getframe(2)
    while frame is not None and not places.is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return None
        frame = frame.f_back
    return ("?", 0) if frame is None else (places.display_path(frame.f_code.co_filename), frame.f_lineno)


def checksum(path):
    """`[size, crc32]` of a regular file; None for anything else. What cannot be read, the script will hear of."""
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


def _offsets(size):
    if size <= WHOLE_BYTES:
        return range(0, size, _BLOCK_BYTES)
    last = size - _BLOCK_BYTES
    count = WHOLE_BYTES // _BLOCK_BYTES
    return [last * block // (count - 1) for block in range(count)]
