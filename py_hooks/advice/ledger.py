"""The ledger of a trial: what its starts made or changed on disk, so that the next one finds what the first one found.

`files.jsonl` in the trial directory, a line for each path, written before what it announces happens:

    {"created": path}                    was not there: moved to `aside/` by a start, whatever it holds then
    {"appended": path, "bytes": n}       was n bytes long: cut back to that, the rest goes to `aside/`
    {"overwritten": path}                was read before: goes to `aside/`, and its first content, kept in `originals/`,
                                         takes its place
    {"logged": path}                     was not there, and grows with the training (event files): moved to `aside/`
                                         like what was created; at the resume point it comes back, cut to its length
                                         at the checkpoint, and what was begun after that is given up
    {"made": path}                       a directory: removed if nothing is left in it

A path below the directory that the trial was started in is relative to the trial directory, if that lies there too: a
trial that was moved or copied together with its files is a trial of its own.

What is set aside goes back where the replay has not made it again: when the process ends, or at the next start. Files
in `aside/` and `originals/` are named by the number of their line, from 0. If we die between a line and what it
announces, the line names something that is as it was, which withdrawing leaves alone. A torn line is none.
"""
import io
import json
import os

_FILE_NAME = "files.jsonl"

# A larger file is not copied before it is overwritten: a start that reads it again ends with exit code 76 (`inputs`).
MAX_ORIGINAL_BYTES = 64 << 20


class Ledger:
    """The ledger of the trial in a directory, which need not exist before `open`.

    Args:
        directory: the trial directory.
        started_in: the directory that the trial was started in.

    Attributes:
        path: the ledger's own file.
    """

    def __init__(self, directory, started_in):
        self._directory = directory
        self._around = os.path.join(started_in, "")
        self.path = os.path.join(directory, _FILE_NAME)
        self._file = None
        self._count = 0

    def exists(self):
        """Whether an earlier start has begun a ledger."""
        return os.path.exists(self.path)

    def paths(self):
        """All paths that it names."""
        return [path for _, path, _ in self._entries()]

    # -- before the script -----------------------------------------------------------------------------------------

    def withdraw(self):
        """Takes away what earlier starts made. Nothing is lost, whenever we die.

        Returns:
            The directories that had to stay: something is in them that the ledger does not name.
        """
        self.put_back()
        entries = self._entries()
        if not entries:
            return set()
        os.makedirs(os.path.join(self._directory, "aside"), exist_ok=True)
        for number, path, entry in entries:
            aside = self._place("aside", number)
            if "created" in entry or "logged" in entry:
                _move(path, aside)
            elif "appended" in entry:
                _cut(path, entry["bytes"], aside)
            elif "overwritten" in entry:
                self._restore(path, number, aside)
        made = [path for _, path, entry in reversed(entries) if "made" in entry and os.path.isdir(path)]
        for path in made:
            if not os.listdir(path):
                os.rmdir(path)
        return {path for path in made if os.path.isdir(path)}

    def put_back(self, but=frozenset()):
        """Puts back what was withdrawn, where the replay has not made it again.

        Args:
            but: paths that the replay has written, whatever became of them since.
        """
        for number, path, entry in self._entries():
            aside = self._place("aside", number)
            if path in but or not os.path.lexists(aside):
                continue
            if ("created" in entry or "logged" in entry) and _is_missing(path, aside):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                _move(aside, path)
            elif "appended" in entry and os.path.isfile(path) and os.path.getsize(path) == entry["bytes"]:
                _write(path, _read(aside), "a")
            elif "overwritten" in entry and _read(path) == _read(self._place("originals", number)):
                _move(aside, path)

    def restore_logged(self, lengths):
        """Puts back the files that grow with the training, as they were at a checkpoint.

        Args:
            lengths: in bytes, by their names in the ledger. A file that has none was begun later, and is removed.

        Returns:
            The paths of those that are there.
        """
        restored = []
        for number, path, entry in self._entries():
            aside = self._place("aside", number)
            if "logged" not in entry or not os.path.lexists(aside):
                continue
            length = lengths.get(self.stored(path))
            if length is None:
                os.remove(aside)
                continue
            os.truncate(aside, min(length, os.path.getsize(aside)))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _move(aside, path)
            restored.append(path)
        return restored

    def _restore(self, path, number, aside):
        original = _read(self._place("originals", number))
        if original is not None and _read(path) != original:
            _move(path, aside)
            _write(path, original)

    # -- while the script runs -------------------------------------------------------------------------------------

    def open(self):
        """Opens it for adding; the directory is there by now."""
        text = _read(self.path) or b""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o666)
        if text and not text.endswith(b"\n"):
            os.write(self._file, b"\n")
        self._count = len(text.splitlines())

    def is_open(self):
        """Whether `add` may be called."""
        return self._file is not None

    def add(self, kind, path, original=None, **more):
        """Adds a line; where a file is about to be overwritten, with what it holds."""
        entry = dict({kind: self.stored(path)}, **more)
        if original is not None:
            os.makedirs(os.path.join(self._directory, "originals"), exist_ok=True)
            _write(self._place("originals", self._count), original)
        os.write(self._file, (json.dumps(entry) + "\n").encode())
        self._count += 1

    def _place(self, folder, number):
        return os.path.join(self._directory, folder, str(number))

    def _entries(self):
        """`(number of the line, path, entry)` of each line."""
        found = []
        for number, line in enumerate((_read(self.path) or b"").split(b"\n")[:-1]):
            try:
                entry = json.loads(line.decode())
            except ValueError:
                continue
            path = next(iter(entry.values()), None) if isinstance(entry, dict) else None
            if not isinstance(path, str):
                # Not a line of ours.
                continue
            found.append((number, self.resolved(path), entry))
        return found

    def resolved(self, name):
        """The absolute path of what stands in the ledger."""
        return os.path.normpath(os.path.join(self._directory, name))

    def stored(self, path):
        """A path as it stands in the ledger: relative where it can move, or be copied, together with the trial."""
        if path.startswith(self._around) and self._directory.startswith(self._around):
            return os.path.relpath(path, self._directory)
        return path


def content(path):
    """What a file holds; None for what is no file, or too large to be kept."""
    if not os.path.isfile(path) or os.path.getsize(path) > MAX_ORIGINAL_BYTES:
        return None
    return _read(path)


def _is_missing(path, aside):
    """Whether a path holds nothing that was made: no file, or one that only stands for what the replay has muted."""
    if not os.path.lexists(path):
        return True
    is_empty = os.path.isfile(path) and not os.path.getsize(path)
    return is_empty and (os.path.isdir(aside) or os.path.getsize(aside) > 0)


def _read(path):
    """The bytes of a file, past the `open` that scripts see; None where there is none."""
    try:
        with io.FileIO(path) as file:
            return file.readall()
    except OSError:
        return None


def _write(path, data, mode="w"):
    """Writes or appends bytes, durably; a file that is written anew is whole or not there."""
    target = path if mode == "a" else path + ".pedl-new"
    with io.FileIO(target, mode) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view):]
        os.fsync(file.fileno())
    if target != path:
        os.rename(target, path)


def _move(source, target):
    """Renames, or copies where the two are on different file systems. Nothing to do where the source is not there."""
    if not os.path.lexists(source):
        return
    if os.path.isdir(target) and not os.path.islink(target):
        # A folder would be moved into it.
        import shutil

        shutil.rmtree(target)
    try:
        os.replace(source, target)
    except OSError:
        import shutil

        shutil.move(source, target)


def _cut(path, length, aside):
    """Cuts a file to its first bytes; the rest is kept in `aside`, unless more is there from a start before."""
    if not os.path.isfile(path) or os.path.getsize(path) <= length:
        return
    rest = _read(path)[length:]
    if len(_read(aside) or b"") < len(rest):
        _write(aside, rest)
    os.truncate(path, length)
