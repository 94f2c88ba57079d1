"""Files of the script in a replay: what it will read must be there, and what it made must not be there too early.

Scripts resume themselves: `if os.path.exists("w.h5"): model.load_weights("w.h5")`. The first time the file did not
exist; in a replay it would. So everything that the trial made is noted in a ledger before it is made, and the next
start of the trial withdraws it before the script runs:

- a file that the trial created is moved into the trial directory (`aside/`); where the replay does not create it
  again, it goes back when the process ends, or when the trial is started next;
- a file that the trial appended to is cut back to its length before; what is cut off is kept in `aside/` too, and goes
  back where the replay does not append to the file;
- a directory that the trial made is removed if nothing is left in it.

Files that recorded calls wrote (saved models) also belong to the checkpoint, by content: such a call is muted in a
replay, and the checkpoint's version is put where it wrote. The file on disk may be newer than the checkpoint.

What stood there before the trial stays. Files written by C code are seen where Python opens or saves them.

The ledger, `files.jsonl`, is a line for each: `{"created": path}`, `{"appended": path, "bytes": n}` or
`{"made": path}`. If we die between a line and what it announces, the line names something that does not exist, which
withdrawing ignores; a move is one rename, and a file that is back already is left alone.
"""
import atexit
import builtins
import io
import json
import os
import threading

from py_hooks.advice import calls as recorder
from py_hooks.advice.inputs import Inputs

_LEDGER = "files.jsonl"
_ASIDE = "aside"


class Files:
    """The files of one trial.

    Args:
        trial: the native trial.

    Attributes:
        inputs: the files that the script reads.
    """

    def __init__(self, trial):
        self.inputs = Inputs()
        self._trial = trial
        self._written = set()
        self._ledger = None
        self._waiting = []
        self._noted = set()
        self._saved = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open = builtins.open

    # -- before the script ---------------------------------------------------------------------------------------

    def withdraw(self):
        """Takes away what earlier starts of this trial made. Nothing is lost, whenever we die."""
        ledger = os.path.join(self._trial.directory, _LEDGER)
        if not os.path.exists(ledger):
            return
        self.put_back()
        aside = os.path.join(self._trial.directory, _ASIDE)
        if not os.path.isdir(aside):
            os.mkdir(aside)
        entries = _read_ledger(ledger)
        for number, entry in enumerate(entries):
            if "created" in entry:
                _move(entry["created"], os.path.join(aside, str(number)))
            elif "appended" in entry:
                _cut(entry["appended"], entry["bytes"], os.path.join(aside, str(number)))
        for entry in reversed(entries):
            if "made" in entry:
                _remove_if_empty(entry["made"])
        atexit.register(self.put_back)

    def put_back(self):
        """Puts back what was withdrawn, where the replay has not made it again."""
        if self._pid != os.getpid():
            return
        aside = os.path.join(self._trial.directory, _ASIDE)
        if not os.path.isdir(aside):
            return
        entries = _read_ledger(os.path.join(self._trial.directory, _LEDGER))
        for name in sorted(os.listdir(aside)):
            entry = entries[int(name)] if name.isdigit() and int(name) < len(entries) else {}
            if "created" in entry and not os.path.lexists(entry["created"]):
                _move(os.path.join(aside, name), entry["created"])
            elif "appended" in entry:
                _append(os.path.join(aside, name), entry["appended"], entry["bytes"])

    # -- the ledger ----------------------------------------------------------------------------------------------

    def install(self):
        """Notes what the script opens for writing, and the directories it makes."""
        mkdir = os.mkdir
        files = self

        class Open:
            """`open`, with a note before it creates or appends. Like a builtin, it does not bind as a method."""

            __doc__ = self._open.__doc__
            __name__ = __qualname__ = "open"

            def __call__(self, file, mode="r", *args, **kwargs):
                if set("wxa+").intersection(mode if isinstance(mode, str) else ""):
                    files.opening(file, mode)
                else:
                    files.reading(file)
                return files._open(file, mode, *args, **kwargs)

        class MakeDirectory:
            """`os.mkdir`, with a note before it."""

            __doc__ = mkdir.__doc__
            __name__ = __qualname__ = "mkdir"

            def __call__(self, path, *args, **kwargs):
                files.making(path)
                return mkdir(path, *args, **kwargs)

        builtins.open = io.open = Open()
        os.mkdir = MakeDirectory()

    def begin(self, directory, replaying):
        """The trial has begun: what waited goes to the disk. A new record begins a new ledger where none is replayed."""
        path = os.path.join(directory, _LEDGER)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._ledger = os.open(path, flags, 0o666)
        self._noted.update(next(iter(entry.values())) for entry in _read_ledger(path))
        self._written.update(self._noted)
        waiting, self._waiting = self._waiting, []
        for path, entry in waiting:
            if path not in self._noted:
                self._note(path, entry)

    def opening(self, file, mode):
        """The script is about to open a file for writing."""
        path = _absolute(file)
        if path is None:
            return
        self._written.add(path)
        if not os.path.lexists(path):
            self._announce(path, {"created": path})
        elif "a" in mode and os.path.isfile(path):
            self._announce(path, {"appended": path, "bytes": os.path.getsize(path)})

    def reading(self, file):
        """The script is about to open a file for reading: noted as an input, unless the trial has written it."""
        path = _absolute(file)
        if path is not None and path not in self._written and not self._is_of_trial(path):
            self.inputs.reading(path)

    def making(self, directory):
        """The script is about to make a directory."""
        path = _absolute(directory)
        if path is not None and not os.path.lexists(path):
            self._announce(path, {"made": path})

    def _announce(self, path, entry):
        if path in self._noted or self._is_of_trial(path) or recorder.CALLS.in_composite or self._pid != os.getpid():
            return
        with self._lock:
            if self._ledger is None:
                self._waiting.append((path, entry))
            else:
                self._note(path, entry)

    def _is_of_trial(self, path):
        return path == self._trial.directory or path.startswith(self._trial.directory + os.sep)

    def _note(self, path, entry):
        self._noted.add(path)
        os.write(self._ledger, (json.dumps(entry) + "\n").encode())

    # -- files of recorded calls -----------------------------------------------------------------------------------

    def saving(self, file):
        """A recorded call is about to write a file: it belongs to the checkpoints from here on."""
        path = _absolute(file)
        if path is not None:
            self.opening(path, "w")
            self._saved[path] = None

    def saved_paths(self):
        """The saved files that are there: what a checkpoint takes along."""
        return [path for path in self._saved if os.path.isfile(path)]

    def replace_saved(self, file):
        """A recorded call that wrote a file is answered: the checkpoint's version is put there."""
        path = _absolute(file)
        if path is not None:
            self._saved[path] = None
            self._trial.restore_file(path)


def _absolute(file):
    """The absolute path of a file argument, None for a descriptor or a stream. Devices and /proc are nobody's files."""
    if isinstance(file, bytes):
        file = os.fsdecode(file)
    elif hasattr(file, "__fspath__"):
        file = os.fspath(file)
    if not isinstance(file, str):
        return None
    path = os.path.abspath(file)
    return None if path.startswith(("/dev/", "/proc/", "/sys/")) else path


def _read_ledger(path):
    """The entries of a ledger; a torn last line is none."""
    try:
        with io.FileIO(path) as ledger:
            lines = ledger.read().split(b"\n")[:-1]
    except OSError:
        return []
    return [json.loads(line.decode()) for line in lines]


def _move(source, target):
    """Renames, or copies where the two are on different file systems. Nothing to do where the source is not there."""
    if not os.path.lexists(source):
        return
    try:
        os.replace(source, target)
    except OSError:
        import shutil

        shutil.move(source, target)


def _cut(path, length, aside):
    """Cuts a file to its first bytes; the rest is kept in `aside`, unless more is there from a start before."""
    if not os.path.isfile(path) or os.path.getsize(path) <= length:
        return
    with io.FileIO(path) as file:
        file.seek(length)
        rest = file.readall()
    if not os.path.exists(aside) or os.path.getsize(aside) < len(rest):
        with io.FileIO(aside + ".new", "w") as kept:
            kept.write(rest)
        os.replace(aside + ".new", aside)
    os.truncate(path, length)


def _append(aside, path, length):
    """Puts the rest of a file back where the file is as it was cut."""
    if os.path.isfile(path) and os.path.getsize(path) == length:
        with io.FileIO(aside) as kept, io.FileIO(path, "a") as file:
            file.write(kept.readall())


def _remove_if_empty(path):
    if os.path.isdir(path) and not os.listdir(path):
        os.rmdir(path)
