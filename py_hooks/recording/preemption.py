"""A signal that asks for the end of the run acts after a recorded call, once a checkpoint of that moment is written.

No record contains what a signal handler of the script does: from then on no checkpoint is taken, and a start continues from
the checkpoint before it. `src/native/preemption.rs` holds the signal back until then.
"""
from __future__ import annotations

from time import sleep

from py_hooks.recording import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from py_hooks.recording.recorder import Calls

# How often to check whether a checkpoint is written, while a signal handler of the script may want to run.
_LOOK_SECONDS = 0.005


class Preemption:
    """Lets a signal act that waits."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def heed(self) -> None:
        """A signal waits: takes a checkpoint, waits until it is written, and lets the signal act.

        Returns if the script has a handler. The handler has run by then, and what it raised is raised here.
        """
        calls = self._calls
        if not calls.trial.pending_signal:
            # The signal waited for too long, or acted at once, and the script continues to train.
            if calls.guarded(calls.trial.trained_on):
                calls.exactness.keep_nothing()
            return
        was_saved = calls.exactness.takes_checkpoints and self._save_for_signal()
        ending.flush_streams()
        calls.exactness.keep_nothing()
        # Calls that the handler makes are calls of the script.
        depth, calls.depth = calls.depth, 0
        try:
            calls.guarded(calls.trial.preempt, was_saved)
        finally:
            calls.depth = depth

    def _save_for_signal(self) -> bool:
        """Whether a checkpoint was taken and completed before the signal had to act."""
        calls = self._calls
        # Waits in Python, so that a handler of the script can run when the time is over.
        self._wait_while_saving()
        if calls.trial.pending_signal:
            calls.checkpoints.save(is_wanted=True)
            self._wait_while_saving()
        if not calls.trial.pending_signal:
            return False
        calls.guarded(calls.trial.wait_saved)
        return calls.exactness.takes_checkpoints

    def _wait_while_saving(self) -> None:
        calls = self._calls
        while calls.trial.pending_signal and calls.trial.saving():
            sleep(_LOOK_SECONDS)
