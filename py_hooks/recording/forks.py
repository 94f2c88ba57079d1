"""Forked children of the run: pedl-run does nothing in them, and they compute as under python.

This holds from the first instruction of a child, also if it was forked before a framework was imported. A child that trains
reports that in one line. With `--exact` the child is refused, and the run stops. If only the child ended, the parent might wait
for it for ever (a pool of `multiprocessing` does). So the child sends a special signal, and the parent ends with code 77.

The work of a child is in no log. A replay forks it again, on files as the replay has them (a saved model is a stand-in there),
and what the child appends is then in the file twice. So a child that changes a file while the parent trains first notes that in
the directory of the trial, and the parent names the cause before its next checkpoint. Processes that build batches are left out:
they write a cache of items, which no replay builds.
"""
from __future__ import annotations

import os
import sys

from py_hooks import places
from py_hooks.border import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from types import FrameType
    from typing import Any, NoReturn

    from _pedl import Trial

    from py_hooks.recording.ending import Holder

    # The place of a fork, and how often one was made there.
    Fork = tuple[tuple[str, int], int]

# A refused child sends it to the process that trains. If that process cannot handle the signal, the signal kills it, and
# `pedl-run` ends with 77 too (`src/core/trial.rs`, `REFUSED_SIGNAL`).
REFUSED_SIGNAL = 57
_REFUSED = ExitCode.NOT_EXACT

# The children that have reported that they train.
_TOLD: set[int] = set()


class Forks:
    """The forks by which this process descends from the one that trains.

    Attributes:
        descent: place and number of each fork between the process that trains and this one; empty in the former.
    """

    def __init__(self) -> None:
        self.descent: tuple[Fork, ...] = ()
        self._counts: dict[tuple[str, int], int] = {}
        self._fork: Fork | None = None

    def before(self) -> None:
        """A fork is about to be made. Forks are counted by place, because a replay omits those of calls that are answered."""
        place = places.user_place(1)
        number = self._counts[place] = self._counts.get(place, 0) + 1
        self._fork = place, number

    def after_in_child(self) -> None:
        """This process is the child."""
        self.descent += (self._fork,)
        self._counts = {}


class Parent:
    """The process that trains, as its forked children know it.

    Args:
        process: what `boot` knows of it.
    """

    def __init__(self, process: Holder) -> None:
        self._process = process
        self._pid = os.getpid()
        self._begun: bytes | None = None

    def before_fork(self) -> None:
        """With `--exact`: prepares for a child that ends this process."""
        if self._begun is not None or not self._process.trial.exact or os.getpid() != self._pid:
            return
        self._begun = _begin_of(self._pid)
        import _signal

        try:
            _signal.signal(REFUSED_SIGNAL, self._end)
        except ValueError:
            # Another thread makes the fork.
            return

    def _end(self, number: int, frame: FrameType | None) -> NoReturn:
        """A child was refused, and has reported why: the run ends. Other children, which may wait for its work, end too."""
        from py_hooks.recording import ending, recorder

        children = sys.modules.get("multiprocessing.process")
        for child in children.active_children() if children is not None else ():
            child.terminate()
        ending.end(recorder.CALLS or self._process, _REFUSED)

    def refuse(self) -> None:
        """In a child: ends the parent, if it still runs."""
        if self._begun is not None and _begin_of(self._pid) == self._begun:
            os.kill(self._pid, REFUSED_SIGNAL)


class Changes:
    """Files that children change while the parent trains."""

    _FILE = "child_changes.txt"

    def __init__(self) -> None:
        self._shared: mmap.mmap | None = None
        self._has_begun = False
        self._is_left_out = False

    def before_fork(self) -> None:
        """Makes the shared memory in which a child sees whether the parent has begun to train."""
        if self._shared is None:
            import mmap

            self._shared = mmap.mmap(-1, 1)
            self._shared[0] = self._has_begun

    def begin(self) -> None:
        """The parent trains from now on."""
        self._has_begun = True
        if self._shared is not None:
            self._shared[0] = True

    def leave_out(self) -> None:
        """In a child that builds batches: its changes are no cause."""
        self._is_left_out = True

    def note(self, directory: str, path: str | bytes) -> None:
        """In a child: a file is about to be changed.

        Args:
            directory: of the trial.
            path: of the file.
        """
        if self._is_left_out or self._shared is None or not self._shared[0]:
            return
        # One note is enough.
        self._is_left_out = True
        import posix

        try:
            file = posix.open(os.path.join(directory, self._FILE), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except FileNotFoundError:
            return
        try:
            posix.write(file, os.fsencode(path) + b"\n")
        finally:
            posix.close(file)

    def found(self, directory: str) -> str | None:
        """The first file that a child has changed, in this start or an earlier one; None if there is none."""
        import io

        try:
            with io.FileIO(os.path.join(directory, self._FILE)) as file:
                return os.fsdecode(file.read().partition(b"\n")[0])
        except OSError:
            return None


CHANGES = Changes()
PARENT: Parent | None = None


def watch(process: Holder, forks: Forks) -> None:
    """From now on, makes pedl-run inert in every forked child of this process."""
    global PARENT  # noqa: PLW0603 - there is one in a process
    PARENT = Parent(process)

    def before() -> None:
        forks.before()
        PARENT.before_fork()
        CHANGES.before_fork()

    def after_in_child() -> None:
        forks.after_in_child()
        process.trial.fork_child()

    os.register_at_fork(before=before, after_in_child=after_in_child)


def watch_started(module: Any) -> None:
    """A start method of `multiprocessing` other than fork was imported: pedl-run sees nothing of what such a process does.

    Args:
        module: `multiprocessing.popen_spawn_posix` or `popen_forkserver`.
    """
    import functools

    launch = module.Popen._launch

    @functools.wraps(launch)
    def launched(popen: Any, process: Any) -> Any:
        from py_hooks import causes
        from py_hooks.recording import recorder

        calls = recorder.CALLS
        if calls is not None and calls.begun and not calls.is_child:
            calls.exactness.refuse(causes.STARTS_PROCESS(method=popen.method))
        return launch(popen, process)

    module.Popen._launch = launched


def trains(trial: Trial) -> None:
    """A forked child is about to train: reports that, once; or ends the run, if `--exact` was given.

    Args:
        trial: the native trial.
    """
    pid = os.getpid()
    if pid in _TOLD:
        return
    _TOLD.add(pid)
    if not trial.exact:
        trial.log_of_child(
            f"the child process {pid} trains: it is not intercepted, trains as under python, and no checkpoints of it are taken"
        )
        return
    from py_hooks.recording import ending

    file, line = places.user_place(1)
    try:
        ending.flush_streams()
        trial.log_error(
            f"`--exact` was given, and the child process {pid}, which was forked, trains: it is not intercepted\n"
            f"  at {file}:{line}\n  the run was stopped before this call",
            "train in the process that `pedl-run` starts, or run it without `--exact`",
        )
        PARENT.refuse()
    finally:
        os._exit(_REFUSED)


def _begin_of(pid: int) -> bytes | None:
    """The start time of a process, in the units of the kernel; None if there is no such process."""
    import io

    try:
        with io.FileIO(f"/proc/{pid}/stat") as file:
            # The name of the program, in parentheses, may contain anything; the time is the 22nd field.
            return file.read().rpartition(b") ")[2].split()[19]
    except OSError:
        return None
