"""The result of `pedl.local`."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LocalRun:
    """The result of one step of a trial.

    Attributes:
        training_metrics: the means over the batches of the step; an array is averaged element by element, or left out.
        batch_metrics: a list of dicts, one for each batch; with Keras its running means.
        validation_metrics: a dict.
        checkpoint: path of the saved model, in a form that the framework itself reads.
    """

    def __init__(
        self,
        training_metrics: dict[str, Any],
        batch_metrics: list[dict[str, Any]],
        validation_metrics: dict[str, Any],
        checkpoint: str,
    ) -> None:
        self.training_metrics = training_metrics
        self.batch_metrics = batch_metrics
        self.validation_metrics = validation_metrics
        self.checkpoint = checkpoint

    def __repr__(self) -> str:
        return (
            f"LocalRun({len(self.batch_metrics)} batches, training_metrics={self.training_metrics!r}, "
            f"validation_metrics={self.validation_metrics!r}, checkpoint={self.checkpoint!r})"
        )
