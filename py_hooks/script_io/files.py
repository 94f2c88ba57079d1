"""Files of the script in a replay: those that it will read must exist, and those that it makes must not exist too early.

Scripts resume themselves: `if os.path.exists("w.h5"): model.load_weights("w.h5")`. The first time the file did not
exist; in a replay it would. So every file that the trial makes is noted in a ledger before it is made, and the next
start of the trial withdraws it before the script runs (`ledger.py`).

Files that recorded calls wrote (saved models) also belong to the checkpoint, by content, and so do copies of them. Such a
call is muted in a replay, and the version of the checkpoint is put at the path that it wrote, because the file on disk may
be newer. If the checkpoint has no version, because the script had removed the file, an empty file takes its place.
The data that Python reads from such a file is recorded, once for each version: in a replay the file contains it again.

Files from before the trial are kept. If the script removes, moves or links one, changes its mode, appends to it, or writes it
after reading it, the replay sees the file in its first state, and after the replay it is as the script has left it. Caches
(`~/.keras/datasets`) are left alone, so that a download is not made twice. pedl-run sees what Python opens, makes, moves and
removes, also through h5py. It does not see what other C code writes directly.
"""
from __future__ import annotations

import _thread
import io
import os
import stat
import sys

from py_hooks import causes, places
from py_hooks.recording import call_kinds, forks
from py_hooks.script_io import functions_of_os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    import numpy
    from _pedl import InPlace, Trial

    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.inputs import Inputs
    from py_hooks.script_io.ledger import Held, Ledger, Waiting

# The maximum number of changes that a script may make before it trains, and still be resumed exactly.
MAX_WAITING = 100_000

# In the trial directory: files that the framework writes on behalf of a trial class, treated as files of its code.
_WORK = "work"

# If a folder from before the trial is moved, at most this many of its entries are put back.
MAX_MOVED = 10_000

# Positional arguments of `open` after the mode.
_MOST_ARGUMENTS = 6

_ABSENT = frozenset(["created", "logged", "made"])

# Random numbers of the kernel, which a replay reads again (`drawn_files.py`).
DRAWN_PATHS = frozenset(["/dev/urandom", "/dev/random", "/proc/sys/kernel/random/uuid"])

# Functions of `os` that query the file system.
ASKING = ("stat", "lstat", "access", "readlink", "listdir", "scandir")

# Functions of `os` that run a command (`commands.py`).
RUNNING = ("system", "posix_spawn", "posix_spawnp")

# Flags that show that a file is not opened only for reading.
_NOT_READ = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY | os.O_PATH


class Files:
    """The files of one trial.

    Args:
        trial: the native trial.

    Attributes:
        calls: the recorder; None until the first library is intercepted.
        inputs: the files that the script reads; None until then.
        drawn: opens one of `DRAWN_PATHS` for a frame (`drawn_files.opened`, without the clock); None: opens them as any file.
    """

    def __init__(self, trial: Trial) -> None:
        self.calls: Calls | None = None
        self.inputs: Inputs | None = None
        self.drawn: Callable[[Callable[[str], None], FrameType, str, str, tuple[Any, ...], dict[str, Any]], Any] | None = None
        self._trial = trial
        self._directories = {trial.directory, os.path.realpath(trial.directory)}
        self._ledger: Ledger | None = None
        self._written: set[str] = set()
        # Directories that the trial made, and that contain entries of others.
        self._left: set[str] = set()
        # Databases that were opened, and the causes to report once the trial has begun.
        self._databases: set[str] = set()
        self._causes: list[causes.Told] = []
        self._waiting: list[Waiting] = []
        # The lines of the journal for each path: the number of the line, by its kind.
        self._noted: dict[str, dict[str, int]] = {}
        # Those of them that the replay has not done again.
        self._withdrawn: dict[str, dict[str, int]] = {}
        # Folders that the script has made, and then moved to these paths.
        self._whole: set[str] = set()
        # Files from before the trial that have, or had, another name: `(device, inode)`.
        self._inodes: set[tuple[int, int]] = set()
        # The real paths of folders, by their paths.
        self._folders_found: dict[str, str] = {}
        # Files that `tempfile` has made for libraries; their names differ each time.
        self._temporaries: set[str] = set()
        # The last name that `tempfile` gave to the script itself.
        self._temporary: str | None = None
        # Paths and modes of opened files for which everything is noted.
        self._settled: set[tuple[str, str]] = set()
        # The folder that is used as `originals/` until the trial begins.
        self._kept: str | None = None
        # Paths of saved files and folders, and of those whose content was recorded since the last save.
        self._saved: set[str] = set()
        self._told: set[str] = set()
        self._is_copying = False
        # Entries that commands have made, changed or removed, and the script has not used yet: the state before, by path.
        self._commanded: dict[str, list[Any] | None] = {}
        # Folders that answered commands have made. The files that commands had put into them are missing.
        self._answered: set[str] = set()
        # The contents of saved folders in the checkpoint, by path.
        self._folders: dict[str, list[list[str]]] = {}
        # A signal handler of the script may open a file while this thread holds it.
        self._lock = _thread.RLock()
        self._pid = os.getpid()
        self._is_installed = False

    # -- before the script ---------------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """The ledger of the trial, created when it is needed: a script that trains nothing needs none."""
        if self._ledger is None:
            from py_hooks.script_io.ledger import Ledger

            self._ledger = Ledger(self._trial.directory, places.STARTED_IN)
        return self._ledger

    def withdraw(self) -> None:
        """Takes back what earlier starts of this trial made and changed."""
        ledger = self.ledger()
        if ledger.exists():
            self._left = ledger.withdraw()
            ledger.open()
            for kind, path, number in ledger.lines():
                self._noted.setdefault(path, {}).setdefault(kind, number)
            self._withdrawn = dict(self._noted)
            for path in ledger.foreign():
                self._say_cause(causes.FOREIGN_FILE(path=places.display_path(path)))
            for path in ledger.given_up():
                self._say_cause(causes.CHANGED_SINCE(path=places.display_path(path)))

    def put_back(self) -> None:
        """Makes the changes again that were taken back, if the replay has not made them."""
        if self._pid != os.getpid():
            return
        self.ledger().put_back(but=self._written)
        self.note_seen()

    def note_seen(self) -> None:
        """The process ends: changes from now on are those of others."""
        if self._ledger is not None and self._ledger.is_open() and self._pid == os.getpid():
            try:
                self._ledger.note_seen()
            except OSError:
                # The disk is full, or the trial directory was removed. The script has ended, so the error is ignored.
                return

    def bring_back(self, file: object) -> None:
        """Restores a file as it was left. The replay cannot make it again, because another process had made its source."""
        path = self._entry(_absolute(file))
        if path is not None and path not in self._written:
            self.ledger().put_back(only=path)
            self._written.add(path)

    # -- the ledger ----------------------------------------------------------------------------------------------

    def install(self, in_place: type[InPlace]) -> None:
        """Notes the files that the script opens, the directories that it makes, and the entries that it replaces.

        Args:
            in_place: makes the object that replaces a builtin function (`src/native/in_place.rs`).
        """
        if self._is_installed:
            return
        self._is_installed = True
        functions_of_os.replace_open(in_place, self._note_open)
        functions_of_os.replace("open", in_place, self._note_os_open)
        functions_of_os.replace("mkdir", in_place, self._note_mkdir)
        for name in ("rename", "replace"):
            functions_of_os.replace(name, in_place, self._note_of_rename(getattr(os, name)))
        for name in ("remove", "unlink"):
            functions_of_os.replace(name, in_place, self._note_remove)
        functions_of_os.replace("rmdir", in_place, self._note_rmdir)
        functions_of_os.replace("symlink", in_place, self._note_symlink)
        functions_of_os.replace("link", in_place, self._note_link)
        functions_of_os.replace("truncate", in_place, self._note_truncate)
        for name in ("mkfifo", "mknod"):
            functions_of_os.replace(name, in_place, self._note_node)
        for name in ("chmod", "chown", "utime", "fchmod", "fchown"):
            functions_of_os.replace(name, in_place, self._note_change)
        # The answers of these are noted once there is a recorder (`observations.py`, `commands.py`).
        for name in (*ASKING, *RUNNING):
            functions_of_os.replace(name, in_place)

    def attach(self, calls: Calls) -> None:
        """The first library is intercepted: from now on the files that the script reads are noted, too.

        Args:
            calls: the recorder.
        """
        import shutil

        from py_hooks.script_io.inputs import Inputs

        self.calls = calls
        self.inputs = Inputs()
        shutil.copyfile = self._note_of_copy(shutil.copyfile)

    def watch_h5py(self, module: Any) -> None:
        """HDF5 opens its files in C: `h5py.File` was imported, and its files are noted as those of `open`.

        Args:
            module: `h5py._hl.files`. Source: h5py 2.10.0 and 3.16.0, `make_fid`.
        """
        original = module.make_fid

        def make_fid(name: Any, mode: Any, *args: Any, **kwargs: Any) -> Any:
            if mode == "r":
                self._note_open(name, "r")
            else:
                # Without a mode h5py 2 opens an existing file, or else makes one.
                self._note_open(name, "w" if mode in ("w", "w-", "x") else "r+")
            return original(name, mode, *args, **kwargs)

        module.make_fid = make_fid

    def watch_sqlite(self, module: Any, in_place: type[InPlace]) -> None:
        """SQLite opens its files in C: `sqlite3` was imported, and new databases are noted as files that `open` makes.

        An existing database may be shared with others, so it is left alone, and the run is not exact.

        Args:
            module: `sqlite3.dbapi2`, from which `sqlite3` takes its functions.
            in_place: as for `install`.
        """
        module.connect = in_place(module.connect, "sqlite3", self._note_database)

    def watch_tempfile(self, module: Any) -> None:
        """`tempfile` was imported: in a replay, entries that the script itself makes with it have the same names as at first.

        Args:
            module: `tempfile`. Source: Python 3.7.16 and 3.13.0, `_RandomNameSequence`.
        """
        original = module._RandomNameSequence.__next__
        import itertools

        thread, count = _thread.get_ident(), itertools.count()

        def following(sequence: Any) -> str:
            frame = sys._getframe(1)
            while frame is not None and frame.f_globals is vars(module):
                frame = frame.f_back
            is_user = frame is not None and places.is_user_file(frame.f_code.co_filename)
            if not is_user or _thread.get_ident() != thread or os.getpid() != self._pid:
                return original(sequence)
            import hashlib

            self._temporary = hashlib.sha256(f"{self._trial.seed} {next(count)}".encode()).hexdigest()[:8]
            return self._temporary

        module._RandomNameSequence.__next__ = following

    # Each of these returns `NotImplemented`, so that the function itself reports errors in the arguments of a call.

    def _note_mkdir(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        if dir_fd is None and self._is_left(path):
            # The state in which the script first made it, as far as is known here.
            return None
        self.making(_at(path, dir_fd))
        return NotImplemented

    # A call that will fail changes nothing, and is not noted. Its line would be out of order, and be taken back in that order.

    def _note_remove(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        path = _absolute(_at(path, dir_fd))
        if path is not None and not _is_folder(path):
            self.removing(path)
        return NotImplemented

    def _note_rmdir(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        path = _absolute(_at(path, dir_fd))
        if path is not None and _is_empty_folder(path):
            self.removing(path)
        return NotImplemented

    def _note_symlink(self, src: Any = None, dst: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        self.entering(_at(dst, dir_fd))
        return NotImplemented

    def _note_node(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        self.entering(_at(path, dir_fd))
        return NotImplemented

    def _note_link(
        self, src: Any = None, dst: Any = None, *args: Any, src_dir_fd: Any = None, dst_dir_fd: Any = None, **kwargs: Any
    ) -> Any:
        source = self._entry(_absolute(_at(src, src_dir_fd)))
        if source is not None and self.entering(_at(dst, dst_dir_fd)):
            self._expect_writes(source)
        return NotImplemented

    def _note_truncate(self, path: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int):
            self.opening(path, "r+")
        return NotImplemented

    def _note_change(
        self, path: Any = None, *args: Any, fd: Any = None, dir_fd: Any = None, follow_symlinks: Any = True, **kwargs: Any
    ) -> Any:
        if isinstance(path, int) or isinstance(fd, int):
            path = _path_of(path if fd is None else fd)
        if follow_symlinks:
            self.changing(_at(path, dir_fd))
        return NotImplemented

    def _is_left(self, directory: object) -> bool:
        """Whether a directory is one that the trial made and could not withdraw. True only once for each."""
        path = _absolute(directory)
        if path not in self._left or self._pid != os.getpid():
            return False
        self._left.discard(path)
        return os.path.isdir(path)

    def _note_os_open(self, path: Any = None, flags: Any = 0, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        if not isinstance(flags, int):
            return NotImplemented
        if self._is_temporary(path, sys._getframe().f_back):
            if len(self._temporaries) < MAX_WAITING:
                self._temporaries.add(self._entry(_absolute(path)))
            return NotImplemented
        self._look_for_drawn(path, flags)
        path = _at(path, dir_fd)
        if flags & os.O_TRUNC:
            self.opening(path, "w")
        elif flags & os.O_APPEND:
            self.opening(path, "a")
        elif flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            self.opening(path, "r+")
        elif not flags & _NOT_READ and self.inputs is not None and dir_fd is None:
            self.reading(path)
        return NotImplemented

    def _look_for_drawn(self, path: Any, flags: int) -> None:
        path = _text_of(path)
        if path in DRAWN_PATHS and not flags & os.O_WRONLY and places.called_by_user(2):
            self._refuse_drawn(f"`{path}` by `os.open`")

    def _refuse_drawn(self, what: str) -> None:
        self._say_cause(causes.KERNEL_NUMBERS(what=what))

    def _is_temporary(self, path: object, caller: FrameType | None) -> bool:
        """Whether `tempfile` opens a file of a library, whose name differs each time."""
        if caller is None or caller.f_globals.get("__name__") != "tempfile":
            return False
        return self._temporary is None or not isinstance(path, str) or self._temporary not in path

    def _note_database(self, database: Any = None, *args: Any, uri: Any = False, **kwargs: Any) -> Any:
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

    def _share(self, path: str) -> None:
        """The script opens a database that existed before, and may write to it."""
        if self._is_in_child(path) or self.is_of_trial(path) or places.is_in_cache(path):
            return
        self._databases.add(path)
        self._say_cause(causes.DATABASE(path=places.display_path(path)))

    def _note_of_rename(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def note(
            src: Any = None, dst: Any = None, *args: Any, src_dir_fd: Any = None, dst_dir_fd: Any = None, **kwargs: Any
        ) -> Any:
            self._look_for_timed_log(sys._getframe(1))
            is_there = self._brings_back_moved(_at(src, src_dir_fd), _at(dst, dst_dir_fd))
            if not is_there:
                self.moving(_at(src, src_dir_fd), _at(dst, dst_dir_fd))
            source, target = _absolute(src), _absolute(dst)
            moved = [path for path in self._saved if source is not None and _is_in(path, source)]
            is_relative = src_dir_fd is not None or dst_dir_fd is not None
            if not moved or is_relative or args or kwargs or target is None or not self._is_scripts():
                return None if is_there else NotImplemented
            if not is_there:
                original(src, dst)
            for path in moved:
                self._saved.discard(path)
                self._save(target + path[len(source):])
            return None

        return note

    def _look_for_timed_log(self, frame: FrameType) -> None:
        """Refuses a log file that a library names by the clock, because a replay reads the clock again."""
        handler = frame.f_locals.get("self") if frame.f_globals.get("__name__") == "logging.handlers" else None
        if handler is not None and hasattr(handler, "rolloverAt"):
            self._say_cause(causes.TIMED_LOG())

    def _note_of_copy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`shutil.copyfile`, which other functions of `shutil` call: a copy of a saved file is a saved file too."""
        import functools

        @functools.wraps(original)
        def copyfile(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
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

    def _note_open(self, file: Any = None, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mode, str):
            return NotImplemented
        if self.drawn is not None and len(args) <= _MOST_ARGUMENTS and _text_of(file) in DRAWN_PATHS:
            return self.drawn(self._refuse_drawn, sys._getframe().f_back, _text_of(file), mode, args, kwargs)
        if "r" in mode and "+" in mode and self.inputs is not None:
            self.reading(file)
        if set("wxa+").intersection(mode):
            self.opening(file, mode)
        elif self.inputs is not None:
            self.reading(file)
        return NotImplemented

    def begin(self) -> None:
        """The trial has begun: waiting lines are written to the disk."""
        waiting: list[Any]
        waiting, self._waiting = self._waiting, []
        if len(waiting) == MAX_WAITING:
            self.calls.exactness.refuse(causes.MANY_FILES(count=MAX_WAITING))
        ledger = self.ledger()
        if not ledger.is_open():
            ledger.open()
        if waiting:
            ledger.adopt(self._kept, waiting)
            self._kept = None
        waiting, self._causes = self._causes, []
        for cause in waiting:
            self.calls.exactness.refuse(cause)

    def opening(self, file: object, mode: str) -> None:
        """The script is about to open a file for writing."""
        given = _absolute(file)
        if given is None or self._is_in_child(given) or (given, mode) in self._settled or len(self._waiting) == MAX_WAITING:
            return
        self._take_commanded(given)
        self._settle(given, mode)
        path = self._followed(given)
        self._take_commanded(path)
        self._written.add(path)
        known: Any = self._noted.get(path, ())
        if path in self._withdrawn:
            self._do_again(path)
        is_appended = "a" in mode
        if "overwritten" in known or (is_appended and "appended" in known):
            return
        try:
            found = os.stat(path)
        except OSError:
            if not known and not os.path.lexists(path):
                self._announce("created", path, given)
            return
        if stat.S_ISREG(found.st_mode):
            self._opening_what_is_there(given, path, mode, found, known)

    def _opening_what_is_there(self, given: str, path: str, mode: str, found: os.stat_result, known: Any) -> None:
        """A regular file is about to be opened for writing.

        Args:
            given: its path, as the script gives it.
            path: the same without links.
            mode: as for `open`.
            found: its `stat`.
            known: its lines in the journal.
        """
        if "removed" in known and path not in self._withdrawn:
            self._keep_unremoved(path, known["removed"])
            return
        if _ABSENT.intersection(known) and (found.st_dev, found.st_ino) not in self._inodes:
            return
        is_appended = "a" in mode
        is_kept = is_appended or not set("wx").intersection(mode) or self._was_read(given, path)
        if "removed" in known:
            # It was put back for the replay; the first time it was removed unchanged.
            if is_kept and self._keep(lambda ledger: ledger.keep_again(path, known["removed"], is_copied=True), path):
                self._withdrawn.pop(path)
        elif is_appended:
            self._announce("appended", path, given, bytes=found.st_size)
        elif is_kept:
            self._keep_content(path, given)

    def _was_read(self, *paths: str) -> bool:
        return self.inputs is not None and any(self.inputs.has_read(path) for path in paths)

    def _keep_content(self, path: str, given: str) -> None:
        from py_hooks.script_io.ledger import MAX_ORIGINAL_BYTES, content

        if not self._is_noted("overwritten", path, given):
            return
        original = content(path)
        if original is None:
            self._say_cause(causes.OVERWRITES_LARGE(path=places.display_path(path), mebibytes=MAX_ORIGINAL_BYTES >> 20))
        else:
            self._announce("overwritten", path, given, original=original)

    def reading(self, file: object) -> None:
        """The script is about to open a file for reading: it is noted as an input, unless the trial has written it."""
        path = _absolute(file)
        if path is None or (path, "read") in self._settled:
            return
        if self._saved and self._is_saved(path):
            self.reading_saved(path)
            return
        self._settle(path, "read")
        found = self._followed(path)
        if found in self._written or self.is_of_trial(found) or found in self._noted:
            return
        self.inputs.reading(path)

    def making(self, directory: object) -> None:
        """The script is about to make a directory."""
        self.entering(directory, "made")

    def entering(self, file: object, kind: str = "created") -> bool:
        """The script is about to make a link or a directory.

        Returns:
            Whether nothing exists at the path yet.
        """
        given = _absolute(file)
        path = self._entry(given)
        if path is None or os.path.lexists(path) or self._is_in_child(path):
            return False
        self._take_commanded(given, path)
        self._written.add(path)
        if path not in self._noted:
            self._announce(kind, path, given)
        self._forget_paths(kind != "made")
        return True

    def removing(self, file: object) -> None:
        """The script is about to remove a file, a link or an empty directory."""
        given = _absolute(file)
        path = self._entry(given)
        if path is None or not os.path.lexists(path) or self._is_in_child(path):
            return
        if path in self._temporaries:
            self._temporaries.discard(path)
            return
        self._forget_paths(os.path.islink(path))
        known: Any = self._noted.get(path, ())
        if "removed" in known:
            if self._withdrawn.pop(path, None) is not None:
                self._keep(lambda ledger: ledger.keep_again(path, known["removed"]), path)
                self._expect_writes(path)
        elif not _ABSENT.intersection(known):
            self._remove(path, given)
            self._expect_writes(path)

    def _remove(self, path: str, given: str) -> None:
        if not self._is_noted("removed", path, given):
            return
        ledger = self.ledger()
        with self._lock:
            held = None if ledger.is_open() else ledger.hold(path)
            if held is not None:
                self._announce("removed", path, given, original=held[0], **held[1])
                return
            if ledger.is_open():
                is_kept = self._keep(lambda ledger: ledger.keep(path, ledger.count), path)
            else:
                is_kept = self._keep(lambda ledger: ledger.keep(path, len(self._waiting), self._keeping(ledger)), path)
            if is_kept:
                self._announce("removed", path, given)

    def _keep(self, keep: Callable[[Ledger], None], path: str) -> bool:
        """Keeps an entry from before the trial that the script removes or moves. Returns whether that succeeded."""
        from py_hooks.script_io.ledger import TooLarge

        try:
            keep(self.ledger())
            return True
        except TooLarge as error:
            why = str(error)
        except OSError as error:
            why = error.strerror or "it cannot be kept"
        self._say_cause(causes.REMOVES(path=places.display_path(path), why=why))
        return False

    def _keep_unremoved(self, path: str, number: int) -> None:
        """A removal has failed, and the kept file is the file itself, which is about to be changed: a copy is kept instead."""
        if self._ledger is not None and self._ledger.is_open() and self._ledger.is_kept_itself(path, number):
            self._keep(lambda ledger: ledger.keep(path, number, is_copied=True), path)

    def _say_cause(self, cause: causes.Told) -> None:
        """Reports why the run cannot be resumed exactly, once the trial has begun."""
        if self.calls is None or not self.calls.begun:
            self._causes.append(cause)
        else:
            self.calls.exactness.refuse(cause)

    def _keeping(self, ledger: Ledger) -> str:
        if self._kept is None:
            import atexit

            self._kept = ledger.make_keeping()
            atexit.register(self._drop_kept)
        return self._kept

    def _drop_kept(self) -> None:
        """The script has trained nothing: there is no trial for which to keep what it removed."""
        if self._kept is not None and self._pid == os.getpid():
            self.ledger().drop_keeping(self._kept)
            self._kept = None

    def moving(self, src: object, dst: object) -> None:
        """The script is about to rename something."""
        given, given_target = _absolute(src), _absolute(dst)
        source, target = self._entry(given), self._entry(given_target)
        if source is None or target is None or not os.path.lexists(source) or self._is_in_child(target):
            return
        is_folder = _is_folder(source)
        if not _can_be_moved(source, target, is_folder):
            return
        self._take_commanded(given_target, target)
        is_new = target not in self._noted and not os.path.lexists(target)
        if is_folder:
            self._move_folder(source, target, is_new)
        else:
            self.removing(source)
        if os.path.lexists(target):
            self.removing(target)
        elif is_new:
            self._announce("created", target, given_target)
        if is_folder and is_new:
            self._whole.add(target)
        self._written.add(target)
        self._forget_paths()

    def _move_folder(self, source: str, target: str, is_new: bool) -> None:
        """The entries of a folder are removed with it; and made with it, if the target was something else before."""
        if _ABSENT.intersection(self._noted.get(source, ())) and (is_new or "created" in self._noted.get(target, ())):
            return
        found = self._listed_to_remove(source)
        if not is_new:
            for place, paths in found:
                self._enter_moved(source, target, place, paths)
        self._remove_all(found)

    def removing_folder(self, file: object) -> None:
        """The script is about to remove a folder with all its contents."""
        path = self._entry(_absolute(file))
        if path is not None and os.path.isdir(path) and not os.path.islink(path):
            self._remove_all(self._listed_to_remove(path))

    def _listed_to_remove(self, folder: str) -> list[tuple[str, list[str]]]:
        """`(folder, paths in it)` of a folder and of its subfolders, the outer ones first."""
        found: list[tuple[str, list[str]]]
        found, count = [], 0
        for place, folders, names in os.walk(folder):
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            found.append((place, [os.path.join(place, name) for name in names + links]))
            count += len(found[-1][1]) + 1
            if count > MAX_MOVED:
                self._say_cause(causes.MOVES_MANY(path=places.display_path(folder), count=MAX_MOVED))
                return []
        return found

    def _remove_all(self, found: list[tuple[str, list[str]]]) -> None:
        for place, paths in reversed(found):
            for path in [*paths, place]:
                self.removing(path)

    def _enter_moved(self, source: str, target: str, place: str, paths: list[str]) -> None:
        for path in [place, *paths]:
            moved = target + path[len(source):]
            self._written.add(moved)
            if moved not in self._noted and not os.path.lexists(moved):
                self._announce("made" if path == place else "created", moved, moved)

    # -- folders and links that commands have made (`folders.py`) ---------------------------------------------------

    def note_commanded(self, changes: dict[str, list[Any]], is_answered: bool = False) -> None:
        """A command has made, changed or removed folders and links.

        Args:
            changes: the state before and the state now, by path.
            is_answered: whether the command is answered: it did so when it was run.
        """
        if changes:
            self._forget_paths()
        if not is_answered:
            self._answered.clear()
        around: set[str] | None = None
        for path, (before, after) in changes.items():
            if path in self._noted or len(self._commanded) >= MAX_WAITING:
                continue
            if before is not None and after is not None and before[0] == after[0] == "folder":
                # A changed mode is kept.
                continue
            self._commanded.setdefault(path, before)
            if before is not None and not is_answered:
                around = self._around_written() if around is None else around
                if path in around:
                    self._take_commanded(path)

    def _around_written(self) -> set[str]:
        around: set[str] = set()
        for path in self._written:
            folder = path
            while folder not in around and folder != os.path.dirname(folder):
                around.add(folder)
                folder = os.path.dirname(folder)
        return around

    def _take_commanded(self, *paths: str) -> None:
        """The script uses entries that its commands have made or removed: they become the script's."""
        if not self._commanded or self._pid != os.getpid():
            return
        for path in paths:
            parts = path.split(os.sep)
            for end in range(2, len(parts) + 1):
                entry = self._entry(os.sep.join(parts[:end]))
                if entry in self._commanded:
                    self._note_taken(entry, self._commanded.pop(entry, None))

    def _note_taken(self, path: str, before: list[Any] | None) -> None:
        self._written.add(path)
        if path in self._noted:
            return
        if before is None:
            if os.path.lexists(path):
                self._announce("made" if _is_folder(path) else "created", path, path)
        elif not self._is_in_own(path):
            kind, value = before
            original, more = ((value,), {}) if kind == "link" else ((), {"mode": value})
            self._announce("removed", path, path, original=original, **more)
        if os.path.islink(path):
            self.ledger().note_link(path, os.readlink(path))

    def note_answered(self, path: str) -> None:
        """An answered command has made a folder or a link, or that exists already."""
        self._answered.add(path)
        self._written.add(path)

    def _brings_back_moved(self, src: object, dst: object) -> bool:
        """Whether a folder is moved that an answered command has made. If so, the target is restored as it was left."""
        if not self._answered or not self._is_scripts() or (self.calls.exactness.causes and not self.calls.is_past):
            return False
        source, target = self._entry(_absolute(src)), self._entry(_absolute(dst))
        if source is None or target is None or os.path.lexists(target) or not _is_folder(source):
            return False
        if any(_is_in(each, source) for each in self._answered):
            self.bring_back(target)
        if not os.path.lexists(target):
            return False
        self._whole.add(target)
        self._answered.add(target)
        self._remove_known(source)
        return True

    def _remove_known(self, folder: str) -> None:
        """Removes a folder of the script with the script's entries in it."""
        for place, _, names in os.walk(folder, topdown=False):
            for path in (os.path.join(place, name) for name in names):
                if self.is_known(path):
                    os.unlink(path)
            if self.is_known(place):
                self.remove_empty(place)

    def _is_in_own(self, path: str) -> bool:
        """Whether a path is in a folder that the script has made."""
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            if _ABSENT.intersection(self._noted.get(path, ())):
                return True
        return False

    def commanded_paths(self) -> list[str]:
        """Paths that commands have made, changed or removed, and the script has not used yet."""
        return list(self._commanded)

    def is_known(self, path: str) -> bool:
        """Whether an entry is the script's."""
        return path in self._noted or path in self._written

    def remove_empty(self, folder: str) -> None:
        """Removes a folder, if it is empty. Other entries in it belong to commands, or to others."""
        try:
            os.rmdir(folder)
        except OSError:
            # If the script makes it again, `mkdir` succeeds as if there were none.
            self._left.add(folder)

    def caching(self, file: object) -> None:
        """Other code is about to fill a cache of this name, if it does not exist (`ledger.files_of_cache`)."""
        from py_hooks.script_io.changes import files_of_cache

        given = _absolute(file)
        path = self._entry(given)
        if path is None or ("begun" not in self._noted.get(path, ()) and files_of_cache(path)):
            return
        self._written.add(path)
        self._announce("begun", path, given)

    def changing(self, file: object) -> None:
        """The script is about to change the mode, the owner or the times of a file or a directory."""
        given = _absolute(file)
        if given is None or self._is_in_child(given) or len(self._waiting) == MAX_WAITING:
            return
        path = self._followed(given)
        known = self._noted.get(path, ())
        if path in self._withdrawn:
            self._do_again(path, ("changed",))
        if "changed" in known or ("removed" in known and path not in self._withdrawn):
            return
        try:
            found = os.stat(path)
        except OSError:
            return
        if not _ABSENT.intersection(known) or (found.st_dev, found.st_ino) in self._inodes:
            from py_hooks.script_io.disk import times_of

            self._announce("changed", path, given, mode=stat.S_IMODE(found.st_mode), times=times_of(found))

    def _do_again(self, path: str, kinds: tuple[str, ...] = ("appended", "overwritten")) -> None:
        """The replay makes changes again that were taken back."""
        known = self._withdrawn.get(path, {}) if self._pid == os.getpid() else {}
        for kind in set(kinds).intersection(known):
            self.ledger().again(kind, known[kind])

    def _expect_writes(self, path: str) -> None:
        """A file from before the trial has another name, under which it may be written."""
        try:
            found = os.lstat(path)
        except OSError:
            return
        if stat.S_ISREG(found.st_mode) and not _ABSENT.intersection(self._noted.get(path, ())):
            self._inodes.add((found.st_dev, found.st_ino))

    def _settle(self, path: str, mode: str) -> None:
        """A file that is opened again in the same mode needs no new note, until entries of directories change."""
        if len(self._settled) >= MAX_WAITING:
            self._settled.clear()
        self._settled.add((path, mode))

    def _forget_paths(self, are_links_changed: bool = True) -> None:
        if are_links_changed:
            self._folders_found.clear()
        self._settled.clear()

    def _entry(self, path: str | None) -> str | None:
        """The path of an entry in its real directory."""
        if path is None:
            return None
        folder, name = os.path.split(path)
        real = self._folders_found.get(folder)
        if real is None:
            if len(self._folders_found) > MAX_MOVED:
                self._folders_found.clear()
            real = self._folders_found[folder] = os.path.realpath(folder)
        return os.path.join(real, name)

    def _followed(self, path: str) -> str:
        """The path of the file that a path leads to."""
        path = self._entry(path)
        return os.path.realpath(path) if os.path.islink(path) else path

    def logging(self, path: str) -> None:
        """A file was created that grows with the training, and that a replay does not write again."""
        self._written.add(path)
        self._announce("logged", path, path, is_kept_in_caches=True)

    def restore_logged(self, lengths: dict[str, int]) -> list[str]:
        """Restores those files, with their lengths at the checkpoint, and drops later ones.

        Args:
            lengths: by their names in the ledger.

        Returns:
            Their paths.
        """
        restored = self.ledger().restore_logged(lengths)
        self._written.update(restored)
        return restored

    def _is_noted(self, kind: str, path: str, given: str, is_kept_in_caches: bool = False) -> bool:
        """Whether a change is to be written to the journal."""
        if kind in self._noted.get(path, ()) or self.is_of_trial(path) or self._pid != os.getpid():
            return False
        if kind in _ABSENT and self._whole and any(_is_in(path, folder) and path != folder for folder in self._whole):
            return False
        is_kept = is_kept_in_caches or self._is_work(path)
        return not ((not is_kept and places.is_in_cache(given)) or (self.calls is not None and self.calls.in_composite))

    def _announce(
        self, kind: str, path: str, given: str, is_kept_in_caches: bool = False, original: Held | None = None, **more: Any
    ) -> None:
        if not self._is_noted(kind, path, given, is_kept_in_caches):
            return
        with self._lock:
            if self._ledger is not None and self._ledger.is_open():
                try:
                    number = self._ledger.add(kind, path, original=original, **more)
                except OSError as error:
                    # The error is of the ledger file, and not of the file that the script opens.
                    from py_hooks.recording.ending import stop_for_file

                    stop_for_file(self.calls, self._ledger.path, error)
            elif len(self._waiting) < MAX_WAITING:
                number = len(self._waiting)
                self._waiting.append((kind, path, original, more))
            else:
                return
            self._noted.setdefault(path, {})[kind] = number

    def _is_in_child(self, path: str) -> bool:
        """Whether this is a forked child, whose changes are in no journal. While the parent trains, a change becomes a cause."""
        if self._pid == os.getpid():
            return False
        # That folder is for sockets of `multiprocessing`.
        is_of_python = os.path.basename(path).startswith("pymp-")
        if not (is_of_python or self.is_of_trial(path) or places.is_in_cache(path)):
            forks.CHANGES.note(self._trial.directory, path)
        return True

    def look_at_children(self) -> None:
        """Names the cause if a child of the script has changed a file while this process trained, or an earlier start."""
        path = forks.CHANGES.found(self._trial.directory)
        if path is not None:
            self._say_cause(causes.CHILD_CHANGES_FILES(path=places.display_path(path)))

    def is_of_trial(self, path: str) -> bool:
        """Whether a path is in the trial directory, and not written for a trial class."""
        return any(_is_in(path, directory) for directory in self._directories) and not self._is_work(path)

    def _is_work(self, path: str) -> bool:
        return any(_is_in(path, os.path.join(directory, _WORK)) for directory in self._directories)

    # -- files of recorded calls -----------------------------------------------------------------------------------

    def saving(self, file: object) -> None:
        """A recorded call is about to write a file or a folder: it belongs to the checkpoints from now on."""
        path = _absolute(file)
        if path is not None:
            self.opening(path, "w")
            self._saved.add(path)
            self._settled.clear()
            self._told.discard(path)

    def saved_paths(self) -> list[str]:
        """The saved files that exist: a checkpoint contains them."""
        found = []
        for path in sorted(self._saved):
            if os.path.isfile(path):
                found.append(path)
            found.extend(os.path.join(path, name) for name in _listed(path)[1])
        return found

    def has_saved(self, path: str | None = None) -> bool:
        """Whether a recorded call has written any file; with a path, whether that is such a file, or a copy of one."""
        return bool(self._saved) if path is None else bool(self._saved) and self._is_saved(path)

    def writes(self, path: str) -> bool:
        """Whether the script or the trial has written the file at this absolute path."""
        found = self._followed(path)
        return found in self._written or found in self._noted or self.is_of_trial(found)

    def written_paths(self) -> set[str]:
        """The files that the script has written, also in its recorded calls."""
        return {path for path in self._written.union(self.saved_paths()) if not self.is_of_trial(path)}

    def replace_saved(self, file: object, is_folder: bool = False) -> None:
        """A recorded call that wrote a file or a folder is answered: the version of the checkpoint is put there.

        Args:
            file: its path.
            is_folder: whether the call wrote a folder.
        """
        path = _absolute(file)
        if path is None:
            return
        changed = self._followed(path)
        self._written.update((path, changed))
        self._do_again(changed)
        self._settled.clear()
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

    def _save(self, path: str) -> None:
        """A saved file was copied or moved to this path: the checkpoints contain it there, too."""
        self._settled.clear()
        if self.calls.is_past:
            self.replace_saved(path)
        else:
            self._saved.add(path)
            self._told.discard(path)

    def _is_scripts(self) -> bool:
        """Whether the script acts now, in the thread whose calls are recorded."""
        return self.calls is not None and self.calls.begun and self.calls.recordable() and self._pid == os.getpid()

    def _is_saved(self, path: str) -> bool:
        return path in self._saved or any(_is_in(path, each) for each in self._saved)

    def reading_saved(self, file: object) -> None:
        """The script is about to read a saved file: its content is recorded, or, in a replay, put there."""
        path = _absolute(file)
        if path in self._told or self._is_copying or not self._is_scripts() or not os.path.isfile(path):
            return
        import numpy


        self._told.add(path)
        identity = self.calls.trial.intern(f"content of {places.display_path(path)}")

        def put(content: numpy.ndarray) -> None:
            with io.FileIO(path, "w") as replaced:
                replaced.write(content.tobytes())

        self.calls.perform(call_kinds.READ, identity, lambda: numpy.fromfile(path, "uint8"), put=put)

    # -- a provider of state ---------------------------------------------------------------------------------------

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, list[list[str]]]]:
        """The contents of saved folders: part of a checkpoint."""
        found = {path: _listed(path) for path in self._saved if os.path.isdir(path)}
        return [], {self.ledger().stored(path): listed for path, listed in found.items()}

    def expect(self, state: dict[str, list[list[str]]]) -> None:
        """The trial has begun.

        Args:
            state: what `capture` returned for the checkpoint that is resumed; empty if there is none.
        """
        self._folders = {self.ledger().resolved(name): listed for name, listed in state.items()}

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """The replay is over, and every saved file is as the checkpoint has it."""


def _can_be_moved(source: str, target: str, is_folder: bool) -> bool:
    """Whether a rename will change anything."""
    if _is_in(target, source) or not os.path.isdir(os.path.dirname(target)):
        return False
    if not os.path.lexists(target):
        return True
    # A rename between two names of one file does nothing.
    is_same = os.path.samestat(os.lstat(source), os.lstat(target))
    return not is_same and _is_folder(target) == is_folder and (not is_folder or _is_empty_folder(target))


def _at(path: Any, dir_fd: object) -> Any:
    """A path that is relative to an open directory."""
    if dir_fd is None or not isinstance(dir_fd, int):
        return path
    folder, name = _path_of(dir_fd), _absolute(path)
    if folder is None or name is None:
        return None
    return os.path.join(folder, os.fsdecode(path))


def _path_of(descriptor: int) -> str | None:
    """The path of an open descriptor; None if it has none."""
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return path if path.startswith("/") and os.path.lexists(path) else None


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _is_empty_folder(path: str) -> bool:
    try:
        return _is_folder(path) and not os.listdir(path)
    except OSError:
        return False


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _listed(folder: str) -> list[list[str]]:
    """The folders in a folder, including itself, and the files, by their paths in it. Empty if it is no folder."""
    folders: list[str]
    names: list[str]
    folders, names = [], []
    for place, _, found in os.walk(folder):
        inside = os.path.relpath(place, folder)
        folders.append(inside)
        names.extend(os.path.normpath(os.path.join(inside, name)) for name in sorted(found))
    return [sorted(folders), names]


def _text_of(file: Any) -> str | None:
    """A file argument as text, None for a descriptor or a stream."""
    if isinstance(file, bytes):
        return os.fsdecode(file)
    if hasattr(file, "__fspath__"):
        file = os.fspath(file)
    return file if isinstance(file, str) else None


def _absolute(file: Any) -> str | None:
    """The absolute path of a file argument; None for a descriptor, a stream, a device, or a file of /proc or /sys."""
    file = _text_of(file)
    if file is None:
        return None
    path = os.path.abspath(file)
    return None if path.startswith(("/dev/", "/proc/", "/sys/")) and not path.startswith("/dev/shm/") else path
