"""`pedl.local`: runs one step of a trial class in the calling process, of a notebook or of a script."""
from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    from pedl.trial import Trial


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


def local(
    trial_class: type[Trial],
    hparams: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    *,
    batches_per_step: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    make_data_loaders: Callable[..., Any] | None = None,
    download_data: Callable[..., Any] | None = None,
) -> LocalRun:
    """Tries a trial class: trains one step, validates once, and saves once, in this process.

    It needs no `pedl-run`, and nothing of it can be resumed. The class may be defined in a notebook. The loop, its checks of
    what the class returns, and its callbacks are those of `pedl-run`; random numbers differ.

    Args:
        trial_class: derived from one of `pedl.frameworks`.
        hparams: values of hyperparameters by name.
        config: the experiment configuration, a dict. The constants among its `hyperparameters` need not be given again. Its
            `reproducibility.experiment_seed` is the seed, which is random without it. Defaults are not filled in.
        batches_per_step: the number of batches to train; by default that of the configuration, or 100.
        directory: a new or empty directory for the checkpoint; by default a new one among temporary files.
        make_data_loaders: a function; by default the one in the module of the class.
        download_data: the same.

    Returns:
        A `LocalRun`.

    Raises:
        DefinitionError: an argument, or a result of the class or of one of its functions, cannot be used.

    Example:
        result = pedl.local(Digits, {"learning_rate": 0.01}, batches_per_step=10)
        result.validation_metrics["val_loss"]
        keras.models.load_model(result.checkpoint)
    """
    # Imported only here: a script that only asks for hyperparameters does not need it.
    return importlib.import_module("pedl._trials.local").run_step(
        trial_class,
        {} if hparams is None else hparams,
        {} if config is None else config,
        batches_per_step,
        directory,
        {"make_data_loaders": make_data_loaders, "download_data": download_data},
    )
