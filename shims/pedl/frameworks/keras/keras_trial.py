"""`KerasTrial` and `KerasFunctionalTrial`: a model of Keras that the host compiles."""
from __future__ import annotations

import abc

from pedl.errors import DefinitionError
from pedl.frameworks.keras.tf_keras_trial import default_session_config
from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _KerasTrial(Trial):
    _loop = "pedl._loops.keras"
    _package = "keras"

    @abc.abstractmethod
    def build_model(self, hparams: dict[str, Any]) -> Any:
        """Returns the `keras.models.Model`, not compiled."""

    @abc.abstractmethod
    def optimizer(self) -> Any:
        """Returns the optimizer."""

    def batch_size(self) -> int:
        """Rows of a batch, for loaders that do not know it (`pedl.data.BatchLoader`)."""
        raise DefinitionError(
            f"the trial class `{type(self).__name__}` has no `batch_size`, and its data set is a BatchLoader\n"
            "  expected: how many rows a batch has",
            f"define `batch_size(self)` in `{type(self).__name__}`",
        )

    def training_metrics(self) -> dict[str, Any]:
        """The metrics of each batch, besides the loss; none by default."""
        return {}

    def validation_metrics(self) -> dict[str, Any]:
        """The metrics of validations, besides the loss; none by default."""
        return {}

    def session_config(self, hparams: dict[str, Any]) -> Any:
        """The `tf.ConfigProto` of the session, if TensorFlow is the backend; by default with soft placement."""
        return default_session_config()

    def keras_callbacks(self, hparams: dict[str, Any]) -> list[Any]:
        """A list of `keras.callbacks.Callback`; none by default."""
        return []


class KerasTrial(_KerasTrial):
    """A model of Keras. Metrics are dicts of functions by the names under which they are reported.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    @abc.abstractmethod
    def loss(self) -> Any:
        """Returns the loss: a function, or its name in Keras."""


class KerasFunctionalTrial(_KerasTrial):
    """A model of Keras with named outputs. Metrics are dicts of `(output name, function)` by their names.

    Batches are pairs of dicts, of arrays by the names of inputs and of outputs.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    @abc.abstractmethod
    def losses(self) -> dict[str, Any]:
        """Returns a dict of losses by the names of outputs."""
