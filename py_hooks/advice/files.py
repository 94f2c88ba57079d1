"""Files that recorded calls wrote (saved models): they belong to the checkpoint.

The file on disk may be newer than the checkpoint, written between it and the crash. So a checkpoint takes the files
along, by content, and a replay puts its version back where the call that wrote it is answered. A file that is not in
the checkpoint was written after it, and is written again.
"""
import os


class SavedFiles(object):
    """The files that this trial's recorded calls wrote, in order."""

    def __init__(self, trial):
        self._trial = trial
        self._paths = {}

    def written(self, path):
        """Notes that a recorded call wrote a file."""
        if not isinstance(path, str):
            path = os.fspath(path) if hasattr(path, "__fspath__") else None
        if path is not None:
            self._paths[os.path.abspath(path)] = None

    def paths(self):
        """Absolute paths of the files that are there: what a checkpoint takes along."""
        return [path for path in self._paths if os.path.isfile(path)]

    def put_back(self, path):
        """A recorded call that wrote a file is answered: the checkpoint's version takes its place."""
        self.written(path)
        path = os.path.abspath(path)
        if path in self._paths:
            self._trial.restore_file(path)
