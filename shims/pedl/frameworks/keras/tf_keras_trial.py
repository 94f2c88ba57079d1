"""`TFKerasTrial`: a compiled model of `tf.keras`."""
from __future__ import annotations

import abc
import importlib

from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TFKerasTrial(Trial):
    """A model of `tf.keras` that is trained by `fit`.

    `make_data_loaders(experiment_config, hparams)` beside it returns a pair of `Sequence`s, `tf.data.Dataset`s or
    `KerasDataAdapter`s. Metrics have the names of Keras's logs, those of validations begin with `val_`.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    _loop = "pedl._loops.keras"
    _package = "tensorflow.keras"
    _ranks_by = "TF_CONFIG"

    @abc.abstractmethod
    def build_model(self, hparams: dict[str, Any]) -> Any:
        """Returns the `tf.keras.Model`, compiled."""

    def session_config(self, hparams: dict[str, Any]) -> Any:
        """The `tf.ConfigProto` of the session; by default an operation without a device gets one (soft placement)."""
        return default_session_config()

    def keras_callbacks(self, hparams: dict[str, Any]) -> list[Any]:
        """A list of `tf.keras.callbacks.Callback`; none by default."""
        return []


def default_session_config() -> Any:
    """`tf.ConfigProto(allow_soft_placement=True)`."""
    tensorflow = importlib.import_module("tensorflow")
    versions = getattr(tensorflow, "compat", None)
    return getattr(versions, "v1", tensorflow).ConfigProto(allow_soft_placement=True)
