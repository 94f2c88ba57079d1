"""Files of the script in a replay: those that it will read must exist, and those that it makes must not exist too early.

Scripts resume themselves: `if os.path.exists("w.h5"): model.load_weights("w.h5")`. The first time the file did not
exist; in a replay it would. So every file that the trial makes is noted in a ledger before it is made, and the next
start of the trial withdraws it before the script runs (`ledger.py`).

Files from before the trial are kept. If the script removes, moves or links one, changes its mode, appends to it, or writes it
after reading it, the replay sees the file in its first state, and after the replay it is as the script has left it. Caches
(`~/.keras/datasets`) are left alone, so that a download is not made twice. pedl-run sees what Python opens, makes, moves and
removes, also through h5py. It does not see what other C code writes directly.

`noted_changes.py` has what is noted; this file decides, for each thing that the script is about to do, what has to be. The calls
of the script are seen in `file_calls.py`. Two kinds of entries have rules of their own: files that recorded calls wrote
(`saved_files.py`), and folders and links that commands have made (`commanded_entries.py`).
"""
from __future__ import annotations

import os
import stat

from py_hooks import causes, places
from py_hooks.script_io import given_paths
from py_hooks.script_io.commanded_entries import CommandedEntries
from py_hooks.script_io.noted_changes import ABSENT, MAX_MOVED, MAX_WAITING, NotedChanges
from py_hooks.script_io.saved_files import SavedFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _pedl import Trial

    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.inputs import Inputs


class Files(NotedChanges):
    """The files of one trial.

    Args:
        trial: the native trial.

    Attributes:
        inputs: the files that the script reads; None until the first library is intercepted.
        saved: the files that recorded calls wrote.
        commanded: the folders and links that commands have changed.
    """

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial)
        self.inputs: Inputs | None = None
        self.saved = SavedFiles(self)
        self.commanded = CommandedEntries(self)
        # Files that `tempfile` has made for libraries; their names differ each time.
        self._temporaries: set[str] = set()

    def attach(self, calls: Calls) -> None:
        """The first library is intercepted: from now on the files that the script reads are noted, too.

        Args:
            calls: the recorder.
        """
        from py_hooks.script_io.inputs import Inputs

        self.calls = calls
        self.inputs = Inputs()

    # -- before the script does it -----------------------------------------------------------------------------------

    def opening(self, file: object, mode: str) -> None:
        """The script is about to open a file for writing."""
        given = given_paths.absolute(file)
        if given is None or self.is_in_child(given) or (given, mode) in self._settled or len(self._waiting) == MAX_WAITING:
            return
        self.commanded.take(given)
        self._settle(given, mode)
        path = self.followed(given)
        self.commanded.take(path)
        self.written.add(path)
        known: Any = self.noted.get(path, ())
        if path in self._withdrawn:
            self.do_again(path)
        is_appended = "a" in mode
        if "overwritten" in known or (is_appended and "appended" in known):
            return
        try:
            found = os.stat(path)
        except OSError:
            if not known and not os.path.lexists(path):
                self.announce("created", path, given)
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
        if ABSENT.intersection(known) and (found.st_dev, found.st_ino) not in self._inodes:
            return
        is_appended = "a" in mode
        is_kept = is_appended or not set("wx").intersection(mode) or self._was_read(given, path)
        if "removed" in known:
            # It was put back for the replay; the first time it was removed unchanged.
            if is_kept and self._keep(lambda ledger: ledger.keep_again(path, known["removed"], is_copied=True), path):
                self._withdrawn.pop(path)
        elif is_appended:
            self.announce("appended", path, given, bytes=found.st_size)
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
            self.say_cause(causes.OVERWRITES_LARGE(path=places.display_path(path), mebibytes=MAX_ORIGINAL_BYTES >> 20))
        else:
            self.announce("overwritten", path, given, original=original)

    def reading(self, file: object) -> None:
        """The script is about to open a file for reading: it is noted as an input, unless the trial has written it."""
        path = given_paths.absolute(file)
        if path is None or (path, "read") in self._settled:
            return
        if self.saved.has(path):
            self.saved.reading(path)
            return
        self._settle(path, "read")
        found = self.followed(path)
        if found in self.written or self.is_of_trial(found) or found in self.noted:
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
        given = given_paths.absolute(file)
        path = self.entry(given)
        if path is None or os.path.lexists(path) or self.is_in_child(path):
            return False
        self.commanded.take(given, path)
        self.written.add(path)
        if path not in self.noted:
            self.announce(kind, path, given)
        self.forget_paths(kind != "made")
        return True

    def making_temporary(self, file: object) -> None:
        """`tempfile` is about to make a file for a library. Its name differs each time, so it is not noted."""
        if len(self._temporaries) < MAX_WAITING:
            self._temporaries.add(self.entry(given_paths.absolute(file)))

    def removing(self, file: object) -> None:
        """The script is about to remove a file, a link or an empty directory."""
        given = given_paths.absolute(file)
        path = self.entry(given)
        if path is None or not os.path.lexists(path) or self.is_in_child(path):
            return
        if path in self._temporaries:
            self._temporaries.discard(path)
            return
        self.forget_paths(os.path.islink(path))
        known: Any = self.noted.get(path, ())
        if "removed" in known:
            if self._withdrawn.pop(path, None) is not None:
                self._keep(lambda ledger: ledger.keep_again(path, known["removed"]), path)
                self.expect_writes(path)
        elif not ABSENT.intersection(known):
            self._remove(path, given)
            self.expect_writes(path)

    def _remove(self, path: str, given: str) -> None:
        if not self._is_noted("removed", path, given):
            return
        ledger = self.ledger()
        with self._lock:
            held = None if ledger.is_open() else ledger.hold(path)
            if held is not None:
                self.announce("removed", path, given, original=held[0], **held[1])
                return
            if ledger.is_open():
                is_kept = self._keep(lambda ledger: ledger.keep(path, ledger.count), path)
            else:
                is_kept = self._keep(lambda ledger: ledger.keep(path, len(self._waiting), self._keeping(ledger)), path)
            if is_kept:
                self.announce("removed", path, given)

    def _keep_unremoved(self, path: str, number: int) -> None:
        """A removal has failed, and the kept file is the file itself, which is about to be changed: a copy is kept instead."""
        if self._ledger is not None and self._ledger.is_open() and self._ledger.is_kept_itself(path, number):
            self._keep(lambda ledger: ledger.keep(path, number, is_copied=True), path)

    def moving(self, src: object, dst: object) -> None:
        """The script is about to rename something."""
        given, given_target = given_paths.absolute(src), given_paths.absolute(dst)
        source, target = self.entry(given), self.entry(given_target)
        if source is None or target is None or not os.path.lexists(source) or self.is_in_child(target):
            return
        is_folder = given_paths.is_folder(source)
        if not given_paths.can_be_moved(source, target, is_folder):
            return
        self.commanded.take(given_target, target)
        is_new = target not in self.noted and not os.path.lexists(target)
        if is_folder:
            self._move_folder(source, target, is_new)
        else:
            self.removing(source)
        if os.path.lexists(target):
            self.removing(target)
        elif is_new:
            self.announce("created", target, given_target)
        if is_folder and is_new:
            self.whole.add(target)
        self.written.add(target)
        self.forget_paths()

    def _move_folder(self, source: str, target: str, is_new: bool) -> None:
        """The entries of a folder are removed with it; and made with it, if the target was something else before."""
        if ABSENT.intersection(self.noted.get(source, ())) and (is_new or "created" in self.noted.get(target, ())):
            return
        found = self._listed_to_remove(source)
        if not is_new:
            for place, paths in found:
                self._enter_moved(source, target, place, paths)
        self._remove_all(found)

    def removing_folder(self, file: object) -> None:
        """The script is about to remove a folder with all its contents."""
        path = self.entry(given_paths.absolute(file))
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
                self.say_cause(causes.MOVES_MANY(path=places.display_path(folder), count=MAX_MOVED))
                return []
        return found

    def _remove_all(self, found: list[tuple[str, list[str]]]) -> None:
        for place, paths in reversed(found):
            for path in [*paths, place]:
                self.removing(path)

    def _enter_moved(self, source: str, target: str, place: str, paths: list[str]) -> None:
        for path in [place, *paths]:
            moved = target + path[len(source):]
            self.written.add(moved)
            if moved not in self.noted and not os.path.lexists(moved):
                self.announce("made" if path == place else "created", moved, moved)

    def caching(self, file: object) -> None:
        """Other code is about to fill a cache of this name, if it does not exist (`changes.files_of_cache`)."""
        from py_hooks.script_io.changes import files_of_cache

        given = given_paths.absolute(file)
        path = self.entry(given)
        if path is None or ("begun" not in self.noted.get(path, ()) and files_of_cache(path)):
            return
        self.written.add(path)
        self.announce("begun", path, given)

    def changing(self, file: object) -> None:
        """The script is about to change the mode, the owner or the times of a file or a directory."""
        given = given_paths.absolute(file)
        if given is None or self.is_in_child(given) or len(self._waiting) == MAX_WAITING:
            return
        path = self.followed(given)
        known = self.noted.get(path, ())
        if path in self._withdrawn:
            self.do_again(path, ("changed",))
        if "changed" in known or ("removed" in known and path not in self._withdrawn):
            return
        try:
            found = os.stat(path)
        except OSError:
            return
        if not ABSENT.intersection(known) or (found.st_dev, found.st_ino) in self._inodes:
            from py_hooks.script_io.disk import times_of

            self.announce("changed", path, given, mode=stat.S_IMODE(found.st_mode), times=times_of(found))

    # -- files of recorded calls -------------------------------------------------------------------------------------

    def saving(self, file: object) -> None:
        """A recorded call is about to write a file or a folder: it belongs to the checkpoints from now on."""
        path = given_paths.absolute(file)
        if path is not None:
            self.opening(path, "w")
            self.saved.add(path)

    # -- what the script has written ---------------------------------------------------------------------------------

    def writes(self, path: str) -> bool:
        """Whether the script or the trial has written the file at this absolute path."""
        found = self.followed(path)
        return found in self.written or found in self.noted or self.is_of_trial(found)

    def written_paths(self) -> set[str]:
        """The files that the script has written, also in its recorded calls."""
        return {path for path in self.written.union(self.saved.paths()) if not self.is_of_trial(path)}
