"""`pedl.local`: one step of a trial class in the process that asks for it, a notebook's or a script's."""
import importlib


class LocalRun:
    """What one step of a trial has come to.

    Attributes:
        training_metrics: the means over the batches of the step; what is no number is a mean element by element, or left out.
        batch_metrics: a list of dicts, one for each batch; with Keras its running means.
        validation_metrics: a dict.
        checkpoint: path of what was trained, as the framework itself reads it.
    """

    def __init__(self, training_metrics, batch_metrics, validation_metrics, checkpoint):
        self.training_metrics = training_metrics
        self.batch_metrics = batch_metrics
        self.validation_metrics = validation_metrics
        self.checkpoint = checkpoint

    def __repr__(self):
        return (
            f"LocalRun({len(self.batch_metrics)} batches, training_metrics={self.training_metrics!r}, "
            f"validation_metrics={self.validation_metrics!r}, checkpoint={self.checkpoint!r})"
        )


def local(
    trial_class, hparams=None, config=None, *, batches_per_step=None, directory=None, make_data_loaders=None, download_data=None
):
    """Tries a trial class: trains one step, validates once, and saves once, in this process.

    It needs no `pedl-run`, and nothing of it can be resumed. The class may be one of a notebook's. The loop, its checks of
    what the class returns, and its callbacks are those of `pedl-run`; random numbers are others.

    Args:
        trial_class: derived from one of `pedl.frameworks`.
        hparams: values of hyperparameters by name.
        config: the experiment configuration, a dict. Of its `hyperparameters` those that are constants need not be given
            again; its `reproducibility.experiment_seed` is the seed, which is random without it. Defaults are not filled in.
        batches_per_step: how many batches are trained; by default those of the configuration, or 100.
        directory: where the checkpoint is put, new or empty; by default a new one among temporary files.
        make_data_loaders: a function; by default that of the module that the class is of.
        download_data: the same.

    Returns:
        A `LocalRun`.

    Raises:
        DefinitionError: something that was given, or that the class or a function of its returned, cannot be used.

    Example:
        result = pedl.local(Digits, {"learning_rate": 0.01}, batches_per_step=10)
        result.validation_metrics["val_loss"]
        keras.models.load_model(result.checkpoint)
    """
    # Not before: a script that only asks for hyperparameters needs none of it.
    return importlib.import_module("pedl._trials.local").run_step(
        trial_class,
        {} if hparams is None else hparams,
        {} if config is None else config,
        batches_per_step,
        directory,
        {"make_data_loaders": make_data_loaders, "download_data": download_data},
    )
