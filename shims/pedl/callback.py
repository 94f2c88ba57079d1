"""`Callback`, the base of the classes whose hooks are called around the steps of a trial."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Callback:
    """Has hooks around the steps of a trial. Derive from it, and define the hooks that you need. All are optional.

    The callbacks of a list are called in its order at every hook. After a crash the hooks of past steps are called again,
    with the same metrics, so that the callbacks have the same state, and write the same files, as before.
    """

    def on_trial_begin(self) -> None:
        """Before the first training step of the trial."""

    def on_train_step_begin(self, step_id: int) -> None:
        """A training step begins; steps are counted from 1."""

    def on_train_step_end(self, step_id: int, metrics: list[dict[str, Any]]) -> None:
        """A training step has ended.

        Args:
            step_id: its number.
            metrics: a list of dicts, one for each batch of the step, with the metrics of that batch by itself. If a metric
                is no mean (AUC, precision), Keras only knows its running value over the epoch.
        """

    def on_validation_step_begin(self, step_id: int) -> None:
        """A validation begins, after `step_id` training steps."""

    def on_validation_step_end(self, step_id: int, metrics: dict[str, Any]) -> None:
        """A validation has ended.

        Args:
            step_id: the number of training steps before it.
            metrics: a dict.
        """
