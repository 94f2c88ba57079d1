"""Trains `KerasTrial`, `KerasFunctionalTrial` and `TFKerasTrial`: one `fit`, whose length the plan decides.

Keras's loop, callbacks and metrics are those of a script that calls `fit`; this only adds the steps. Validations happen when
the sequencer asks for them, and after the last step, not at the ends of epochs. The batches of a `Sequence` are used in
order; it shuffles itself in `on_epoch_end`.
"""
from __future__ import annotations

import importlib
import inspect
import os
import sys

from pedl._context import context
from pedl._loops import keras_metrics, shares
from pedl.data import BatchLoader, as_sequence
from pedl.errors import DefinitionError
from pedl.frameworks.keras.data import KerasDataAdapter
from pedl.frameworks.keras.keras_trial import KerasFunctionalTrial
from pedl.frameworks.keras.tf_keras_trial import TFKerasTrial
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Union

    from pedl._loops.host import Ranks, TrialHost
    from pedl._loops.run import Loaders
    from pedl._loops.steps import Steps
    from pedl.frameworks.keras.keras_trial import KerasTrial

    AnyTrial = Union[KerasTrial, KerasFunctionalTrial, TFKerasTrial]

# No epoch ends with a validation: the sequencer asks for them.
_NEVER = 1 << 30

# The version of TensorFlow with which several processes train one model, and the reasons against other versions.
_VERSION_OF_RANKS = "2.15."
_KERAS_3 = "its `tf.keras` is Keras 3, which does not train by `MultiWorkerMirroredStrategy`"
_NOT_TRIED = "whether a training by several processes goes on exactly was not tried with it"

_OF_WORKERS = "workers", "use_multiprocessing", "max_queue_size"


def run(trial: AnyTrial, loaders: Loaders, hparams: dict[str, Any], steps: Steps, host: TrialHost) -> None:
    """Trains the trial. The arguments are explained in `pedl._loops.run`."""
    package = package_of(trial)
    _check_version(context().get("ranks"))
    _configure_session(trial, hparams, package)
    ranks = host.of_tensorflow(context().get("ranks"))
    training, validation = (_Data(data, trial, package) for data in loaders.make())
    training.share(ranks, package)
    with ranks.scope():
        model = call_with(trial.build_model, hparams=hparams)
    names = _names(trial, model, package)
    if not ranks.adopt(model):
        raise DefinitionError(
            "the model that `build_model` returned was made before, and is not one of all ranks\n"
            "  expected: one that is made and compiled in `build_model`, without a strategy of its own",
            "make it there",
        )
    fit = _Fit(model, package, training, validation)
    last: dict[str, Any] = {}
    callbacks = [_Last.made(package, last), *_callbacks_of(trial, hparams)]
    if steps.has_callbacks:
        host.keep_batches()
        callbacks = [_step_begins(package, steps), *callbacks, _step_ends(package, steps, names, host)]
    validated: list[int] = []

    def ended(metrics: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        validated.append(host.batches)
        last.update(metrics)
        steps.validated(names.of_validation(metrics))
        return names.told(metrics)

    host.watch_validations(steps.validation_begins, ended)
    host.saved_by(lambda directory: _saved(model, directory, hasattr(package, "version")))
    if not host.bounds_fits:
        callbacks.append(_stops(package, host, model))
    with ranks.guard():
        fit.train(host, callbacks, 1 if host.bounds_fits else host.batches_left)
    if validated[-1:] != [host.batches]:
        steps.validation_begins()
        with ranks.guard():
            metrics = fit.evaluate()
        host.validated(names.told(metrics))
        steps.validated(names.of_validation(metrics))


def _names(trial: AnyTrial, model: Any, package: Any) -> keras_metrics.Names:
    """Checks or compiles the model, by the kind of the trial."""
    if isinstance(trial, TFKerasTrial):
        return keras_metrics.checked(trial, model)
    return keras_metrics.compiled(trial, model, package, isinstance(trial, KerasFunctionalTrial))


def _callbacks_of(trial: AnyTrial, hparams: dict[str, Any]) -> list[Any] | tuple[Any, ...]:
    callbacks = call_with(trial.keras_callbacks, hparams=hparams)
    if not isinstance(callbacks, (list, tuple)):
        raise DefinitionError(
            f"`keras_callbacks` of `{type(trial).__name__}` returned an object of class `{type(callbacks).__name__}`\n"
            "  expected: a list of callbacks of Keras",
            "return a list, which may be empty",
        )
    return callbacks


def package_of(trial: AnyTrial | type[AnyTrial]) -> Any:
    """The Keras of a trial, or of its class: the package `keras`, or the one within TensorFlow."""
    top, _, rest = trial._package.partition(".")
    try:
        package = importlib.import_module(top)
    except ModuleNotFoundError as error:
        if error.name != top:
            raise
        kind = trial if isinstance(trial, type) else type(trial)
        raise DefinitionError(
            f"`{kind.__name__}` trains with `{trial._package}`, and `{top}` is not installed in this Python\n"
            f"  {sys.executable}\n"
            "  the trial was stopped before it trained",
            f"install it (`pip install {top}`), or use a `KerasTrial`, which trains with `keras`"
            if top != "keras"
            else "install it (`pip install keras`)",
        ) from None
    # `tensorflow.keras` is an attribute in all versions, and a module in some.
    return getattr(package, rest) if rest else package


def _tensorflow(package: Any) -> Any:
    """TensorFlow, if it is the backend; else None."""
    backend = getattr(package.backend, "backend", lambda: "tensorflow")()
    return importlib.import_module("tensorflow") if backend == "tensorflow" else None


def _configure_session(trial: AnyTrial, hparams: dict[str, Any], package: Any) -> None:
    tensorflow = _tensorflow(package)
    if tensorflow is None:
        return
    config = call_with(trial.session_config, hparams=hparams)
    if tensorflow.__version__.startswith("1."):
        package.backend.set_session(tensorflow.Session(config=config))
        return
    tensorflow.config.set_soft_device_placement(config.allow_soft_placement)
    if config.intra_op_parallelism_threads:
        tensorflow.config.threading.set_intra_op_parallelism_threads(config.intra_op_parallelism_threads)
    if config.inter_op_parallelism_threads:
        tensorflow.config.threading.set_inter_op_parallelism_threads(config.inter_op_parallelism_threads)


def _check_version(ranks: dict[str, Any] | None) -> None:
    """Checks, if several processes train, that this version of TensorFlow supports it (rule K5).

    Args:
        ranks: the part of the trial's context about them; None for one process.

    Raises:
        DefinitionError: it does not.
    """
    if not ranks:
        return
    tensorflow = importlib.import_module("tensorflow")
    version = tensorflow.__version__
    if not version.startswith(_VERSION_OF_RANKS):
        is_keras_3 = hasattr(tensorflow.keras.utils, "PyDataset")
        raise DefinitionError(
            f"`TF_CONFIG` names {ranks['size']} workers, and this is TensorFlow {version}\n"
            f"  {_KERAS_3 if is_keras_3 else _NOT_TRIED}\n  expected: TensorFlow {_VERSION_OF_RANKS}*\n  nothing was trained",
            "unset `TF_CONFIG`, and train in one process",
        )


class _Data:
    """A data set as a `fit` takes it.

    Args:
        data: what `make_data_loaders` returned.
        trial: the trial.
        package: Keras.

    Attributes:
        source: the `Sequence` or `tf.data.Dataset`.
        is_sequence: whether it is a `Sequence`.
        workers: arguments of a `fit` for the workers that build its batches; none if Keras's defaults apply.

    Raises:
        DefinitionError: it is something else.
    """

    def __init__(self, data: Any, trial: Any, package: Any) -> None:
        adapter = data if isinstance(data, KerasDataAdapter) else None
        self.source: Any = data if adapter is None else adapter.sequence
        if isinstance(self.source, BatchLoader):
            self.source = as_sequence(self.source, trial.batch_size())
        kind = getattr(package.utils, "PyDataset", None) or package.utils.Sequence
        self.is_sequence = not _is_dataset(self.source)
        is_array = hasattr(self.source, "shape") or isinstance(self.source, (list, tuple, dict))
        has_items = hasattr(self.source, "__getitem__") and hasattr(self.source, "__len__")
        if self.is_sequence and (is_array or not has_items):
            raise DefinitionError(
                f"`make_data_loaders` returned a data set of class `{type(data).__name__}`\n"
                "  expected: a `Sequence`, a `tf.data.Dataset`, or a `KerasDataAdapter` around a `Sequence`",
                "arrays become one by `pedl.frameworks.keras.data.InMemorySequence(data, labels, batch_size)`"
                if is_array
                else "derive its class from `Sequence` of `keras.utils`",
            )
        if self.is_sequence and not len(self.source):
            raise DefinitionError(
                f"the data set of class `{type(self.source).__name__}` has no batches\n  expected: at least one in each epoch"
            )
        if self.is_sequence and not isinstance(self.source, kind):
            self.source = _of_kind(self.source, kind)
        self.workers: dict[str, Any] = {name: getattr(adapter, name) for name in _OF_WORKERS} if adapter is not None else {}
        if self.is_sequence and hasattr(kind, "num_batches"):
            # Keras 3 asks the data set, not the call.
            for name, value in self.workers.items():
                setattr(self.source, name, value)

    def share(self, ranks: Ranks, package: Any) -> None:
        """If there are several ranks, takes this rank's share of the batches."""
        if ranks.size == 1:
            return
        if not self.is_sequence:
            self.source = shares.of_dataset(self.source, ranks.rank, ranks.size)
            return
        share = _of_kind(shares.OfSequence(self.source, ranks.rank, ranks.size), package.utils.Sequence)
        share._pedl_share, share._pedl_source = (ranks.rank, ranks.size), self.source
        self.source = share


def _is_dataset(data: object) -> bool:
    return any(base.__name__ in ("Dataset", "DatasetV1", "DatasetV2") for base in type(data).__mro__)


def _of_kind(items: Any, kind: Any) -> Any:
    """An object with items and a length, as a data set of Keras."""

    class Items(kind):
        def __init__(self) -> None:
            super().__init__()
            self.items = items

        def __len__(self) -> int:
            return len(self.items)

        def __getitem__(self, index: int) -> Any:
            return self.items[index]

        def on_epoch_end(self) -> None:
            getattr(self.items, "on_epoch_end", lambda: None)()

    return Items()


class _Fit:
    """Trains and validates a model by the methods that this version of Keras has.

    Raises:
        DefinitionError: this Keras cannot validate on such data if it trains on the other.
    """

    def __init__(self, model: Any, package: Any, training: _Data, validation: _Data) -> None:
        self._model = model
        self._training = training
        self._validation = validation
        parameters = inspect.signature(model.fit).parameters
        tensorflow = _tensorflow(package)
        is_of_graphs = tensorflow is not None and tensorflow.__version__.startswith("1.")
        self._uses_generators = is_of_graphs or not (hasattr(package, "version") or "workers" in parameters)
        self._uses_generators = self._uses_generators and hasattr(model, "fit_generator")
        self._takes_workers = "workers" in parameters
        if is_of_graphs and not training.is_sequence and validation.is_sequence:
            raise DefinitionError(
                "`make_data_loaders` returned a `tf.data.Dataset` to train on, and a `Sequence` to validate on\n"
                f"  expected: a `tf.data.Dataset` for both, since `fit` of TensorFlow {tensorflow.__version__} takes no other "
                "mixture but a `Sequence` to train on; nothing was trained",
            )

    def train(self, host: TrialHost, callbacks: list[Any], epochs: int) -> None:
        """Trains as long as the plan has batches.

        Args:
            host: of this trial.
            callbacks: of Keras.
            epochs: how many epochs there are if the plan does not decide.
        """
        data, validation = self._training, self._validation
        method = self._model.fit_generator if self._uses_generators and data.is_sequence else self._model.fit
        given: dict[str, Any] = {"callbacks": callbacks, "epochs": epochs, "verbose": 0, "shuffle": False}
        if data.is_sequence and (self._takes_workers or method != self._model.fit):
            given.update(data.workers)
        if "validation_freq" in inspect.signature(method).parameters:
            given.update(validation_data=validation.source, validation_freq=_NEVER)
        else:
            # Keras 2.2.4 and tf.keras of TensorFlow 1.13 would validate at the end of each epoch.
            host.validate_on(validation.source)
        method(data.source, **given)

    def evaluate(self) -> list[tuple[str, float]]:
        """Validates. Returns pairs of names, which begin with `val_`, and values."""
        model, data = self._model, self._validation
        if data.is_sequence and self._uses_generators:
            values = model.evaluate_generator(data.source, workers=0)
        elif "return_dict" in inspect.signature(model.evaluate).parameters:
            values = model.evaluate(data.source, verbose=0, return_dict=True)
            return [(f"val_{name}", float(value)) for name, value in values.items()]
        else:
            values = model.evaluate(data.source, verbose=0)
        values = values if isinstance(values, (list, tuple)) else [values]
        return [(f"val_{name}", float(value)) for name, value in zip(model.metrics_names, values)]


class _Last:
    """Puts the metrics of the last validation into the logs of the epoch, where callbacks look for them."""

    @staticmethod
    def made(package: Any, last: dict[str, Any]) -> Any:
        """A callback of Keras, for the first place of their list.

        Args:
            package: Keras.
            last: names and values of the last validation.
        """

        def on_epoch_end(self: Any, epoch: int, logs: dict[str, Any] | None = None) -> None:
            if logs is not None:
                logs.update(last)

        return type("LastValidation", (package.callbacks.Callback,), {"on_epoch_end": on_epoch_end})()


# -- the user's callbacks ----------------------------------------------------------------------------------------------


def _callback(package: Any, name: str, hook: str, call: Callable[[dict[str, Any] | None], object]) -> Any:
    """A callback of Keras with one hook."""
    base = package.callbacks.Callback
    # Before Keras 2.2.5 batches have one hook for all modes.
    hook = hook if hasattr(base, hook) else hook.replace("train_", "")
    return type(name, (base,), {hook: lambda self, batch, logs=None: call(logs)})()


def _step_begins(package: Any, steps: Steps) -> Any:
    return _callback(package, "StepBegins", "on_train_batch_begin", lambda logs: steps.batch_begins())


def _step_ends(package: Any, steps: Steps, names: keras_metrics.Names, host: TrialHost) -> Any:
    def known() -> list[dict[str, Any]] | None:
        """The metrics of each batch by itself, if they are known: Keras reports running values."""
        batches = host.of_step
        return None if batches is None else [names.of_batch(batch) for batch in batches]

    return _callback(
        package, "StepEnds", "on_train_batch_end", lambda logs: steps.batch_ended(names.of_batch(logs or {}), known)
    )


def _stops(package: Any, host: TrialHost, model: Any) -> Any:
    """A callback of Keras, for the last place of their list: ends the fit with the last batch, if nothing else does."""

    def stop(_logs: dict[str, Any] | None) -> None:
        if not host.batches_left:
            model.stop_training = True

    return _callback(package, "Stops", "on_train_batch_end", stop)


# -- without the host --------------------------------------------------------------------------------------------------


def _saved(model: Any, directory: str, is_keras_3: bool) -> str:
    """Saves a whole model, or only its weights if nothing except code describes it. Returns the path."""
    try:
        model.get_config()
    except NotImplementedError:
        path = os.path.join(directory, "model.weights.h5")
        model.save_weights(path)
        return path
    path = os.path.join(directory, "model.keras" if is_keras_3 else "model.h5")
    model.save(path)
    return path
