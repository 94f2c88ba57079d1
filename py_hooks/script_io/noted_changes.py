"""The changes that the script makes to files, as noted: in the ledger, or until the trial begins in memory.

A change is announced before it is made. Each path has at most one line of each kind for as long as the process runs. A script
that trains nothing has no trial directory, so its lines wait, and the entries that it removes are held in memory or kept beside
the future directory (`Ledger.make_keeping`). When the trial begins, all of them go into the ledger in one step.

A forked child has no ledger: its changes are not noted, and become a cause if the parent trains at that time.
"""
from __future__ import annotations

import _thread
import os
import stat

from py_hooks import causes, places
from py_hooks.recording import forks
from py_hooks.script_io import given_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from _pedl import Trial

    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.ledger import Held, Ledger, Waiting

# The maximum number of changes that a script may make before it trains, and still be resumed exactly.
MAX_WAITING = 100_000

# If a folder from before the trial is moved, at most this many of its entries are put back.
MAX_MOVED = 10_000

# Kinds of lines for what did not exist before.
ABSENT = frozenset(["created", "logged", "made"])

# In the trial directory: files that the framework writes on behalf of a trial class, treated as files of its code.
_WORK = "work"


class NotedChanges:
    """The noted changes of one trial.

    Args:
        trial: the native trial.

    Attributes:
        calls: the recorder; None until the first library is intercepted.
        trial: the native trial.
        written: the paths that the script of this process has written, made or brought back.
        noted: the lines of the journal for each path: the number of the line, by its kind.
        whole: folders that the script has made, and then moved to these paths.
    """

    def __init__(self, trial: Trial) -> None:
        self.calls: Calls | None = None
        self.trial = trial
        self.written: set[str] = set()
        self.noted: dict[str, dict[str, int]] = {}
        self.whole: set[str] = set()
        self._directories = {trial.directory, os.path.realpath(trial.directory)}
        self._ledger: Ledger | None = None
        # Directories that the trial made, and that contain entries of others.
        self._left: set[str] = set()
        # Causes to report once the trial has begun.
        self._causes: list[causes.Told] = []
        self._waiting: list[Waiting] = []
        # The lines that the replay has not done again, as in `noted`.
        self._withdrawn: dict[str, dict[str, int]] = {}
        # Files from before the trial that have, or had, another name: `(device, inode)`.
        self._inodes: set[tuple[int, int]] = set()
        # The real paths of folders, by their paths.
        self._folders_found: dict[str, str] = {}
        # Paths and modes of opened files for which everything is noted.
        self._settled: set[tuple[str, str]] = set()
        # The folder that is used as `originals/` until the trial begins.
        self._kept: str | None = None
        # A signal handler of the script may open a file while this thread holds it.
        self._lock = _thread.RLock()
        self._pid = os.getpid()

    # -- earlier starts, and the end of this one ---------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """The ledger of the trial, created when it is needed: a script that trains nothing needs none."""
        if self._ledger is None:
            from py_hooks.script_io.ledger import Ledger

            self._ledger = Ledger(self.trial.directory, places.STARTED_IN)
        return self._ledger

    def withdraw(self) -> None:
        """Takes back what earlier starts of this trial made and changed."""
        ledger = self.ledger()
        if ledger.exists():
            self._left = ledger.withdraw()
            ledger.open()
            for kind, path, number in ledger.lines():
                self.noted.setdefault(path, {}).setdefault(kind, number)
            self._withdrawn = dict(self.noted)
            for path in ledger.foreign():
                self.say_cause(causes.FOREIGN_FILE(path=places.display_path(path)))
            for path in ledger.given_up():
                self.say_cause(causes.CHANGED_SINCE(path=places.display_path(path)))

    def put_back(self) -> None:
        """Makes the changes again that were taken back, if the replay has not made them."""
        if self._pid != os.getpid():
            return
        self.ledger().put_back(but=self.written)
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
        path = self.entry(given_paths.absolute(file))
        if path is not None and path not in self.written:
            self.ledger().put_back(only=path)
            self.written.add(path)

    def is_left(self, directory: object) -> bool:
        """Whether a directory is one that the trial made and could not withdraw. True only once for each."""
        path = given_paths.absolute(directory)
        if path not in self._left or self._pid != os.getpid():
            return False
        self._left.discard(path)
        return os.path.isdir(path)

    def remove_empty(self, folder: str) -> None:
        """Removes a folder, if it is empty. Other entries in it belong to commands, or to others."""
        try:
            os.rmdir(folder)
        except OSError:
            # If the script makes it again, `mkdir` succeeds as if there were none.
            self._left.add(folder)

    # -- the journal -------------------------------------------------------------------------------------------------

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

    def announce(
        self, kind: str, path: str, given: str, is_kept_in_caches: bool = False, original: Held | None = None, **more: Any
    ) -> None:
        """Notes that a change is about to be made, if it is one that a line is needed for.

        Args:
            kind: of the line (`ledger.py`).
            path: of the entry, in its real directory.
            given: the path as the script gives it.
            is_kept_in_caches: whether a change in a cache folder is noted, too.
            original: as for `Ledger.add`.
            more: other members of the line.
        """
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
            self.noted.setdefault(path, {})[kind] = number

    def _is_noted(self, kind: str, path: str, given: str, is_kept_in_caches: bool = False) -> bool:
        """Whether a change is to be written to the journal."""
        if kind in self.noted.get(path, ()) or self.is_of_trial(path) or self._pid != os.getpid():
            return False
        if kind in ABSENT and self.whole and any(given_paths.is_in(path, folder) and path != folder for folder in self.whole):
            return False
        is_kept = is_kept_in_caches or self._is_work(path)
        return not ((not is_kept and places.is_in_cache(given)) or (self.calls is not None and self.calls.in_composite))

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
        self.say_cause(causes.REMOVES(path=places.display_path(path), why=why))
        return False

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

    def do_again(self, path: str, kinds: tuple[str, ...] = ("appended", "overwritten")) -> None:
        """The replay makes changes again that were taken back."""
        known = self._withdrawn.get(path, {}) if self._pid == os.getpid() else {}
        for kind in set(kinds).intersection(known):
            self.ledger().again(kind, known[kind])

    def logging(self, path: str) -> None:
        """A file was created that grows with the training, and that a replay does not write again."""
        self.written.add(path)
        self.announce("logged", path, path, is_kept_in_caches=True)

    def restore_logged(self, lengths: dict[str, int]) -> list[str]:
        """Restores those files, with their lengths at the checkpoint, and drops later ones.

        Args:
            lengths: by their names in the ledger.

        Returns:
            Their paths.
        """
        restored = self.ledger().restore_logged(lengths)
        self.written.update(restored)
        return restored

    def is_known(self, path: str) -> bool:
        """Whether an entry is the script's."""
        return path in self.noted or path in self.written

    # -- causes ------------------------------------------------------------------------------------------------------

    def say_cause(self, cause: causes.Told) -> None:
        """Reports why the run cannot be resumed exactly, once the trial has begun."""
        if self.calls is None or not self.calls.begun:
            self._causes.append(cause)
        else:
            self.calls.exactness.refuse(cause)

    def is_in_child(self, path: str) -> bool:
        """Whether this is a forked child, whose changes are in no journal. While the parent trains, a change becomes a cause."""
        if self._pid == os.getpid():
            return False
        # That folder is for sockets of `multiprocessing`.
        is_of_python = os.path.basename(path).startswith("pymp-")
        if not (is_of_python or self.is_of_trial(path) or places.is_in_cache(path)):
            forks.CHANGES.note(self.trial.directory, path)
        return True

    def look_at_children(self) -> None:
        """Names the cause if a child of the script has changed a file while this process trained, or an earlier start."""
        path = forks.CHANGES.found(self.trial.directory)
        if path is not None:
            self.say_cause(causes.CHILD_CHANGES_FILES(path=places.display_path(path)))

    def is_scripts(self) -> bool:
        """Whether the script acts now, in the thread whose calls are recorded."""
        return self.calls is not None and self.calls.begun and self.calls.recordable() and self._pid == os.getpid()

    # -- paths -------------------------------------------------------------------------------------------------------

    def is_of_trial(self, path: str) -> bool:
        """Whether a path is in the trial directory, and not written for a trial class."""
        return any(given_paths.is_in(path, directory) for directory in self._directories) and not self._is_work(path)

    def _is_work(self, path: str) -> bool:
        return any(given_paths.is_in(path, os.path.join(directory, _WORK)) for directory in self._directories)

    def entry(self, path: str | None) -> str | None:
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

    def followed(self, path: str) -> str:
        """The path of the file that a path leads to."""
        path = self.entry(path)
        return os.path.realpath(path) if os.path.islink(path) else path

    def expect_writes(self, path: str) -> None:
        """A file from before the trial has another name, under which it may be written."""
        try:
            found = os.lstat(path)
        except OSError:
            return
        if stat.S_ISREG(found.st_mode) and not ABSENT.intersection(self.noted.get(path, ())):
            self._inodes.add((found.st_dev, found.st_ino))

    def _settle(self, path: str, mode: str) -> None:
        """A file that is opened again in the same mode needs no new note, until entries of directories change."""
        if len(self._settled) >= MAX_WAITING:
            self._settled.clear()
        self._settled.add((path, mode))

    def forget_paths(self, are_links_changed: bool = True) -> None:
        """Entries of directories are about to change: what is known about paths may not hold then."""
        if are_links_changed:
            self._folders_found.clear()
        self._settled.clear()

    def forget_settled(self) -> None:
        """Files that are opened again need a new note."""
        self._settled.clear()
