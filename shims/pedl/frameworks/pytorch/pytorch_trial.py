"""`PyTorchTrial`: a model of PyTorch, whose batches are trained one by one."""
from __future__ import annotations

import abc

from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pedl.frameworks.pytorch.lr_scheduler import LRScheduler


class PyTorchTrial(Trial):
    """A model of PyTorch.

    `make_data_loaders(experiment_config, hparams)` beside it returns a pair of `pedl.frameworks.pytorch.DataLoader`. There are
    two ways to define what happens with a batch, of which a class takes one:

        train_batch, and one of evaluate_batch and evaluate_full_dataset
        losses, validation_metrics and batch_size, maybe training_metrics; batches are pairs of input and target

    The host computes the gradients, clips them (the hyperparameters `clip_grad_l2_norm` and `clip_grad_val`) and applies them.
    Each batch has separate streams of random numbers.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    _loop = "pedl._loops.pytorch"
    _ranks_by = "WORLD_SIZE"

    @abc.abstractmethod
    def build_model(self, hparams: dict[str, Any]) -> Any:
        """Returns the `torch.nn.Module`. `hparams` may be left out."""

    @abc.abstractmethod
    def optimizer(self, model: Any) -> Any:
        """Returns the `torch.optim.Optimizer`."""

    def create_lr_scheduler(self, optimizer: Any) -> LRScheduler | None:
        """Returns an `LRScheduler`, or None, the default."""

    def train_batch(self, batch: Any, model: Any, epoch_idx: int, batch_idx: int) -> Any:
        """Computes the loss of a batch: a dict of metrics with "loss", or the loss itself.

        Args:
            batch: as the loader gives it, on the model's device.
            model: the model.
            epoch_idx: the number of the pass over the data, from 0.
            batch_idx: the number among all batches of the trial, from 0.
        """
        raise NotImplementedError

    def evaluate_batch(self, batch: Any, model: Any) -> dict[str, Any]:
        """Computes metrics of a batch, which are averaged over the batches: a dict."""
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any, model: Any) -> dict[str, Any]:
        """Computes metrics of all validation data: a dict."""
        raise NotImplementedError

    def batch_size(self) -> int:
        """The number of rows in a batch. The loaders decide it; this only states it."""
        raise NotImplementedError

    def losses(self, predictions: Any, labels: Any) -> Any:
        """Computes the loss: a scalar, or a dict with "loss"."""
        raise NotImplementedError

    def training_metrics(self, predictions: Any, labels: Any, losses: Any) -> dict[str, Any]:
        """Computes metrics of a batch that is trained, besides the loss: a dict."""
        return {}

    def validation_metrics(self, predictions: Any, labels: Any, losses: Any) -> dict[str, Any]:
        """Computes metrics of a batch of validation data, which are averaged over the batches: a dict."""
        raise NotImplementedError


def reset_parameters(model: Any) -> None:
    """Initializes a model again: calls `reset_parameters` of all its modules that have it."""
    for _, module in model.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
