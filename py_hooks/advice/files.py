"""Files of the script in a replay: what it will read must be there, and what it made must not be there too early.

Scripts resume themselves: `if os.path.exists("w.h5"): model.load_weights("w.h5")`. The first time the file did not
exist; in a replay it would. So everything that the trial makes is noted in a ledger before it is made, and the next
start of the trial withdraws it before the script runs (`ledger.py`).

Files that recorded calls wrote (saved models) also belong to the checkpoint, by content: such a call is muted in a
replay, and the checkpoint's version is put where it wrote. The file on disk may be newer than the checkpoint.

What stood there before the trial stays, and where the script has read it and then writes it, its first content is put
back for the replay. Caches (`~/.keras/datasets`) are let alone: a download is not made twice. What Python opens, makes
and renames is seen; what C code writes by itself is not.
"""
import builtins
import functools
import io
import os
import threading

from py_hooks.advice import calls as recorder
from py_hooks.advice import places
from py_hooks.advice.inputs import Inputs
from py_hooks.advice.ledger import Ledger, content


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
        self._ledger = Ledger(trial.directory)
        self._written = set()
        self._waiting = []
        self._noted = set()
        self._saved = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._open = builtins.open

    # -- before the script ---------------------------------------------------------------------------------------

    def withdraw(self):
        """Takes away what earlier starts of this trial made."""
        if self._ledger.exists():
            self._ledger.withdraw()

    def put_back(self):
        """Puts back what was withdrawn, where the replay has not made it again."""
        if self._pid == os.getpid():
            self._ledger.put_back(but=self._written)

    # -- the ledger ----------------------------------------------------------------------------------------------

    def install(self):
        """Notes what the script opens, the directories it makes, and what it puts in the place of something."""
        builtins.open = io.open = _Noted(self._open, self._note_open)
        os.mkdir = _Noted(os.mkdir, self._note_mkdir)
        os.rename = _Noted(os.rename, self._note_rename)
        os.replace = _Noted(os.replace, self._note_rename)

    # Whatever is wrong with the arguments of a call, the function itself says so.

    def _note_mkdir(self, path=None, *args, dir_fd=None, **kwargs):
        if dir_fd is None:
            self.making(path)

    def _note_rename(self, src=None, dst=None, *args, dst_dir_fd=None, **kwargs):
        if dst_dir_fd is None:
            self.opening(dst, "w")

    def _note_open(self, file=None, mode="r", *args, **kwargs):
        if set("wxa+").intersection(mode if isinstance(mode, str) else ""):
            self.opening(file, mode)
        else:
            self.reading(file)

    def begin(self):
        """The trial has begun: what waited goes to the disk."""
        self._ledger.open()
        self._noted.update(self._ledger.paths())
        waiting, self._waiting = self._waiting, []
        for kind, path, more in waiting:
            if path not in self._noted:
                self._note(kind, path, more)

    def opening(self, file, mode):
        """The script is about to open a file for writing."""
        path = _absolute(file)
        if path is None:
            return
        self._written.add(path)
        if path in self._noted:
            return
        if not os.path.lexists(path):
            self._announce("created", path)
        elif "a" in mode and os.path.isfile(path):
            self._announce("appended", path, bytes=os.path.getsize(path))
        elif self.inputs.has_read(path):
            original = content(path)
            if original is not None:
                self._announce("overwritten", path, original=original)

    def reading(self, file):
        """The script is about to open a file for reading: noted as an input, unless the trial has written it."""
        path = _absolute(file)
        if path is not None and path not in self._written and path not in self._noted and not self._is_of_trial(path):
            self.inputs.reading(path)

    def making(self, directory):
        """The script is about to make a directory."""
        path = _absolute(directory)
        if path is not None and not os.path.lexists(path):
            self._announce("made", path)

    def _announce(self, kind, path, **more):
        if path in self._noted or self._is_of_trial(path) or recorder.CALLS.in_composite or self._pid != os.getpid():
            return
        if places.is_in_cache(path):
            return
        with self._lock:
            if self._ledger.is_open():
                try:
                    self._note(kind, path, more)
                except OSError as error:
                    # Of the ledger's own file, and not of the one that the script opens.
                    recorder.stop_for_file(recorder.CALLS, self._ledger.path, error)
            else:
                self._waiting.append((kind, path, more))

    def _note(self, kind, path, more):
        self._noted.add(path)
        self._ledger.add(kind, path, **more)

    def _is_of_trial(self, path):
        return path == self._trial.directory or path.startswith(self._trial.directory + os.sep)

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
            self._written.add(path)
            self._saved[path] = None
            recorder.CALLS.guarded(self._trial.restore_file, path)


class _Noted:
    """A builtin function with a note before it. Like a builtin, it does not bind as a method."""

    def __init__(self, original, note):
        self._original = original
        self._note = note
        functools.update_wrapper(self, original)

    def __call__(self, *args, **kwargs):
        """Notes the call, and makes it."""
        self._note(*args, **kwargs)
        return self._original(*args, **kwargs)


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
