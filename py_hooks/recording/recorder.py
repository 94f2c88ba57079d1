"""Recorded calls: made and written down the first time, answered from `calls.log` in a replay.

After a crash the script runs again from its first line. The code of the script really runs; the calls that this module
intercepts are answered from the log, up to the call in which the checkpoint was taken. There the saved state is restored,
and from then on every call is made.

Invariants

- Only the main thread's calls are recorded, and only outermost ones: what a recorded call does inside (`depth` > 0)
  belongs to it.
- A record is only needed up to a checkpoint. So what a call returned is kept as it is (on its device, unconverted)
  and is converted and appended at the next boundary, in one go. The result of a call for one batch is converted at once
  (`record_batch`), because the script may change it.
- Nothing is answered by guess. A call that differs from its record in kind, identity, place in the script, random
  numbers drawn or arguments ends the process with exit code 76 and a message that shows both sides.
- A call that traced (ran the user's Python in it) runs again in a replay, because tracing creates variables and
  draws seeds. Its result is discarded. If nothing was skipped before the call, its result must equal the record.

Beside it: what is due after a call (`boundary.py`), checkpoints (`checkpoints.py`), signals that ask for the end
(`preemption.py`), reasons why a resume may not be exact (`exactness.py`), and the end of the process (`ending.py`).
"""
from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from time import monotonic

from py_hooks import causes, places
from py_hooks.own_account import own_account
from py_hooks.recording import boundary, call_kinds, ending, fingerprint, lifecycle
from py_hooks.recording.boundary import Boundary
from py_hooks.recording.checkpoints import Checkpoints
from py_hooks.recording.exactness import Exactness
from py_hooks.recording.lifecycle import Lifecycle
from py_hooks.recording.preemption import Preemption
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType
    from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

    import numpy
    from _pedl import Error, Trial

    from py_hooks.random_numbers.random_streams import Streams
    from py_hooks.ranks.agreement import Ranks
    from py_hooks.script_io.files import Files

    _Result = TypeVar("_Result")
    _Arguments = TypeVarTuple("_Arguments")

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

    class _Computes(Protocol):
        """A compute function, which a call on a batch runs."""

        kind: int
        identity: int
        cleaned: int | None

        def note_changes(self, calls: Calls) -> object:
            """Notes which variables a call changes."""

# Calls that may wait for their conversion. While they wait, their results stay alive (on the device). A step boundary or a
# checkpoint usually comes first.
MAX_PENDING_CALLS = 1000

# Instructions whose line is known. Finding the line of an instruction takes longer, the further down in its code it is.
MAX_KNOWN_SITES = 10000



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


class Calls:
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
        replaying: whether calls are answered from the log.
        epoch: the epoch of the running fit, from 0; None outside of a fit.
        batches: training calls so far, made or answered.
        traces: how often something was built, ever: a layer's Python ran, or an op was made. The difference over a call
            shows whether it traced.
        cleaned: how often Python wrote a variable, which then is not stale any more: whoever marked stale variables before
            has to mark them again.
        streams: the random streams of this process.
        arguments: checksum of the batch that the running entry received; 0 if it received none.
        entries: sites of the script's calls into the framework that are under way, innermost last.
        main_thread: identity of the thread whose calls are recorded.
        stand_ins: identities of threads in which a framework traces for the main thread, which waits for them.
        lost: functions that return the names of trained variables that a checkpoint would not contain, each name once.
        agreement: with the other ranks that train the same model (`ranks/agreement.py`); None if there is one process.
        steps: calls the callbacks of a script around its steps (`step_callbacks.py`); None if the script has none.
        in_step_callback: whether one of these callbacks is running.
        skipped: whether any call of this replay was answered without being made.
        sites: ids of the lines that called before, by `(id(code), instruction)`.
    """

    def __init__(self, trial: Trial, streams: Streams, native_error: type[Error]) -> None:
        self.trial = trial
        self.depth = 0
        self.in_composite = False
        self.is_child = False
        self.is_aside = False
        self.replaying = False
        self.begun = False
        self.batches = 0
        self.traces = self.cleaned = 0
        self.skipped = False
        self.epoch: int | None = None
        self.entries: list[int] = []
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
        self._pending: list[tuple[int, int, int, int, int, Any]] = []
        self._kept: dict[str, int] = {}
        self._is_log_told = False
        self.sites: dict[tuple[int, int], int] = {}
        self._codes: list[CodeType] = []
        self.main_thread = threading.main_thread().ident
        self.stand_ins: set[int] = set()

    @property
    def at_stop(self) -> list[Callable[[], object]]:
        """Functions that put the files of the script back (`ending.py`)."""
        return self.lifecycle.at_stop

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
            self.replaying = self.trial.resume_call > 0
            lifecycle.call(self.lifecycle.at_begin)
        except self.ours as error:
            ending.stop_with(self, error)
        except OSError as error:
            ending.stop(
                self,
                73,
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
        self.replaying = False
        self.is_aside = True
        self.stand_aside()
        self.trial.stand_aside()

    def _leave(self, text: str) -> None:
        with contextlib.suppress(*self.ours):
            self.trial.event(json.dumps({"event": "exactness", "exact": False, "causes": [text], "batch": self.batches}))
        with contextlib.suppress(*self.ours):
            self.trial.wait_saved()
        if self.trial.pending_signal:
            self.trial.preempt(False)

    # -- places ------------------------------------------------------------------------------------------------

    def site(self) -> int:
        """Where the script is: an id of `file:line`, of the running entry or else of the innermost user's frame."""
        if self.entries:
            return self.entries[-1]
        frame = sys._getframe(1)
        # Skips the frames of a framework, which are several, without a call for each.
        while frame.f_back is not None and places.KNOWN.get(frame.f_code.co_filename) is False:
            frame = frame.f_back
        return self.site_from(frame)

    def site_of(self, frame: FrameType) -> int | None:
        """The id of the line that a frame is in; None if that takes longer to find: `site` finds it."""
        return None if self.entries else self.sites.get((id(frame.f_code), frame.f_lasti))

    def site_from(self, frame: FrameType) -> int:
        """The id of the line of the user's code in which a frame is, or the frame that called it, and so on."""
        code, instruction = frame.f_code, frame.f_lasti
        known = self.sites.get((id(code), instruction))
        if known is not None:
            return known
        user = places.user_frame(frame)
        if user is not None and user is not frame:
            # The next time that line is known.
            return self.site_from(user)
        file, line = ("?", 0) if user is None else (user.f_code.co_filename, user.f_lineno)
        site = self.trial.intern(f"{places.display_path(file)}:{line}")
        if user is frame:
            if len(self.sites) >= MAX_KNOWN_SITES:
                self.sites.clear()
                del self._codes[:]
            self.sites[id(code), instruction] = site
            # Kept, so that no other code object gets its id.
            self._codes.append(code)
        return site

    def position(self) -> int:
        """How many calls were recorded, or answered, so far."""
        return self.trial.position + len(self._pending)

    # -- recording and answering ---------------------------------------------------------------------------------

    def record(self, kind: int, identity: int, arguments: int, value: Any, site: int | None = None) -> None:
        """Notes a call that was just made. The caller keeps `depth` above 0 while it makes it."""
        if site is None:
            site = self.entries[-1] if self.entries else self.site()
        self._pending.append((kind, identity, site, self.streams.draws, arguments, value))
        if len(self._pending) >= MAX_PENDING_CALLS:
            self.append_pending()

    def refuse_in_callback(self) -> None:
        """A step callback of the script makes a call that would have to be recorded: ends a fit, else refuses exactness."""
        if self.entries:
            ending.stop(
                self,
                65,
                f"{causes.CALLBACK_CALLS()}, within a `fit`\n"
                "  expected: hooks that use what they are told, and the script's own data\n"
                "  the run was stopped; its last checkpoint is kept",
                "do that in a callback of Keras, or after the `fit`",
            )
        self.in_step_callback = False
        self.exactness.refuse(causes.CALLBACK_CALLS())

    def answer(
        self, kind: int, identity: int, arguments: int, tensor: Callable[[numpy.ndarray], Any] | None = None
    ) -> Any:
        """The value that the same call returned the first time. Ends the process if the record differs."""
        self.skipped = True
        try:
            return self.trial.answer(kind, identity, self.site(), self.streams.draws, arguments, tensor)
        except self.ours as error:
            ending.stop_with(self, error)

    def next_arguments(self) -> int:
        """The arguments of the next record; 0 at the end of the log, where `answer` reports the error."""
        record = self.guarded(self.trial.peek)
        return record[2] if record is not None else 0

    def check(self, kind: int, identity: int, arguments: int, value: Any) -> None:
        """Consumes the record of a call that was made again, and whose value must equal the recorded one."""
        try:
            self.trial.check(kind, identity, self.site(), self.streams.draws, arguments, value)
        except self.ours as error:
            ending.stop_with(self, error)

    def answered(self) -> bool:
        """Ends the replay if the last call before the checkpoint was answered. Returns True if it was."""
        if self.trial.position < self.trial.resume_call:
            return False
        self.checkpoints.restore()
        return True

    def call(
        self,
        kind: int,
        identity: int,
        live: Callable[[], Any],
        arguments: int = 0,
        tensor: Callable[[numpy.ndarray], Any] | None = None,
        raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> Any:
        """A whole recorded call: calls `live()`, or in a replay returns its recorded value.

        The value is converted at once: it may be an array that the next training call donates. If the call raises, it has
        no record, so no checkpoint is taken after it. Exceptions of the types in `raises` do not count: in a replay the
        call raises them too, by itself.
        """
        if self.in_step_callback:
            self.refuse_in_callback()
        if not self.replaying:
            self.depth += 1
            self.in_composite = kind == call_kinds.COMPOSITE
            try:
                value = live()
            except BaseException as error:
                if not isinstance(error, raises):
                    self.raised = type(error).__name__
                raise
            finally:
                self.depth -= 1
                self.in_composite = False
            self.record(kind, identity, arguments, value)
            self.append_pending()
            return value
        value = self.answer(kind, identity, arguments, tensor)
        self.answered()
        return value

    def checked(self, kind: int, identity: int, arguments: int) -> None:
        """Code of the script did something, which it does in a replay too: its checksum is recorded, or compared."""
        if self.in_step_callback:
            self.refuse_in_callback()
        if not self.replaying:
            self.record(kind, identity, arguments, None)
        else:
            self.check(kind, identity, arguments, None)
            self.answered()

    def append_pending(self) -> None:
        """Converts and appends the calls that wait."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self.depth += 1
        try:
            with own_account():
                opaque = self.trial.append(pending)
        except self.ours as error:
            ending.stop_with(self, error)
        finally:
            self.depth -= 1
        for type_name in opaque or ():
            self.exactness.refuse(causes.UNRECORDABLE(kind=type_name))
        if self.trial.log_exceeded:
            self.refuse_longer_log()

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

    def note_kept(self, name: str, size: int) -> None:
        """Notes that `size` bytes of the log hold the value of this name."""
        self._kept[name] = self._kept.get(name, 0) + size

    def refuse_longer_log(self) -> None:
        """The log has reached its limit: this is a cause."""
        if self._is_log_told:
            return
        self._is_log_told = True
        largest = ""
        if self._kept:
            name, size = max(self._kept.items(), key=lambda each: each[1])
            largest = f"; the values of `{name}` take {size / 1e6:.1f} MB of it"
        self.exactness.refuse(causes.LOG_LIMIT(largest=largest))

    # -- training calls ----------------------------------------------------------------------------------------

    def trained(self, batches: int = 1) -> None:
        """A training call was recorded: counts its batches, and does what is due at this boundary.

        Args:
            batches: how many batches the call took.
        """
        self.batches += batches
        due = self.trial.batch_done(monotonic())
        for _ in range(1, batches):
            due = self._step_ended_inside(due) | self.trial.batch_done(monotonic())
        if self.agreement is not None:
            due = self.agreement.of_batch(due)
        if due:
            self.append_pending()
            self.boundary.do(due)

    def _step_ended_inside(self, due: int) -> int:
        """A batch of a call with several batches is counted: ends its step. Whatever else is due waits for the others."""
        if due & boundary.STEP_ENDED:
            self.append_pending()
            self.boundary.do(boundary.STEP_ENDED)
        return due & ~boundary.STEP_ENDED

    def record_batch(
        self,
        function: _Computes,
        site: int,
        is_traced: bool,
        values: tuple[object, ...],
        named_values: dict[str, object],
        result: object,
    ) -> None:
        """A call on a batch was made: does `record`, notes the changes, and for a training call does `trained`.

        The result is converted at once, because the script may change it. The caller keeps `depth` above 0.

        Args:
            function: the compute function.
            site: the script's line.
            is_traced: whether the call built something.
            values: the batch, as the call received it.
            named_values: the part of the batch that has names.
            result: what the call returned.
        """
        if function.cleaned != self.cleaned:
            function.note_changes(self)
        if self._pending:
            self.append_pending()
        kind = function.kind
        try:
            due = self.trial.record_batch(
                kind, function.identity, site, self.streams.draws, is_traced, values, named_values, result, monotonic()
            )
        except self.ours as error:
            ending.stop_with(self, error)
        if due & boundary.NOT_RECORDED:
            self._record_other_batch(function, site, self.checksum_of(values, named_values) | is_traced, result)
            return
        if kind == call_kinds.TRAIN:
            self.batches += 1
        elif self.entries:
            due &= ~boundary.SIGNAL
        if due:
            self.boundary.do(due)

    def _record_other_batch(self, function: _Computes, site: int, arguments: int, result: object) -> None:
        """As `record_batch`, if something in the batch or in its result takes longer to record."""
        self.record(function.kind, function.identity, arguments, result, site)
        self.append_pending()
        if function.kind == call_kinds.TRAIN:
            self.trained()
        elif not self.entries:
            self.called()

    def guarded(self, function: Callable[[Unpack[_Arguments]], _Result], *args: Unpack[_Arguments]) -> _Result:
        """What `function(*args)` of the trial returns. Ends the process if it raises one of our errors."""
        try:
            return function(*args)
        except self.ours as error:
            return ending.stop_with(self, error)

    def called(self) -> None:
        """A call that trains nothing was made and recorded: heeds a signal that waits.

        A call that the script makes within a fit does not: there Keras 3 may hold the values of the variables elsewhere.
        """
        if self.trial.signal_calls and not self.replaying and len(self.entries) < 2 and self.agreement is None:
            self.preemption.heed()

    # -- signals that ask for the end ----------------------------------------------------------------------------

    def checksum_of(self, values: tuple[object, ...], named_values: dict[str, object]) -> int:
        """The checksum of a batch, an even number, whatever the batch contains."""
        checksum = self.trial.batch_checksum(values, named_values)
        if checksum:
            return checksum
        values += tuple(named_values.values())
        if fingerprint.holds_symbolic(values):
            # An answered call would not take the next element of the iterator that yields these tensors.
            self.exactness.refuse(causes.TENSORS_BY_HAND())
        with own_account():
            return fingerprint.quick(values) & ~call_kinds.TRACED

    def trained_before(self, batches: int = 1) -> None:
        """A training call was answered from the log: counts its batches."""
        self.batches += batches
        due = 0
        for _ in range(batches):
            of_batch = self.trial.batch_done(monotonic())
            if of_batch & boundary.STEP_ENDED:
                self.boundary.step_ended()
            due |= of_batch
        if due & boundary.PLANNED:
            self.boundary.go_by_plan(due)

    # -- state ---------------------------------------------------------------------------------------------------


CALLS: Calls | None = None


def start(trial: Trial, streams: Streams, native_error: type[Error]) -> Calls:
    """Makes the recorder of this process."""
    global CALLS  # noqa: PLW0603 - made once, when the first library is intercepted
    CALLS = Calls(trial, streams, native_error)
    if trial.serves is not None:
        CALLS.stand_aside()
    os.register_at_fork(after_in_child=CALLS.forked)
    return CALLS
