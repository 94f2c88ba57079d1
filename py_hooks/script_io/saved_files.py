"""Files that recorded calls wrote (saved models): they belong to the checkpoint, by content, and so do copies of them.

Such a call is muted in a replay, and the version of the checkpoint is put at the path that it wrote, because the file on disk may
be newer. If the checkpoint has no version, because the script had removed the file, an empty file takes its place.
The data that Python reads from such a file is recorded, once for each version: in a replay the file contains it again.
"""
from __future__ import annotations

import io
import os

from py_hooks import places
from py_hooks.recording import call_kinds
from py_hooks.script_io import given_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy

    from py_hooks.script_io.noted_changes import NotedChanges


class SavedFiles:
    """The saved files of one trial, a provider of state.

    Args:
        notes: the changes of the script.

    Attributes:
        is_copying: whether the script copies a saved file: that it is read for this is not recorded.
    """

    def __init__(self, notes: NotedChanges) -> None:
        self.is_copying = False
        self._notes = notes
        # Paths of saved files and folders, and of those whose content was recorded since the last save.
        self._saved: set[str] = set()
        self._told: set[str] = set()
        # The contents of saved folders in the checkpoint, by path.
        self._folders: dict[str, list[list[str]]] = {}

    def paths(self) -> list[str]:
        """The saved files that exist: a checkpoint contains them."""
        found = []
        for path in sorted(self._saved):
            if os.path.isfile(path):
                found.append(path)
            found.extend(os.path.join(path, name) for name in given_paths.listed(path)[1])
        return found

    def add(self, path: str) -> None:
        """A recorded call writes a file or a folder at this absolute path: it belongs to the checkpoints from now on."""
        self._saved.add(path)
        self._notes.forget_settled()
        self._told.discard(path)

    def has(self, path: str | None = None) -> bool:
        """Whether a recorded call has written any file; with a path, whether that is such a file, or a copy of one."""
        return bool(self._saved) if path is None else bool(self._saved) and self._is_saved(path)

    def replace(self, file: object, is_folder: bool = False) -> None:
        """A recorded call that wrote a file or a folder is answered: the version of the checkpoint is put there.

        Args:
            file: its path.
            is_folder: whether the call wrote a folder.
        """
        path = given_paths.absolute(file)
        if path is None:
            return
        changed = self._notes.followed(path)
        self._notes.written.update((path, changed))
        self._notes.do_again(changed)
        self._notes.forget_settled()
        self._saved.add(path)
        self._told.discard(path)
        folders, names = self._folders.get(path, ((), ()))
        for name in folders:
            os.makedirs(os.path.join(path, name), exist_ok=True)
        for name in names:
            self._notes.calls.guarded(self._notes.trial.restore_file, os.path.join(path, name))
        if folders or self._notes.calls.guarded(self._notes.trial.restore_file, path) or os.path.lexists(path):
            return
        os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
        if not is_folder:
            io.FileIO(path, "w").close()

    def follow(self, path: str) -> None:
        """A saved file was copied or moved to this path: the checkpoints contain it there, too."""
        self._notes.forget_settled()
        if self._notes.calls.is_past:
            self.replace(path)
        else:
            self._saved.add(path)
            self._told.discard(path)

    def move(self, path: str, target: str) -> None:
        """A saved file was moved to another path."""
        self._saved.discard(path)
        self.follow(target)

    def paths_in(self, folder: str) -> list[str]:
        """The saved files and folders at this path and below it."""
        return [path for path in self._saved if given_paths.is_in(path, folder)]

    def _is_saved(self, path: str) -> bool:
        return path in self._saved or any(given_paths.is_in(path, each) for each in self._saved)

    def reading(self, file: object) -> None:
        """The script is about to read a saved file: its content is recorded, or, in a replay, put there."""
        path = given_paths.absolute(file)
        if path in self._told or self.is_copying or not self._notes.is_scripts() or not os.path.isfile(path):
            return
        import numpy

        self._told.add(path)
        identity = self._notes.calls.trial.intern(f"content of {places.display_path(path)}")

        def put(content: numpy.ndarray) -> None:
            with io.FileIO(path, "w") as replaced:
                replaced.write(content.tobytes())

        self._notes.calls.perform(call_kinds.READ, identity, lambda: numpy.fromfile(path, "uint8"), put=put)

    # -- a provider of state -----------------------------------------------------------------------------------------

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, list[list[str]]]]:
        """The contents of saved folders: part of a checkpoint."""
        found = {path: given_paths.listed(path) for path in self._saved if os.path.isdir(path)}
        return [], {self._notes.ledger().stored(path): listed for path, listed in found.items()}

    def expect(self, state: dict[str, list[list[str]]]) -> None:
        """The trial has begun.

        Args:
            state: what `capture` returned for the checkpoint that is resumed; empty if there is none.
        """
        self._folders = {self._notes.ledger().resolved(name): listed for name, listed in state.items()}

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """The replay is over, and every saved file is as the checkpoint has it."""
