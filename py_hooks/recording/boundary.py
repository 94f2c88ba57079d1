"""The boundary after a recorded call: the end of a step, a checkpoint, a validation, a signal.

The sequencer of the trial (`src/core/sequencer.rs`) decides what is due; here it is done, in this order: callbacks and files
that belong to the moment, the end of the step, a signal or a checkpoint, the plan of the trial.
"""
from __future__ import annotations

from py_hooks.recording import call_kinds, lifecycle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from _pedl import Due

    from py_hooks.recording.recorder import Calls

    class _OwnValues(Protocol):
        """Knows the values of single batches."""

        def keep(self) -> None:
            """Keeps them from now on."""

        def own_values(self, reported: list[tuple[int, dict[str, float]]]) -> list[float] | None:
            """The values of the batches of a step, in the order of what was reported, NaN for those that are as reported."""


class Boundary:
    """Does what is due, and keeps the metrics of a step.

    Attributes:
        validation_due: whether the model is to be validated before the next batch.
        validation_data: the validation data of a trial class, if this Keras would validate on it at the end of each epoch.
        own_values: knows the values of single batches for metrics that are reported as running values; None if nothing does.
        of_step: the metrics of each training call of the step that ended last, if they are kept: a list of dicts.
        keeps_batches: whether `of_step` is kept.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.validation_due = False
        self.validation_data: Any = None
        self.own_values: _OwnValues | None = None
        self.of_step: list[dict[str, float]] | None = None
        self.keeps_batches = False

    def do(self, due: Due) -> None:
        """Does what is due after a call whose record is appended."""
        calls = self._calls
        lifecycle.call(calls.lifecycle.at_due)
        if due.step_ended:
            lifecycle.call(calls.lifecycle.at_step_end)
            calls.guarded(calls.trial.end_step, calls.epoch)
            self.step_ended()
        if due.log_exceeded:
            calls.refuse_longer_log()
        if due.signal:
            heed = calls.preemption.heed if calls.agreement is None else calls.agreement.heed_signal
            heed()
        elif due.checkpoint and calls.exactness.takes_checkpoints:
            calls.checkpoints.save(is_wanted=due.checkpoint_wanted)
        self.go_by_plan(due)

    def step_ended(self) -> None:
        """A step has ended, in a replay or not: calls what follows the steps."""
        calls = self._calls
        if self.keeps_batches:
            self.of_step = self._batches_of_step()
        if calls.steps is not None:
            calls.steps.step_ended()

    def go_by_plan(self, due: Due) -> None:
        """Notes what the plan of the trial wants after a batch."""
        calls = self._calls
        if due.validation:
            self.validation_due = True
        if due.is_last:
            lifecycle.call(calls.lifecycle.at_last)

    def validated(self, metrics: Sequence[tuple[str, float]]) -> None:
        """The model was validated after the last batch: takes a checkpoint of it if one is due.

        Args:
            metrics: `(name, value)`, as the framework reports them.
        """
        calls = self._calls
        self.validation_due = False
        wanted = calls.guarded(calls.trial.validated, calls.epoch, metrics)
        if calls.steps is not None:
            calls.steps.validated(metrics)
        # A separate call, so that a replay can end here.
        calls.checked(call_kinds.COMPOSITE, calls.trial.intern("validation"), 0)
        if wanted and (calls.exactness.takes_checkpoints or calls.agreement is not None):
            calls.checkpoints.save(is_wanted=True)

    def keep_batches(self) -> None:
        """From here on the metrics of each training call are kept, for `of_step`."""
        calls = self._calls
        self.keeps_batches = True
        calls.trial.keep_batch_metrics()
        if self.own_values is not None:
            self.own_values.keep()

    def _batches_of_step(self) -> list[dict[str, float]]:
        """The metrics of each training call of the step: the value of the single batch if it is known, else what was reported."""
        calls = self._calls
        reported: list[tuple[int, dict[str, float]]]
        reported = calls.trial.take_batch_metrics()
        identity = calls.trial.intern("metrics of the batches of a step")
        own: Any = None
        if calls.replaying:
            record = calls.next_record()
            if record is not None and record[:2] == (call_kinds.METRICS, identity):
                own = calls.answer(call_kinds.METRICS, identity, 0)
        elif self.own_values is not None:
            own = self.own_values.own_values(reported)
            if own is not None:
                import numpy

                own = numpy.array(own, "float32")
                calls.record(call_kinds.METRICS, identity, 0, own)
                calls.append_pending()
        batches = [values for _, values in reported]
        if own is not None:
            numbers = iter(own.tolist())
            for values in batches:
                # If a number is NaN, the reported value is kept.
                values.update((name, number) for name, number in zip(list(values), numbers) if number == number)
        return batches
