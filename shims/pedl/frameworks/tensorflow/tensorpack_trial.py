"""`TensorpackTrial`: a model of tensorpack, on TensorFlow 1."""
from __future__ import annotations

import abc

from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TensorpackTrial(Trial):
    """A `ModelDesc` of tensorpack that is trained by one of its trainers, with steps and validations of the host.

    `make_data_loaders(experiment_config, hparams)` beside it returns a pair of DataFlows, whose elements are batches: lists
    of as many arrays as the model has inputs. The first is repeated without end. A validation is one pass over the second;
    if that has a length, the pass has this many batches.

    The loss is always reported. The metrics of a validation are called `val_NAME`. Both are means over batches that are not
    weighted by their sizes.

    Args:
        hparams: the hyperparameters of this trial, by name.
    """

    _not_local = "its DataFlows are drawn from, and seeded, by pedl-run"

    @abc.abstractmethod
    def build_model(self, hparams: dict[str, Any], trainer_type: str) -> Any:
        """Returns the `tensorpack.ModelDesc`. Its optimizer minimizes what its `build_graph` returns.

        Args:
            hparams: the hyperparameters of this trial, by name.
            trainer_type: `"replicated"`: how tensorpack calls trainers of one process.
        """

    @abc.abstractmethod
    def validation_metrics(self, hparams: dict[str, Any]) -> list[str]:
        """A list of names of tensors that `build_graph` makes: measured in validations, for which it is called once more."""

    def training_metrics(self, hparams: dict[str, Any]) -> list[str]:
        """A list of names of tensors or variables: measured in each batch, besides the loss; none by default."""
        return []

    def tensorpack_monitors(self, hparams: dict[str, Any]) -> list[Any]:
        """A list of `tensorpack.MonitorBase`, which get the summaries and the metrics of validations; none by default.

        For those that write below `logger.get_logger_dir()`, this is `tensorboard/<trial_id>` below the model definition,
        unless the definition has set another folder.
        """
        return []
