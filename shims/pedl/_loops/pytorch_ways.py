"""The two kinds of `PyTorchTrial`: which methods a class has, and what they do with a batch."""
from __future__ import annotations

from pedl.errors import DefinitionError
from pedl.frameworks.pytorch.pytorch_trial import PyTorchTrial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_OF_BATCHES = "train_batch", "evaluate_batch", "evaluate_full_dataset"
_OF_LOSSES = "losses", "batch_size", "validation_metrics", "training_metrics"


def way_of(trial: PyTorchTrial) -> OfBatches | OfLosses:
    """What a trial does with batches: `OfBatches` or `OfLosses`.

    Raises:
        DefinitionError: its class has methods of both, or lacks some.
    """
    cls = type(trial)
    by_batches, by_losses = _own(cls, _OF_BATCHES), _own(cls, _OF_LOSSES)
    if by_batches and by_losses:
        raise DefinitionError(
            f"the trial class `{cls.__name__}` has {_listed(by_batches)} and {_listed(by_losses)}\n"
            f"  expected: methods of one kind, {_listed(_OF_BATCHES[:2])} or {_listed(_OF_LOSSES[:3])}\n"
            "  nothing was trained",
            f"remove {_listed(by_losses)}",
        )
    if by_losses:
        _require(cls, by_losses, _OF_LOSSES[:3])
        return OfLosses(trial)
    _require(cls, by_batches, _OF_BATCHES[:1])
    ways = [name for name in by_batches if name != "train_batch"]
    if len(ways) != 1:
        raise DefinitionError(
            f"the trial class `{cls.__name__}` has {_listed(ways) if ways else 'no method to validate by'}\n"
            "  expected: one of `evaluate_batch` and `evaluate_full_dataset`\n  nothing was trained",
            "remove one of them" if ways else f"define one of them in `{cls.__name__}`",
        )
    return OfBatches(trial, ways[0])


def _own(cls: type, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(cls, name) is not getattr(PyTorchTrial, name)]


def _require(cls: type, there: list[str], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in there]
    if missing:
        raise DefinitionError(
            f"the trial class `{cls.__name__}` lacks {_listed(missing)}\n"
            f"  expected: {_listed(_OF_BATCHES[:2])}, or {_listed(_OF_LOSSES[:3])}\n  nothing was trained",
            f"define {_listed(missing)} in `{cls.__name__}`",
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


class OfBatches:
    """`train_batch`, and one way to validate.

    Attributes:
        training, validation: names of the methods, for messages.
        takes_full_dataset: whether `validate` takes the loader.
    """

    training = "train_batch"

    def __init__(self, trial: PyTorchTrial, validation: str) -> None:
        self.validation = validation
        self.takes_full_dataset = validation == "evaluate_full_dataset"
        self.train = trial.train_batch
        self.validate = getattr(trial, validation)

    @staticmethod
    def batch_size() -> int | None:
        """None: the class does not state it."""


class OfLosses:
    """`losses` and metrics of predictions. The attributes are those of `OfBatches`."""

    training = "losses"
    validation = "validation_metrics"
    takes_full_dataset = False

    def __init__(self, trial: PyTorchTrial) -> None:
        self._trial = trial

    def batch_size(self) -> Any:
        """The batch size that the class states."""
        return self._trial.batch_size()

    def train(self, batch: Any, model: Any, epoch: int, number: int) -> dict[str, Any]:
        """The losses of a batch, and its metrics."""
        predictions, labels, losses = self._computed(batch, model)
        measured = self._trial.training_metrics(predictions, labels, losses)
        if not isinstance(measured, dict):
            raise DefinitionError(
                f"`training_metrics` returned an object of class `{type(measured).__name__}`\n"
                "  expected: a dict of metrics by their names"
            )
        return {**measured, **(losses if isinstance(losses, dict) else {"loss": losses})}

    def validate(self, batch: Any, model: Any) -> dict[str, Any]:
        """The metrics of a batch of validation data."""
        return self._trial.validation_metrics(*self._computed(batch, model))

    def _computed(self, batch: Any, model: Any) -> tuple[Any, Any, Any]:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            length = f" of {len(batch)}" if hasattr(batch, "__len__") else ""
            raise DefinitionError(
                f"a batch of the loader is an object of class `{type(batch).__name__}`{length}\n"
                "  expected: a pair of input and target"
            )
        given, labels = batch
        predictions = model(given)
        return predictions, labels, self._trial.losses(predictions, labels)
