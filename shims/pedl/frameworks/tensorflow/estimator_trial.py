"""`EstimatorTrial`: an Estimator of TensorFlow 1, or of `tf.compat.v1` until TensorFlow 2.15."""
from __future__ import annotations

import abc

from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class EstimatorTrial(Trial):
    """An Estimator that is trained by one `train`, and validated by `evaluate`. There is no `make_data_loaders`.

    The folder of the Estimator is below the trial directory. It saves no checkpoints by itself. The rest of its
    configuration applies, except that the trial's seed replaces TensorFlow's default seed.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    _loop = "pedl._loops.estimator"
    _has_data_loaders = False

    @abc.abstractmethod
    def build_estimator(self, hparams: dict[str, Any]) -> Any:
        """Returns the `tf.estimator.Estimator`, one that TensorFlow provides or one with a `model_fn`."""

    @abc.abstractmethod
    def build_train_spec(self, hparams: dict[str, Any]) -> Any:
        """Returns the `tf.estimator.TrainSpec`.

        Its `input_fn` returns a `tf.data.Dataset`, which restarts at its end. `max_steps` is ignored: the plan of the trial
        decides how long it trains.
        """

    @abc.abstractmethod
    def build_validation_spec(self, hparams: dict[str, Any]) -> Any:
        """Returns the `tf.estimator.EvalSpec`: a validation has `steps` batches, or all of the data if that is None."""

    def build_serving_input_receiver_fns(self, hparams: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        """Returns a dict of `serving_input_receiver_fn`s by names; none by default.

        Each is a SavedModel that belongs to every checkpoint. The newest are in `work/exports/<name>` below the trial
        directory.
        """
        return {}
