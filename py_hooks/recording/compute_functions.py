"""Compute functions: what a framework runs for a batch. Their calls are made and recorded, answered, or made again.

A framework makes a subclass, and hands in two functions for each call: `compute()` makes it, and `skip()` is called in its
place if it is answered. Both return how many batches the call takes, `compute` after its result. A call that traced (ran the
user's Python in it) is made again in a replay, because tracing creates variables and draws seeds.
"""
from __future__ import annotations

from time import monotonic

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.engine import guard
from py_hooks.recording import call_kinds, ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.recording.recorder import Calls

# Of kinds.
NAMES = {call_kinds.TRAIN: "train", call_kinds.TEST: "test", call_kinds.PREDICT: "predict"}


class ComputeFunction:
    """A compute function of a model.

    Args:
        calls: the recorder.
        kind: `TRAIN`, `TEST` or `PREDICT`.
        name: what is called, as records have it.

    Attributes:
        identity: its id in records.
        cleaned: the recorder's `cleaned` when the changes were noted last; None before the first call.
        kept: how often it was entered, and its last result (`engine/guard.py`).
        is_made_again: whether a call on a batch of the script that built something, or raised, is made in a replay, too.
    """

    is_made_again = True

    def __init__(self, calls: Calls, kind: int, name: str) -> None:
        self.kind = kind
        self.identity = calls.trial.intern(name)
        self.cleaned: int | None = None
        self.kept: list[Any] = [0, None]

    # -- what a framework knows ------------------------------------------------------------------------------------

    def changed(self, calls: Calls) -> None:
        """Notes which variables a call changes: the first time, and if Python has written one since."""
        raise NotImplementedError

    def decode(self) -> Callable[[Any], Any] | None:
        """What makes a tensor of an array in a recorded result; None if arrays are what the function returns."""
        return None

    def skip_batch(self) -> int:
        """A call on one batch is answered: does what keeps random numbers in step. Returns 1."""
        return 1

    def came_back(self, calls: Calls, result: Any) -> None:
        """A call has a result, by whatever way: it is known what the function returns."""

    def made(self) -> None:
        """A call was made."""

    def resumed(self) -> None:
        """The state of the checkpoint was put in after a call of this function."""

    # -- calls of the framework's loop -------------------------------------------------------------------------------

    def perform(
        self,
        calls: Calls,
        compute: Callable[[], tuple[Any, int]],
        skip: Callable[[], int],
        arguments: int | None = None,
        *,
        notes_trace: bool = True,
        may_trace: bool = True,
        is_kept_at_once: bool = False,
    ) -> Any:
        """A call: made and recorded, answered, or made again.

        Args:
            calls: the recorder.
            compute: makes the call; returns its result, and how many batches it took.
            skip: is called if the call is answered; returns how many batches it would have taken.
            arguments: a checksum of the batch; None for that of the running entry.
            notes_trace: whether the record says if the call built something.
            may_trace: whether a call whose record says so is made again.
            is_kept_at_once: whether the script may change the result, so that it is converted at once.
        """
        if calls.steps is not None:
            calls.steps.call_begins(self.kind)
        if arguments is None:
            arguments = calls.arguments
        if calls.replaying:
            return self._replay(calls, compute, skip, arguments, may_trace)
        traced, (result, batches) = self._make(calls, compute)
        calls.record(self.kind, self.identity, arguments | traced if notes_trace else arguments, result)
        if is_kept_at_once:
            calls.append_pending()
        self.came_back(calls, result)
        self.note_changes(calls)
        self.made()
        if self.kind == call_kinds.TRAIN:
            calls.trained(batches)
        else:
            calls.called()
        return result

    def _replay(
        self, calls: Calls, compute: Callable[[], tuple[Any, int]], skip: Callable[[], int], arguments: int, may_trace: bool
    ) -> Any:
        if calls.must_be_made(may_trace):
            traced, (result, batches) = self._make(calls, compute)
            result = self._recorded(calls, arguments | traced, result)
        else:
            batches = skip()
            result = calls.answer(self.kind, self.identity, arguments, self.decode())
        self.came_back(calls, result)
        self.note_changes(calls)
        if self.kind == call_kinds.TRAIN:
            calls.trained_before(batches)
        if calls.answered():
            self.resumed()
        return result

    def _make(self, calls: Calls, compute: Callable[[], tuple[Any, int]]) -> tuple[int, tuple[Any, int]]:
        """Makes a call. Returns `TRACED` if it built something, else 0; and what `compute` returned."""
        traces, kept = calls.traces, self.kept
        kept[0] += 1
        kept[1] = guard.UNFINISHED
        try:
            calls.depth += 1
            try:
                made = kept[1] = compute()
            finally:
                calls.depth -= 1
        except Exception:
            if calls.arguments:
                self._failed(calls)
            raise
        return (call_kinds.TRACED if calls.traces > traces else 0), made

    def _failed(self, calls: Calls) -> None:
        """A call on a batch that the script passed raised. A replay makes it too, and it must raise there too."""
        call = self.kind, self.identity, calls.arguments | call_kinds.TRACED, None
        if not calls.replaying:
            calls.record(*call)
            return
        calls.check(*call)
        calls.answered()

    def _recorded(self, calls: Calls, arguments: int, result: Any) -> Any:
        """The recorded result of a call that was made again. The new result is equal if nothing was skipped before it."""
        if calls.skipped:
            recorded = calls.answer(self.kind, self.identity, arguments, self.decode())
            if recorded is None:
                self._say_it_failed(calls)
            return recorded
        calls.check(self.kind, self.identity, arguments, result)
        return result

    def returned(self, made: Any) -> Any:
        """What the framework's function returned, from what `compute` returned."""
        return made[0]

    def note_changes(self, calls: Calls) -> None:
        """A call was made or answered: notes what it changed, if that is not noted yet."""
        if self.cleaned != calls.cleaned:
            self.changed(calls)
            self.cleaned = calls.cleaned

    # -- calls of the script for one batch ---------------------------------------------------------------------------

    def perform_batch(
        self,
        calls: Calls,
        site: int,
        compute: Callable[[], Any],
        values: tuple[object, ...],
        named_values: dict[str, object],
        skip: Callable[[], int] | None = None,
    ) -> Any:
        """A call of the script for one batch, which is recorded or answered whole.

        This runs once per batch, where each function call costs noticeable time: short ones are written inline. The result
        is converted at once, because the script may change it.

        Args:
            calls: the recorder.
            site: the script's line.
            compute: makes the call; returns its result.
            values: the batch, as the call received it.
            named_values: the part of the batch that has names.
            skip: as of `perform`; None for `skip_batch`.
        """
        if calls.replaying:
            return self._replay_batch(calls, site, compute, calls.checksum_of(values, named_values), skip or self.skip_batch)
        if calls.steps is not None:
            calls.steps.call_begins(self.kind)
        traces = calls.traces
        calls.depth += 1
        try:
            result = compute()
        except Exception:
            if self.is_made_again:
                arguments = calls.checksum_of(values, named_values) | call_kinds.TRACED
                calls.record(self.kind, self.identity, arguments, None, site)
            raise
        else:
            self.made()
            if self.cleaned != calls.cleaned:
                self.note_changes(calls)
            calls.append_pending()
            is_traced = self.is_made_again and calls.traces > traces
            self._record_batch(calls, site, is_traced, values, named_values, result)
        finally:
            calls.depth -= 1
        return result

    def _replay_batch(
        self, calls: Calls, site: int, compute: Callable[[], Any], arguments: int, skip: Callable[[], int]
    ) -> Any:
        outer, calls.arguments = calls.arguments, arguments
        calls.entries.append(site)
        try:
            return self.perform(calls, lambda: (compute(), 1), skip, arguments, may_trace=self.is_made_again)
        finally:
            calls.entries.pop()
            calls.arguments = outer

    def _record_batch(
        self,
        calls: Calls,
        site: int,
        is_traced: bool,
        values: tuple[object, ...],
        named_values: dict[str, object],
        result: object,
    ) -> None:
        try:
            due = calls.trial.record_batch(
                self.kind, self.identity, site, calls.streams.draws, is_traced, values, named_values, result, monotonic()
            )
        except calls.ours as error:
            ending.stop_with(calls, error)
        if due is not None and due.is_unsupported:
            self._record_other_batch(calls, site, calls.checksum_of(values, named_values) | is_traced, result)
            return
        if self.kind == call_kinds.TRAIN:
            calls.batches += 1
        elif due is not None and calls.entries:
            due = due.without_signal()
        if due:
            calls.boundary.do(due)

    def _record_other_batch(self, calls: Calls, site: int, arguments: int, result: object) -> None:
        """As `_record_batch`, if something in the batch or in its result takes longer to record."""
        calls.record(self.kind, self.identity, arguments, result, site)
        calls.append_pending()
        if self.kind == call_kinds.TRAIN:
            calls.trained()
        elif not calls.entries:
            calls.called()

    def _say_it_failed(self, calls: Calls) -> None:
        place = ":".join(map(str, places.user_place(2)))
        ending.stop(
            calls,
            ExitCode.DIVERGED,
            "the replay differs from the record: a call that failed does not fail now\n"
            f"  call {calls.trial.position} of the run, {NAMES[self.kind]} on a batch, at {place}\n"
            "  recorded: it raised an exception\n"
            "  now: it returned\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "look for what it depends on, such as memory that was short; `--fresh` begins a new trial",
        )
