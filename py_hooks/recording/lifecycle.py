"""When what happens in the life of a recorder: functions that libraries and the files of a script hand in, to be called then.

    Calls(...)             the first library is intercepted
      at_begin             the trial has begun, and is known: before anything is recorded or answered
      when_begun           the same, after all of `at_begin`: what may itself make calls, or end the script
    a call is recorded
      at_due               something is due: callbacks of a step, the handler of a signal, a checkpoint
      at_step_end          it ended a step, which is not in the journal yet
      at_save              a checkpoint is about to be taken
      at_last              the plan of the trial has no more batches
    the process ends
      at_settle            the script has ended: what still waits is written
      at_stop              an error of ours ends the process: files of the script are put back

Functions of one moment are called in the order in which they were handed in.
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Steps = list[Callable[[], object]]
    # Metrics of a validation: pairs of a name and a value.
    _Metrics = list[tuple[str, float]]


class Lifecycle:
    """The functions for each moment, in lists.

    Attributes:
        at_begin: the trial has begun.
        when_begun: all of `at_begin` were called.
        at_due: something is due after a call that was made.
        at_save: called before each checkpoint, to make files that belong to it.
        at_step_end: a step has ended, and is not in the journal yet.
        at_last: called after each batch behind which the plan has no more batches.
        at_validation: pairs of functions. The first is called before a validation of the plan. The second is called after it
            with its metrics, and returns them by the names under which they are reported.
        at_settle: the script has ended.
        at_stop: an error of ours ends the process.
    """

    def __init__(self) -> None:
        self.at_begin: _Steps = []
        self.when_begun: _Steps = []
        self.at_due: _Steps = []
        self.at_save: _Steps = []
        self.at_step_end: _Steps = []
        self.at_last: _Steps = []
        self.at_validation: list[tuple[Callable[[], object], Callable[[_Metrics], _Metrics]]] = []
        self.at_settle: _Steps = []
        self.at_stop: _Steps = []


def call(steps: Iterable[Callable[[], object]]) -> None:
    """Calls the functions of one moment."""
    for step in steps:
        step()
