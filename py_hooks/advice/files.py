"""Files of the script in a replay: what it will read must be there, and what it made must not be there too early.

Scripts resume themselves: `if os.path.exists("w.h5"): model.load_weights("w.h5")`. The first time the file did not
exist; in a replay it would. So everything that the trial makes is noted in a ledger before it is made, and the next
start of the trial withdraws it before the script runs (`ledger.py`).

Files that recorded calls wrote (saved models) also belong to the checkpoint, by content, and so do copies of them: such
a call is muted in a replay, and the checkpoint's version is put where it wrote. The file on disk may be newer than the
checkpoint. Where the checkpoint has none, because the script had removed the file, an empty one stands for it.
What Python reads from such a file is recorded, once for each version: in a replay the file holds it again.

What stood there before the trial stays, and where the script has read it and then writes it, its first content is put
back for the replay. Caches (`~/.keras/datasets`) are let alone: a download is not made twice. What Python opens, makes
and renames is seen, through h5py too; what other C code writes by itself is not.
"""
import _thread
import builtins
import io
import os
import sys

from py_hooks.advice import places

# That a script may make before it trains, and still be resumed exactly.
MAX_WAITING = 100_000

# In the trial directory: what the framework writes on behalf of a trial class, as if its code did.
_WORK = "work"

# Flags of what is not opened to be read.
_NOT_READ = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY | os.O_PATH


class Files:
    """The files of one trial.

    Args:
        trial: the native trial.

    Attributes:
        calls: the recorder; None until the first library is intercepted.
        inputs: the files that the script reads; None until then.
    """

    def __init__(self, trial):
        self.calls = None
        self.inputs = None
        self._trial = trial
        self._ledger = None
        self._written = set()
        # Directories that the trial made, and that hold what is not its own.
        self._left = set()
        # Databases that were opened, and what is to be said of them once the trial has begun.
        self._databases = set()
        self._causes = []
        self._waiting = []
        self._noted = set()
        # Paths of saved files and folders, and of those whose content was recorded since they were last saved.
        self._saved = set()
        self._told = set()
        self._is_copying = False
        # What the checkpoint has of saved folders, by path.
        self._folders = {}
        # A handler of the script's own may open a file while it is held.
        self._lock = _thread.RLock()
        self._pid = os.getpid()
        self._is_installed = False

    # -- before the script ---------------------------------------------------------------------------------------

    def ledger(self):
        """The ledger of the trial, made when it is needed: a script that trains nothing needs none."""
        if self._ledger is None:
            from py_hooks.advice.ledger import Ledger

            self._ledger = Ledger(self._trial.directory, places.STARTED_IN)
        return self._ledger

    def withdraw(self):
        """Takes away what earlier starts of this trial made."""
        if self.ledger().exists():
            self._left = self.ledger().withdraw()

    def put_back(self):
        """Puts back what was withdrawn, where the replay has not made it again."""
        if self._pid == os.getpid():
            self.ledger().put_back(but=self._written)

    # -- the ledger ----------------------------------------------------------------------------------------------

    def install(self, in_place):
        """Notes what the script opens, the directories it makes, and what it puts in the place of something.

        Args:
            in_place: makes what stands in the place of a builtin function (`src/native/in_place.rs`).
        """
        if self._is_installed:
            return
        self._is_installed = True
        builtins.open = io.open = in_place(builtins.open, "io", self._note_open)
        replace_in_os("open", in_place, self._note_os_open)
        replace_in_os("mkdir", in_place, self._note_mkdir)
        for name in ("rename", "replace"):
            replace_in_os(name, in_place, self._note_of_rename(getattr(os, name)))

    def attach(self, calls):
        """The first library is intercepted: from here on what the script reads is noted, too.

        Args:
            calls: the recorder.
        """
        import shutil

        from py_hooks.advice.inputs import Inputs

        self.calls = calls
        self.inputs = Inputs()
        shutil.copyfile = self._note_of_copy(shutil.copyfile)

    def watch_h5py(self, module):
        """HDF5 opens its files in C: `h5py.File` was imported, and they are noted as those of `open`.

        Args:
            module: `h5py._hl.files`. Source: h5py 2.10.0 and 3.16.0, `make_fid`.
        """
        original = module.make_fid

        def make_fid(name, mode, *args, **kwargs):
            if mode == "r":
                self._note_open(name, "r")
            else:
                # Without a mode h5py 2 opens what is there, and else makes it.
                self._note_open(name, "w" if mode in ("w", "w-", "x") else "r+")
            return original(name, mode, *args, **kwargs)

        module.make_fid = make_fid

    def watch_sqlite(self, module, in_place):
        """SQLite opens its files in C: `sqlite3` was imported, and new databases are noted as what `open` makes.

        One that was there before may be shared with others, so it is let alone: with it a run is not exact.

        Args:
            module: `sqlite3.dbapi2`, from which `sqlite3` takes its functions.
            in_place: as of `install`.
        """
        module.connect = in_place(module.connect, "sqlite3", self._note_database)

    # Whatever is wrong with the arguments of a call, the function itself says so: each returns `NotImplemented`.

    def _note_mkdir(self, path=None, *args, dir_fd=None, **kwargs):
        if dir_fd is None and self._is_left(path):
            # As it was when the script first made it, as far as it is known here.
            return None
        if dir_fd is None:
            self.making(path)
        return NotImplemented

    def _is_left(self, directory):
        """Whether a directory is one that the trial made and could not withdraw; told once of each."""
        path = _absolute(directory)
        if path not in self._left or self._pid != os.getpid():
            return False
        self._left.discard(path)
        return os.path.isdir(path)

    def _note_os_open(self, path=None, flags=0, *args, dir_fd=None, **kwargs):
        caller = sys._getframe().f_back
        # Files of `tempfile` have names of their own each time.
        if dir_fd is not None or not isinstance(flags, int) or (caller and caller.f_globals.get("__name__") == "tempfile"):
            return NotImplemented
        if flags & (os.O_CREAT | os.O_TRUNC):
            self.opening(path, "a" if flags & os.O_APPEND and not flags & os.O_TRUNC else "w")
        elif flags & os.O_APPEND:
            self.opening(path, "a")
        elif not flags & _NOT_READ and self.inputs is not None:
            self.reading(path)
        return NotImplemented

    def _note_database(self, database=None, *args, uri=False, **kwargs):
        path, only_reads = database, False
        if uri and isinstance(path, str) and path.startswith("file:"):
            path, _, options = path[len("file:"):].partition("?")
            only_reads = "mode=ro" in options or "immutable=1" in options or "mode=memory" in options
            from urllib.parse import unquote

            path = unquote("/" + path.lstrip("/") if path.startswith("/") else path)
        path = _absolute(path) if path not in ("", ":memory:", b"", b":memory:") else None
        if path is None or only_reads or path in self._noted or path in self._databases:
            return NotImplemented
        if os.path.lexists(path):
            self._share(path)
            return NotImplemented
        self._databases.add(path)
        for ending in ("", "-journal", "-wal", "-shm"):
            self.opening(path + ending, "w")
        return NotImplemented

    def _share(self, path):
        """The script opens a database that was there before, and may write to it."""
        if self._is_of_trial(path) or places.is_in_cache(path) or self._pid != os.getpid():
            return
        self._databases.add(path)
        cause = f"the script opens the database `{places.display_path(path)}`, into which a replay writes again"
        if self.calls is not None and self.calls.begun:
            self._say_inexact(cause)
        else:
            self._causes.append(cause)

    def _say_inexact(self, cause):
        from py_hooks.advice.calls import Unrepeatable

        self.calls.refuse_exactness(Unrepeatable(cause))

    def _note_of_rename(self, original):
        def note(src=None, dst=None, *args, dst_dir_fd=None, **kwargs):
            if dst_dir_fd is not None:
                return NotImplemented
            self.opening(dst, "w")
            source, target = _absolute(src), _absolute(dst)
            moved = [path for path in self._saved if source is not None and _is_in(path, source)]
            if not moved or args or kwargs or target is None or not self._is_scripts():
                return NotImplemented
            original(src, dst)
            for path in moved:
                self._saved.discard(path)
                self._save(target + path[len(source):])
            return None

        return note

    def _note_of_copy(self, original):
        """`shutil.copyfile`, by which its siblings copy: a copy of a saved file is one."""
        import functools

        @functools.wraps(original)
        def copyfile(src, dst, *args, **kwargs):
            path = _absolute(src)
            if path is None or not self._is_saved(path) or not self._is_scripts():
                return original(src, dst, *args, **kwargs)
            self._is_copying = True
            try:
                result = original(src, dst, *args, **kwargs)
            finally:
                self._is_copying = False
            target = _absolute(dst)
            if target is not None:
                self._save(target)
            return result

        return copyfile

    def _note_open(self, file=None, mode="r", *args, **kwargs):
        if not isinstance(mode, str):
            return NotImplemented
        if "r" in mode and "+" in mode and self.inputs is not None:
            self.reading(file)
        if set("wxa+").intersection(mode):
            self.opening(file, mode)
        elif self.inputs is not None:
            self.reading(file)
        return NotImplemented

    def begin(self):
        """The trial has begun: what waited goes to the disk."""
        self.ledger().open()
        self._noted.update(self._ledger.paths())
        waiting, self._waiting = self._waiting, []
        if len(waiting) == MAX_WAITING:
            self.calls.refuse_exactness(f"the script made {MAX_WAITING} files, or more, before it trained")
        for kind, path, more in waiting:
            if path not in self._noted:
                self._note(kind, path, more)
        for cause in self._causes:
            self._say_inexact(cause)

    def opening(self, file, mode):
        """The script is about to open a file for writing."""
        path = _absolute(file)
        if path is None or len(self._waiting) == MAX_WAITING:
            return
        self._written.add(path)
        if path in self._noted:
            return
        if not os.path.lexists(path):
            self._announce("created", path)
        elif "a" in mode and os.path.isfile(path):
            self._announce("appended", path, bytes=os.path.getsize(path))
        elif self.inputs is not None and self.inputs.has_read(path):
            from py_hooks.advice.ledger import content

            original = content(path)
            if original is not None:
                self._announce("overwritten", path, original=original)

    def reading(self, file):
        """The script is about to open a file for reading: noted as an input, unless the trial has written it."""
        path = _absolute(file)
        if path is None:
            return
        if self._saved and self._is_saved(path):
            self.reading_saved(path)
        elif path not in self._written and path not in self._noted and not self._is_of_trial(path):
            self.inputs.reading(path)

    def making(self, directory):
        """The script is about to make a directory."""
        path = _absolute(directory)
        if path is not None and not os.path.lexists(path):
            self._announce("made", path)

    def logging(self, path):
        """A file was begun that grows with the training, and that a replay does not write again."""
        self._written.add(path)
        self._announce("logged", path, is_kept_in_caches=True)

    def restore_logged(self, lengths):
        """Brings back those files, as long as they were at the checkpoint, and forgets later ones.

        Args:
            lengths: by their names in the ledger.

        Returns:
            Their paths.
        """
        restored = self.ledger().restore_logged(lengths)
        self._written.update(restored)
        return restored

    def _announce(self, kind, path, is_kept_in_caches=False, **more):
        if path in self._noted or self._is_of_trial(path) or self._pid != os.getpid():
            return
        is_kept = is_kept_in_caches or self._is_work(path)
        if (not is_kept and places.is_in_cache(path)) or (self.calls is not None and self.calls.in_composite):
            return
        with self._lock:
            if self._ledger is not None and self._ledger.is_open():
                try:
                    self._note(kind, path, more)
                except OSError as error:
                    # Of the ledger's own file, and not of the one that the script opens.
                    from py_hooks.advice.calls import stop_for_file

                    stop_for_file(self.calls, self._ledger.path, error)
            elif len(self._waiting) < MAX_WAITING:
                self._waiting.append((kind, path, more))

    def _note(self, kind, path, more):
        self._noted.add(path)
        self._ledger.add(kind, path, **more)

    def _is_of_trial(self, path):
        return _is_in(path, self._trial.directory) and not self._is_work(path)

    def _is_work(self, path):
        return _is_in(path, os.path.join(self._trial.directory, _WORK))

    # -- files of recorded calls -----------------------------------------------------------------------------------

    def saving(self, file):
        """A recorded call is about to write a file or a folder: it belongs to the checkpoints from here on."""
        path = _absolute(file)
        if path is not None:
            self.opening(path, "w")
            self._saved.add(path)
            self._told.discard(path)

    def saved_paths(self):
        """The saved files that are there: what a checkpoint takes along."""
        found = []
        for path in sorted(self._saved):
            if os.path.isfile(path):
                found.append(path)
            found.extend(os.path.join(path, name) for name in _listed(path)[1])
        return found

    def has_saved(self, path=None):
        """Whether a recorded call has written a file; or the one of this absolute path, or a copy of one."""
        return bool(self._saved) if path is None else bool(self._saved) and self._is_saved(path)

    def writes(self, path):
        """Whether the script has written the file of this absolute path, or the trial has."""
        return path in self._written or path in self._noted or self._is_of_trial(path)

    def written_paths(self):
        """The files that the script has written, in its recorded calls too."""
        return {path for path in self._written.union(self.saved_paths()) if not self._is_of_trial(path)}

    def replace_saved(self, file, is_folder=False):
        """A recorded call that wrote a file or a folder is answered: the checkpoint's version is put there.

        Args:
            file: its path.
            is_folder: what it wrote.
        """
        path = _absolute(file)
        if path is None:
            return
        self._written.add(path)
        self._saved.add(path)
        self._told.discard(path)
        folders, names = self._folders.get(path, ((), ()))
        for name in folders:
            os.makedirs(os.path.join(path, name), exist_ok=True)
        for name in names:
            self.calls.guarded(self._trial.restore_file, os.path.join(path, name))
        if folders or self.calls.guarded(self._trial.restore_file, path) or os.path.lexists(path):
            return
        os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
        if not is_folder:
            io.FileIO(path, "w").close()

    def _save(self, path):
        """Something saved was copied or moved to a path: there it belongs to the checkpoints, too."""
        if self.calls.replaying:
            self.replace_saved(path)
        else:
            self._saved.add(path)
            self._told.discard(path)

    def _is_scripts(self):
        """Whether what is done now is done by the script, in the thread whose calls are recorded."""
        return self.calls is not None and self.calls.begun and self.calls.recordable() and self._pid == os.getpid()

    def _is_saved(self, path):
        return path in self._saved or any(_is_in(path, each) for each in self._saved)

    def reading_saved(self, file):
        """The script is about to read a saved file: what is in it is recorded, or, in a replay, put there."""
        path = _absolute(file)
        if path in self._told or self._is_copying or not self._is_scripts() or not os.path.isfile(path):
            return
        import numpy

        from py_hooks.advice import calls as recorder

        self._told.add(path)
        identity = self.calls.trial.intern(f"content of {places.display_path(path)}")
        is_replay = self.calls.replaying
        content = self.calls.call(recorder.READ, identity, lambda: numpy.fromfile(path, "uint8"))
        if is_replay:
            with io.FileIO(path, "w") as replaced:
                replaced.write(content.tobytes())

    # -- a provider of state ---------------------------------------------------------------------------------------

    def capture(self):
        """What is in saved folders: part of a checkpoint."""
        found = {path: _listed(path) for path in self._saved if os.path.isdir(path)}
        return [], {self.ledger().stored(path): listed for path, listed in found.items()}

    def expect(self, state):
        """The trial has begun.

        Args:
            state: what `capture` returned for the checkpoint that is resumed; empty where there is none.
        """
        self._folders = {self.ledger().resolved(name): listed for name, listed in state.items()}

    def restore(self, tensors, state):
        """The replay is over, and every saved file is as the checkpoint has it."""


def replace_in_os(name, in_place, note):
    """Replaces a function of `os`; what it can do is still said of it there."""
    original = getattr(os, name)
    replaced = in_place(original, "os", note)
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in able:
            able.add(replaced)
    setattr(os, name, replaced)


def _is_in(path, folder):
    return path == folder or path.startswith(folder + os.sep)


def _listed(folder):
    """The folders in a folder, itself among them, and the files; by their paths in it. Empty for what is none."""
    folders, names = [], []
    for place, _, found in os.walk(folder):
        inside = os.path.relpath(place, folder)
        folders.append(inside)
        names.extend(os.path.normpath(os.path.join(inside, name)) for name in sorted(found))
    return [sorted(folders), names]


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
