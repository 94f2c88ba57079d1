"""Watches calls of `os`, `open`, `shutil`, `h5py`, `sqlite3` and `tempfile`: `Files` learns of a change before it is made.

Functions are replaced before the script runs, and the hook of each is called with its arguments. It says what is about to be
done, and the function itself does it. A hook does nothing more, except for calls whose answers a replay must not leave to the
system: names of temporary files, random numbers of the kernel, and folders of answered commands that are moved.
"""
from __future__ import annotations

import _thread
import os
import sys

from py_hooks import causes, places
from py_hooks.script_io import functions_of_os, given_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from _pedl import InPlace

    from py_hooks.script_io.files import Files

# Positional arguments of `open` after the mode.
_MOST_ARGUMENTS = 6

# Random numbers of the kernel, which a replay reads again (`drawn_files.py`).
DRAWN_PATHS = frozenset(["/dev/urandom", "/dev/random", "/proc/sys/kernel/random/uuid"])

# Functions of `os` that query the file system.
_ASKING = ("stat", "lstat", "access", "readlink", "listdir", "scandir")

# Functions of `os` that run a command (`commands.py`).
_RUNNING = ("system", "posix_spawn", "posix_spawnp")

# Flags that show that a file is not opened only for reading.
_NOT_READ = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY | os.O_PATH


class FileCalls:
    """The calls by which the script of this process uses files.

    Args:
        files: the files of the trial, which learn of the calls.

    Attributes:
        drawn: opens one of `DRAWN_PATHS` for a frame (`drawn_files.opened`, without the clock); None: opens them as any file.
    """

    def __init__(self, files: Files) -> None:
        self.drawn: Callable[[Callable[[str], None], FrameType, str, str, tuple[Any, ...], dict[str, Any]], Any] | None = None
        self._files = files
        # Databases that were opened.
        self._databases: set[str] = set()
        # The last name that `tempfile` gave to the script itself.
        self._temporary: str | None = None
        self._pid = os.getpid()
        self._is_installed = False

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
        for name in (*_ASKING, *_RUNNING):
            functions_of_os.replace(name, in_place)

    def watch_copies(self) -> None:
        """There is a recorder, and there may be saved files: `shutil.copyfile` is replaced, which others of `shutil` call."""
        import shutil

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

            self._temporary = hashlib.sha256(f"{self._files.trial.seed} {next(count)}".encode()).hexdigest()[:8]
            return self._temporary

        module._RandomNameSequence.__next__ = following

    # Each of these returns `NotImplemented`, so that the function itself reports errors in the arguments of a call.

    def _note_open(self, file: Any = None, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mode, str):
            return NotImplemented
        if self.drawn is not None and len(args) <= _MOST_ARGUMENTS and given_paths.text_of(file) in DRAWN_PATHS:
            return self.drawn(self._refuse_drawn, sys._getframe().f_back, given_paths.text_of(file), mode, args, kwargs)
        if "r" in mode and "+" in mode and self._files.inputs is not None:
            self._files.reading(file)
        if set("wxa+").intersection(mode):
            self._files.opening(file, mode)
        elif self._files.inputs is not None:
            self._files.reading(file)
        return NotImplemented

    def _note_os_open(self, path: Any = None, flags: Any = 0, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        if not isinstance(flags, int):
            return NotImplemented
        if self._is_temporary(path, sys._getframe().f_back):
            self._files.making_temporary(path)
            return NotImplemented
        self._look_for_drawn(path, flags)
        path = given_paths.at(path, dir_fd)
        if flags & os.O_TRUNC:
            self._files.opening(path, "w")
        elif flags & os.O_APPEND:
            self._files.opening(path, "a")
        elif flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            self._files.opening(path, "r+")
        elif not flags & _NOT_READ and self._files.inputs is not None and dir_fd is None:
            self._files.reading(path)
        return NotImplemented

    def _look_for_drawn(self, path: Any, flags: int) -> None:
        path = given_paths.text_of(path)
        if path in DRAWN_PATHS and not flags & os.O_WRONLY and places.called_by_user(2):
            self._refuse_drawn(f"`{path}` by `os.open`")

    def _refuse_drawn(self, what: str) -> None:
        self._files.say_cause(causes.KERNEL_NUMBERS(what=what))

    def _is_temporary(self, path: object, caller: FrameType | None) -> bool:
        """Whether `tempfile` opens a file of a library, whose name differs each time."""
        if caller is None or caller.f_globals.get("__name__") != "tempfile":
            return False
        return self._temporary is None or not isinstance(path, str) or self._temporary not in path

    def _note_mkdir(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        if dir_fd is None and self._files.is_left(path):
            # The state in which the script first made it, as far as is known here.
            return None
        self._files.making(given_paths.at(path, dir_fd))
        return NotImplemented

    # A call that will fail changes nothing, and is not noted. Its line would be out of order, and be taken back in that order.

    def _note_remove(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        path = given_paths.absolute(given_paths.at(path, dir_fd))
        if path is not None and not given_paths.is_folder(path):
            self._files.removing(path)
        return NotImplemented

    def _note_rmdir(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        path = given_paths.absolute(given_paths.at(path, dir_fd))
        if path is not None and given_paths.is_empty_folder(path):
            self._files.removing(path)
        return NotImplemented

    def _note_symlink(self, src: Any = None, dst: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        self._files.entering(given_paths.at(dst, dir_fd))
        return NotImplemented

    def _note_node(self, path: Any = None, *args: Any, dir_fd: Any = None, **kwargs: Any) -> Any:
        self._files.entering(given_paths.at(path, dir_fd))
        return NotImplemented

    def _note_link(
        self, src: Any = None, dst: Any = None, *args: Any, src_dir_fd: Any = None, dst_dir_fd: Any = None, **kwargs: Any
    ) -> Any:
        source = self._files.entry(given_paths.absolute(given_paths.at(src, src_dir_fd)))
        if source is not None and self._files.entering(given_paths.at(dst, dst_dir_fd)):
            self._files.expect_writes(source)
        return NotImplemented

    def _note_truncate(self, path: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int):
            self._files.opening(path, "r+")
        return NotImplemented

    def _note_change(
        self, path: Any = None, *args: Any, fd: Any = None, dir_fd: Any = None, follow_symlinks: Any = True, **kwargs: Any
    ) -> Any:
        if isinstance(path, int) or isinstance(fd, int):
            path = given_paths.path_of(path if fd is None else fd)
        if follow_symlinks:
            self._files.changing(given_paths.at(path, dir_fd))
        return NotImplemented

    def _note_of_rename(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def note(
            src: Any = None, dst: Any = None, *args: Any, src_dir_fd: Any = None, dst_dir_fd: Any = None, **kwargs: Any
        ) -> Any:
            self._look_for_timed_log(sys._getframe(1))
            is_there = self._files.commanded.brings_back_moved(given_paths.at(src, src_dir_fd), given_paths.at(dst, dst_dir_fd))
            if not is_there:
                self._files.moving(given_paths.at(src, src_dir_fd), given_paths.at(dst, dst_dir_fd))
            source, target = given_paths.absolute(src), given_paths.absolute(dst)
            moved = self._files.saved.paths_in(source) if source is not None else []
            is_relative = src_dir_fd is not None or dst_dir_fd is not None
            if not moved or is_relative or args or kwargs or target is None or not self._files.is_scripts():
                return None if is_there else NotImplemented
            if not is_there:
                original(src, dst)
            for path in moved:
                self._files.saved.move(path, target + path[len(source):])
            return None

        return note

    def _look_for_timed_log(self, frame: FrameType) -> None:
        """Refuses a log file that a library names by the clock, because a replay reads the clock again."""
        handler = frame.f_locals.get("self") if frame.f_globals.get("__name__") == "logging.handlers" else None
        if handler is not None and hasattr(handler, "rolloverAt"):
            self._files.say_cause(causes.TIMED_LOG())

    def _note_of_copy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Makes the replacement of `shutil.copyfile`: a copy of a saved file is a saved file too."""
        import functools

        @functools.wraps(original)
        def copyfile(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            path = given_paths.absolute(src)
            if path is None or not self._files.saved.has(path) or not self._files.is_scripts():
                return original(src, dst, *args, **kwargs)
            self._files.saved.is_copying = True
            try:
                result = original(src, dst, *args, **kwargs)
            finally:
                self._files.saved.is_copying = False
            target = given_paths.absolute(dst)
            if target is not None:
                self._files.saved.follow(target)
            return result

        return copyfile

    def _note_database(self, database: Any = None, *args: Any, uri: Any = False, **kwargs: Any) -> Any:
        path, only_reads = database, False
        if uri and isinstance(path, str) and path.startswith("file:"):
            path, _, options = path[len("file:"):].partition("?")
            only_reads = "mode=ro" in options or "immutable=1" in options or "mode=memory" in options
            from urllib.parse import unquote

            path = unquote("/" + path.lstrip("/") if path.startswith("/") else path)
        path = given_paths.absolute(path) if path not in ("", ":memory:", b"", b":memory:") else None
        if path is None or only_reads or path in self._files.noted or path in self._databases:
            return NotImplemented
        if os.path.lexists(path):
            self._share(path)
            return NotImplemented
        self._databases.add(path)
        for ending in ("", "-journal", "-wal", "-shm"):
            self._files.opening(path + ending, "w")
        return NotImplemented

    def _share(self, path: str) -> None:
        """The script opens a database that existed before, and may write to it."""
        if self._files.is_in_child(path) or self._files.is_of_trial(path) or places.is_in_cache(path):
            return
        self._databases.add(path)
        self._files.say_cause(causes.DATABASE(path=places.display_path(path)))
