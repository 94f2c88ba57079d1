"""`pedl.local`: runs one step of a trial class in the calling process, of a notebook or of a script.

Its training loops are those of pedl-run (`pedl/_loops`), on a host that records nothing (`host.py`). It needs no pedl-run.
"""
from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any

    from pedl._local.result import LocalRun
    from pedl.trial import Trial


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
    return importlib.import_module("pedl._local.step").run_step(
        trial_class,
        {} if hparams is None else hparams,
        {} if config is None else config,
        batches_per_step,
        directory,
        {"make_data_loaders": make_data_loaders, "download_data": download_data},
    )
