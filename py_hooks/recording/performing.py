"""The one way in which a call of the script is made and recorded, or answered from the log.

A framework hands in functions for a call, of which it needs `compute`:

    prepare()      it is about to be made
    compute()      makes it, and returns its value
    made(value)    it was made, and is not recorded yet
    skip()         it is answered: does what keeps data and random numbers in step, before the record is taken
    decode(array)  makes a tensor of an array of the record
    put(value)     it was answered: puts the recorded value where the call would have put it

`Calls.perform` is for calls that are answered whole: reads, metrics, validations, saves. `Calls.checked` is for what the script
itself does in a replay too: it is compared. Compute functions have their own way (`compute_functions.py`), because they may
have to be made again. What becomes of each kind of call in each state is a table in `src/core/replay/mod.rs`, where it is
decided.
"""
from __future__ import annotations

from time import monotonic

from py_hooks import causes
from py_hooks.border import ExitCode, Next, State
from py_hooks.own_account import own_account
from py_hooks.recording import call_kinds, ending, fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar, TypeVarTuple, Unpack

    import numpy
    from _pedl import Due, Error, Trial

    from py_hooks.random_numbers.random_streams import Streams
    from py_hooks.ranks.agreement import Ranks
    from py_hooks.recording.boundary import Boundary
    from py_hooks.recording.checkpoints import Checkpoints
    from py_hooks.recording.exactness import Exactness
    from py_hooks.recording.preemption import Preemption
    from py_hooks.recording.sites import Sites
    from py_hooks.refusal import Refusal

    _Result = TypeVar("_Result")
    _Arguments = TypeVarTuple("_Arguments")

# Calls that may wait for their conversion. While they wait, their results stay alive (on the device). A step boundary or a
# checkpoint usually comes first.
MAX_PENDING_CALLS = 1000


def _nothing(*_value: object) -> None:
    """What most calls need besides `compute`."""


class Performing:
    """The part of the recorder (`Calls`) that makes, records and answers calls."""

    trial: Trial
    streams: Streams
    sites: Sites
    boundary: Boundary
    checkpoints: Checkpoints
    exactness: Exactness
    preemption: Preemption
    agreement: Ranks | None
    ours: tuple[type[Error], type[Refusal]]
    entries: list[int]
    depth: int
    replaying: bool
    in_composite: bool
    in_step_callback: bool
    is_child: bool
    raised: str | None
    batches: int

    if TYPE_CHECKING:

        @property
        def at_stop(self) -> list[Callable[[], object]]:
            """See `ending.Holder`."""

    def __init__(self) -> None:
        self.skipped = False
        self._pending: list[tuple[int, int, int, int, int, Any]] = []
        self._kept: dict[str, int] = {}
        self._is_log_told = False

    # -- whole calls -------------------------------------------------------------------------------------------------

    def perform(
        self,
        kind: int,
        identity: int,
        compute: Callable[[], Any],
        *,
        arguments: int = 0,
        skip: Callable[[], object] = _nothing,
        decode: Callable[[numpy.ndarray], Any] | None = None,
        put: Callable[[Any], object] = _nothing,
        prepare: Callable[[], object] = _nothing,
        made: Callable[[Any], object] = _nothing,
        raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> Any:
        """A whole call: made and recorded, or answered. Returns its value.

        The value is converted at once: it may be an array that the next training call donates. If the call raises, it has
        no record, so no checkpoint is taken after it.

        Args:
            kind: one of `call_kinds`. A training call counts as one batch.
            identity: what is called, an id of the trial.
            compute: makes the call.
            arguments: a checksum of its arguments; 0 for none.
            skip: is called before the record is taken; see above.
            decode: makes tensors; None if arrays are what the call returns.
            put: is called with the recorded value.
            prepare: is called before `compute`, outside of the recorded call.
            made: is called with the value after it.
            raises: exceptions that do not count: in a replay `skip` raises them too.
        """
        if self.in_step_callback:
            self.refuse_in_callback()
        if self.replaying:
            skip()
            value = self.answer(kind, identity, arguments, decode)
            if kind == call_kinds.TRAIN:
                self.trained_before()
            put(value)
            self.answered()
            return value
        prepare()
        value = self._compute(kind, compute, raises)
        made(value)
        self.record(kind, identity, arguments, value)
        if kind == call_kinds.TRAIN:
            self.trained()
        else:
            self.append_pending()
        return value

    def _compute(
        self, kind: int, compute: Callable[[], Any], raises: type[BaseException] | tuple[type[BaseException], ...]
    ) -> Any:
        self.depth += 1
        self.in_composite = kind == call_kinds.COMPOSITE
        try:
            return compute()
        except BaseException as error:
            if not isinstance(error, raises):
                self.raised = type(error).__name__
            raise
        finally:
            self.depth -= 1
            self.in_composite = False

    def checked(self, kind: int, identity: int, arguments: int) -> bool:
        """Code of the script did something, which it does in a replay too: its checksum is recorded, or compared.

        Returns:
            Whether it is recorded: the script has not done it before.
        """
        if self.in_step_callback:
            self.refuse_in_callback()
        if self.replaying:
            self.check(kind, identity, arguments, None)
            self.answered()
            return False
        self.record(kind, identity, arguments, None)
        return True

    def refuse_in_callback(self) -> None:
        """A step callback of the script makes a call that would have to be recorded: ends a fit, else refuses exactness."""
        if self.entries:
            ending.stop(
                self,
                ExitCode.CONFIGURATION,
                f"{causes.CALLBACK_CALLS()}, within a `fit`\n"
                "  expected: hooks that use what they are told, and the script's own data\n"
                "  the run was stopped; its last checkpoint is kept",
                "do that in a callback of Keras, or after the `fit`",
            )
        self.in_step_callback = False
        self.exactness.refuse(causes.CALLBACK_CALLS())

    # -- records -----------------------------------------------------------------------------------------------------

    def record(self, kind: int, identity: int, arguments: int, value: Any, site: int | None = None) -> None:
        """Notes a call that was just made. The caller keeps `depth` above 0 while it makes it."""
        if site is None:
            site = self.entries[-1] if self.entries else self.sites.here()
        self._pending.append((kind, identity, site, self.streams.draws, arguments, value))
        if len(self._pending) >= MAX_PENDING_CALLS:
            self.append_pending()

    def must_be_made(self, may_trace: bool) -> bool:
        """In a replay: whether the next call is made again, because it built something when it was made first."""
        return self.guarded(self.trial.next, may_trace) == Next.REMAKE

    def answer(
        self, kind: int, identity: int, arguments: int, decode: Callable[[numpy.ndarray], Any] | None = None
    ) -> Any:
        """The value that the same call returned the first time. Ends the process if the record differs."""
        self.skipped = True
        try:
            return self.trial.answer(kind, identity, self.sites.here(), self.streams.draws, arguments, decode)
        except self.ours as error:
            ending.stop_with(self, error)

    def check(self, kind: int, identity: int, arguments: int, value: Any) -> None:
        """Consumes the record of a call that was made again, and whose value must equal the recorded one."""
        try:
            self.trial.check(kind, identity, self.sites.here(), self.streams.draws, arguments, value)
        except self.ours as error:
            ending.stop_with(self, error)

    def next_record(self) -> tuple[int, int, int] | None:
        """Kind, identity and arguments of the record of the next call; None if there is no record of it."""
        return self.guarded(self.trial.peek) if self.replaying else None

    def answered(self) -> bool:
        """Ends the replay if the last call before the checkpoint was answered. Returns True if it was."""
        if self.trial.state == State.REPLAYING:
            return False
        self.checkpoints.restore()
        return True

    def position(self) -> int:
        """How many calls were recorded, or answered, so far."""
        return self.trial.position + len(self._pending)

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

    def guarded(self, function: Callable[[Unpack[_Arguments]], _Result], *args: Unpack[_Arguments]) -> _Result:
        """What `function(*args)` of the trial returns. Ends the process if it raises one of our errors."""
        try:
            return function(*args)
        except self.ours as error:
            return ending.stop_with(self, error)

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

    # -- after a call ------------------------------------------------------------------------------------------------

    def trained(self, batches: int = 1) -> None:
        """A training call was recorded: counts its batches, and does what is due at this boundary.

        Args:
            batches: how many batches the call took.
        """
        self.batches += batches
        due = self.trial.batch_done(monotonic())
        for _ in range(1, batches):
            due = _both(self._step_ended_inside(due), self.trial.batch_done(monotonic()))
        if self.agreement is not None:
            due = self.agreement.of_batch(due)
        if due:
            self.append_pending()
            self.boundary.do(due)

    def _step_ended_inside(self, due: Due | None) -> Due | None:
        """A batch of a call with several batches is counted: ends its step. Whatever else is due waits for the others."""
        if due is None or not due.step_ended:
            return due
        self.append_pending()
        self.boundary.do(due.step_alone())
        return due.without_step()

    def trained_before(self, batches: int = 1) -> None:
        """A training call was answered from the log: counts its batches."""
        self.batches += batches
        due: Due | None = None
        for _ in range(batches):
            of_batch = self.trial.batch_done(monotonic())
            if of_batch is not None and of_batch.step_ended:
                self.boundary.step_ended()
            due = _both(due, of_batch)
        if due is not None:
            self.boundary.go_by_plan(due)

    def called(self) -> None:
        """A call that trains nothing was made and recorded: heeds a signal that waits.

        A call that the script makes within a fit does not: there Keras 3 may hold the values of the variables elsewhere.
        """
        if self.trial.signal_calls and not self.replaying and len(self.entries) < 2 and self.agreement is None:
            self.preemption.heed()


def _both(one: Due | None, other: Due | None) -> Due | None:
    """What is due if both are."""
    return (one or other) if one is None or other is None else one | other
