"""Recorded calls: made and written down the first time, answered from `calls.log` in a replay.

After a crash the script runs again from its first line. The code of the script really runs; the calls that this module
intercepts are answered from the log, up to the call in which the checkpoint was taken. There the saved state is restored,
and from then on every call is made.

Invariants

- Only the main thread's calls are recorded, and only outermost ones: what a recorded call does inside (`depth` > 0)
  belongs to it.
- A record is only needed up to a checkpoint. So what a call returned is kept as it is (on its device, unconverted)
  and is converted and appended at the next boundary, in one go. The result of a call for one batch is converted at once
  (`compute_functions.py`), because the script may change it.
- Nothing is answered by guess. A call that differs from its record in kind, identity, place in the script, random
  numbers drawn or arguments ends the process with exit code 76 and a message that shows both sides.
- A call that traced (ran the user's Python in it) runs again in a replay, because tracing creates variables and
  draws seeds. Its result is discarded. If nothing was skipped before the call, its result must equal the record.

The replay is decided in `src/core/replay`. Beside this file: how calls are made and answered (`performing.py`,
`compute_functions.py`), what is due after a call (`boundary.py`), checkpoints (`checkpoints.py`), signals that ask for the
end (`preemption.py`), reasons why a resume may not be exact (`exactness.py`), the end of the process (`ending.py`).
"""
from __future__ import annotations

import contextlib
import json
import os
import sys
import threading

from py_hooks import causes, places
from py_hooks.border import ExitCode, State
from py_hooks.recording import ending, lifecycle
from py_hooks.recording.boundary import Boundary
from py_hooks.recording.checkpoints import Checkpoints
from py_hooks.recording.exactness import Exactness
from py_hooks.recording.lifecycle import Lifecycle
from py_hooks.recording.performing import Performing
from py_hooks.recording.preemption import Preemption
from py_hooks.recording.sites import Sites
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from _pedl import Error, Trial

    from py_hooks.random_numbers.random_streams import Streams
    from py_hooks.ranks.agreement import Ranks
    from py_hooks.script_io.files import Files

    class Steps(Protocol):
        """What calls the callbacks of a script around its steps (`step_callbacks.py`)."""

        is_in_fit: bool

        def call_begins(self, kind: int) -> object:
            """A call of this kind is about to be made, or answered."""

        def step_ended(self) -> object:
            """The last batch of a step was trained."""

        def validation_begins(self) -> object:
            """Validation of the model begins."""

        def validated(self, metrics: Sequence[tuple[str, float]]) -> object:
            """The model was validated."""


class _Unrecorded:
    """See `Calls.unrecorded`."""

    __slots__ = ("_calls", "_depth")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        # Nothing that other threads do is recorded, and it must not hide what the main thread does meanwhile.
        self._depth = int(self._calls.on_main_thread())
        self._calls.depth += self._depth

    def __exit__(self, *exception: object) -> None:
        self._calls.depth -= self._depth


class Calls(Performing):
    """The recorder of one process. `CALLS` below is the only one.

    Attributes:
        exactness: the causes for which the run cannot be resumed exactly.
        checkpoints: takes checkpoints, and restores one.
        boundary: does what is due after a call.
        preemption: lets signals act that ask for the end.
        lifecycle: functions that are called when something happens.
        depth: greater than 0 while a recorded call runs, or a part of the framework that the script did not call.
        is_child: whether this process was forked from the one that trains.
        is_aside: whether one of our bugs was met, so that nothing is recorded any more.
        in_composite: whether a call is running that a replay does not make again; what it creates has no counterpart there.
        replaying: whether calls are answered from the log. Only this room asks it; others ask what it means for them:
        resumes: whether this start resumes from a checkpoint.
        skips_data: whether the next training call is answered, so that its batch need not be built.
        is_past: whether an earlier start has done to the world outside what the script does now.
        holds_values: whether the variables of models have the values that the recorded calls gave them.
        epoch: the epoch of the running fit, from 0; None outside of a fit.
        batches: training calls so far, made or answered.
        traces: how often something was built, ever: a layer's Python ran, or an op was made. The difference over a call
            shows whether it traced.
        cleaned: how often Python wrote a variable, which then is not stale any more: whoever marked stale variables before
            has to mark them again.
        streams: the random streams of this process.
        arguments: checksum of the batch that the running entry received; 0 if it received none.
        sites: places in the script, from which calls are made.
        entries: `sites.entered`.
        main_thread: identity of the thread whose calls are recorded.
        stand_ins: identities of threads in which a framework traces for the main thread, which waits for them.
        lost: functions that return the names of trained variables that a checkpoint would not contain, each name once.
        agreement: with the other ranks that train the same model (`ranks/agreement.py`); None if there is one process.
        steps: calls the callbacks of a script around its steps (`step_callbacks.py`); None if the script has none.
        in_step_callback: whether one of these callbacks is running.
        skipped: whether any call of this replay was answered without being made.
    """

    def __init__(self, trial: Trial, streams: Streams, native_error: type[Error]) -> None:
        Performing.__init__(self)
        self.trial = trial
        self.sites = Sites(trial)
        self.entries = self.sites.entered
        self.depth = 0
        self.in_composite = False
        self.is_child = False
        self.is_aside = False
        self.resumes = False
        self.enter(State.UNTOUCHED)
        self.begun = False
        self.batches = 0
        self.traces = self.cleaned = 0
        self.epoch: int | None = None
        self.exactness = Exactness(self)
        self.checkpoints = Checkpoints(self)
        self.boundary = Boundary(self)
        self.preemption = Preemption(self)
        self.lifecycle = Lifecycle()
        # The exception that a recorded call of the script raised, and that the script handled.
        self.raised: str | None = None
        self.streams = streams
        self.arguments = 0
        self.files: Files | None = None
        self.lost: list[Callable[[], list[str]]] = []
        self.agreement: Ranks | None = None
        self.steps: Steps | None = None
        self.in_step_callback = False
        # Exceptions that end the process with a message. Any other is the user's, and is not caught.
        self.ours: tuple[type[Error], type[Refusal]] = (native_error, Refusal)
        self.main_thread = threading.main_thread().ident
        self.stand_ins: set[int] = set()

    @property
    def at_stop(self) -> list[Callable[[], object]]:
        """Functions that put the files of the script back (`ending.py`)."""
        return self.lifecycle.at_stop

    def enter(self, state: State) -> None:
        """The replay is in another state (`src/core/replay/state.rs`)."""
        self.replaying = self.skips_data = self.is_past = state == State.REPLAYING
        self.holds_values = not self.replaying

    # -- the beginning -----------------------------------------------------------------------------------------

    def on_main_thread(self) -> bool:
        """Whether the caller is in the thread whose calls are recorded, or in one that acts for it."""
        thread = threading.get_ident()
        return thread == self.main_thread or thread in self.stand_ins

    def recordable(self) -> bool:
        """Whether a call made now belongs in the log: it is outermost, and in the main thread."""
        return not self.depth and threading.get_ident() == self.main_thread

    def is_outside(self) -> bool:
        """Whether the caller is outside of recorded calls: the main thread between them, or a thread that the script started.

        A thread that a library has started in C++ belongs to the call for which the library needs it.
        """
        if threading.get_ident() == self.main_thread:
            return not self.depth
        if not self.begun or self.is_child or self.on_main_thread():
            return False
        return not isinstance(threading.current_thread(), threading._DummyThread)

    def read_in_thread(self) -> None:
        """Another thread reads a variable that training changes: this is a cause, unless the thread belongs to a library.

        A library starts a thread with one of its functions. The script starts it with one of its functions, or with an
        intercepted one.
        """
        frame, first = sys._getframe(1), ""
        while frame is not None:
            if not places.is_in_standard_library(frame.f_code.co_filename):
                first = frame.f_code.co_filename
            frame = frame.f_back
        if not places.is_installed_file(first):
            self.exactness.refuse(causes.READ_IN_A_THREAD())

    def unrecorded(self) -> _Unrecorded:
        """`with calls.unrecorded()`: the script does not ask for what this thread does, and it is not recorded."""
        return _Unrecorded(self)

    def begin(self, facts: str) -> None:
        """The first intercepted call: opens the trial directory, and starts a replay if a checkpoint exists."""
        self.begun = True
        try:
            self.trial.begin(facts)
            self.enter(self.trial.state)
            self.resumes = self.replaying
            lifecycle.call(self.lifecycle.at_begin)
        except self.ours as error:
            ending.stop_with(self, error)
        except OSError as error:
            ending.stop(
                self,
                ExitCode.CANNOT_CREATE,
                f"cannot begin the trial in `{self.trial.directory}`\n  {error}\n"
                "  the script was stopped before it trained",
                "make room there, or name another directory with `--trial-dir DIR`",
            )
        lifecycle.call(self.lifecycle.when_begun)

    def stand_aside(self) -> None:
        """In a forked child, and in a worker server, nothing is recorded: every call is only made."""
        self.depth += 1 << 20
        self.exactness.forked()

    def forked(self) -> None:
        """This process is a forked child."""
        self.is_child = True
        self._pending = []
        self.stand_aside()

    def step_aside(self, text: str, at_stop: list[Callable[[], object]]) -> None:
        """One of our bugs was met (`engine/guard.py`): nothing is recorded from here on, and every call is only made.

        Args:
            text: the message about the bug.
            at_stop: what is done if a process ends before its first call.
        """
        self.depth += 1
        try:
            self.exactness.keep_nothing()
            self._pending = []
            if self.replaying or not self.begun:
                # There is no replay: what was withdrawn and dropped for it is put back.
                ending.put_back(at_stop)
            if self.begun:
                self._leave(text)
        finally:
            self.depth -= 1
        self.is_aside = True
        self.stand_aside()
        self.trial.stand_aside()
        self.enter(State.INERT)

    def _leave(self, text: str) -> None:
        with contextlib.suppress(*self.ours):
            self.trial.event(json.dumps({"event": "exactness", "exact": False, "causes": [text], "batch": self.batches}))
        with contextlib.suppress(*self.ours):
            self.trial.wait_saved()
        if self.trial.pending_signal:
            self.trial.preempt(False)

    def settle(self) -> None:
        """The script has ended: appends its last calls, and waits for its last checkpoint.

        The training is complete, so a failure in here is not a failure of the run.
        """
        if self.is_child or self.is_aside:
            return
        pending, self._pending = self._pending, []
        self.depth += 1
        for step in self.lifecycle.at_settle:
            with contextlib.suppress(*self.ours):
                step()
        if pending:
            with contextlib.suppress(*self.ours):
                self.trial.append(pending)
        self.trial.settle()


CALLS: Calls | None = None


def start(trial: Trial, streams: Streams, native_error: type[Error]) -> Calls:
    """Makes the recorder of this process."""
    global CALLS  # noqa: PLW0603 - made once, when the first library is intercepted
    CALLS = Calls(trial, streams, native_error)
    if trial.serves is not None:
        CALLS.stand_aside()
    os.register_at_fork(after_in_child=CALLS.forked)
    return CALLS
