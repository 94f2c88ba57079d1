"""Steps of a trial: calls the user's callbacks around them, in their order (rules C1 to C12)."""
from __future__ import annotations

from pedl._callbacks import Callbacks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Steps:
    """Counts the batches of steps.

    Args:
        callbacks: the result of the trial's `callbacks`.
        batches_per_step: the number of batches in a step.

    Raises:
        DefinitionError: it is no list of callbacks.
    """

    def __init__(self, callbacks: object, batches_per_step: int) -> None:
        self._callbacks = Callbacks(callbacks, "`callbacks` returned")
        self._size = batches_per_step
        self._batches = 0
        self._of_step: list[dict[str, Any]] = []

    @property
    def has_callbacks(self) -> bool:
        """Whether there are callbacks."""
        return bool(self._callbacks)

    @property
    def size(self) -> int:
        """The number of batches in a step."""
        return self._size

    @property
    def completed(self) -> int:
        """The number of completed steps."""
        return self._batches // self._size

    def batch_begins(self) -> None:
        """A batch is about to be trained."""
        if self._batches == 0:
            self._callbacks.call("on_trial_begin")
        if self._batches % self._size == 0:
            self._of_step = []
            self._callbacks.call("on_train_step_begin", self.completed + 1)

    def batch_ended(self, metrics: dict[str, Any], known: Callable[[], list[dict[str, Any]] | None] | None = None) -> None:
        """A batch was trained.

        Args:
            metrics: those of the batch, as the framework has reported them.
            known: gives more exact metrics of all batches of the step, after its end; None if there are none.
        """
        self._batches += 1
        self._of_step.append(metrics)
        if self._batches % self._size == 0:
            better = known() if known is not None else None
            if better is not None and len(better) == len(self._of_step):
                for reported, own in zip(self._of_step, better):
                    reported.update((name, value) for name, value in own.items() if name in reported)
            self._callbacks.call("on_train_step_end", self.completed, self._of_step)

    def validation_begins(self) -> None:
        """The model is about to be validated."""
        self._callbacks.call("on_validation_step_begin", self.completed)

    def validated(self, metrics: dict[str, Any]) -> None:
        """The model was validated, with these metrics."""
        self._callbacks.call("on_validation_step_end", self.completed, metrics)
