"""Metrics of PyTorch models."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def error_rate(predictions: Any, labels: Any) -> Any:
    """The share of wrong predictions: 1 - accuracy, a tensor without dimensions.

    Args:
        predictions: `(batch, classes)`, scores or probabilities.
        labels: `(batch,)`, the numbers of the classes.
    """
    wrong = predictions.argmax(dim=1) != labels.to(predictions.device)
    return wrong.to(predictions.dtype).mean()
