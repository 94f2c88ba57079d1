"""`TensorFlowTrial`: a graph of TensorFlow 1, or of `tf.compat.v1`."""
from __future__ import annotations

import abc
import importlib

from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TensorFlowTrial(Trial):
    """A graph that is trained and validated in a session of the host.

    `make_data_loaders(experiment_config, hparams)` beside it returns a pair of batched `tf.data.Dataset`s, whose elements
    have the same classes, types and shapes. Metrics are means over batches that are not weighted by their sizes, and have the
    names that the user gives them.

    The object is made first. Then `make_data_loaders` is called, `build_graph` once, and `optimizer`, which may use what
    `build_graph` has kept.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    _loop = "pedl._loops.tensorflow"

    @abc.abstractmethod
    def optimizer(self) -> Any:
        """Returns the `tf.train.Optimizer` that minimizes the loss."""

    @abc.abstractmethod
    def build_graph(self, record: Any, is_training: Any) -> dict[str, Any]:
        """Builds the one graph for training and validation.

        Args:
            record: tensors, nested like the elements of the data sets.
            is_training: a tensor, a bool: True in training, False in validations.

        Returns:
            A dict of tensors by their names. `loss`, a number, is minimized; others are for metrics.
        """

    @abc.abstractmethod
    def validation_metrics(self) -> list[str]:
        """A list of names of tensors that `build_graph` returns: measured in validations."""

    def training_metrics(self) -> list[str]:
        """A list of names of tensors that `build_graph` returns: measured in each batch, besides the loss; none by default."""
        return []

    def session_config(self) -> Any:
        """The `tf.ConfigProto` of the session; by default an operation without a device gets one (soft placement)."""
        return importlib.import_module("tensorflow.compat.v1").ConfigProto(allow_soft_placement=True)

    def training_counter(self) -> Any:
        """A tensor: the number of trained batches. `build_graph` and `optimizer` may call this."""
        return importlib.import_module("tensorflow.compat.v1").train.get_or_create_global_step()
