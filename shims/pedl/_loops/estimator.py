"""Trains `EstimatorTrial`: one `Estimator.train`, which a hook of this module ends when the plan is over.

A `train` for each step would build the graph again, and restart the data. So validations happen within it, between two
batches: the hook saves the variables, and `evaluate` reads them in a separate graph. Steps, checkpoints and resume are
those of sessions (`py_hooks/tensorflow/sessions/sessions.py`), and what the Estimator writes belongs to checkpoints as the files
of a script do.

SavedModels are written again before each checkpoint, from the current variables, and kept in it.

The Estimator that is trained is a copy of the user's, with a folder below the trial directory.
"""
from __future__ import annotations

import importlib
import os
import shutil

from pedl._loops import metrics
from pedl.errors import DefinitionError
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pedl._loops.host import TrialHost
    from pedl._loops.steps import Steps
    from pedl.frameworks.tensorflow.estimator_trial import EstimatorTrial

# The `tf_random_seed` of a `tf.estimator.RunConfig` if none was given (tensorflow_estimator 1.13 to 2.15).
_DEFAULT_SEED = 1

_GLOBAL_STEP = "global_step"


def run(trial: EstimatorTrial, _loaders: None, hparams: dict[str, Any], steps: Steps, host: TrialHost) -> None:
    """Trains the trial. The arguments are explained in `pedl._loops.run`."""
    v1 = importlib.import_module("tensorflow.compat.v1")
    if importlib.import_module("tensorflow").__version__.partition(".")[0] != "1":
        v1.disable_v2_behavior()
    of_tf = importlib.import_module("tensorflow").estimator
    given = _built(trial, "build_estimator", (v1.estimator.Estimator, of_tf.Estimator), "a `tf.estimator.Estimator`", hparams)
    train_spec = _built(trial, "build_train_spec", of_tf.TrainSpec, "a `tf.estimator.TrainSpec`", hparams)
    eval_spec = _built(trial, "build_validation_spec", of_tf.EvalSpec, "a `tf.estimator.EvalSpec`", hparams)
    estimator = _copy(given, host, v1)
    with v1.Graph().as_default():
        # This reports a mistake in it before anything is trained.
        estimator._call_input_fn(eval_spec.input_fn, v1.estimator.ModeKeys.EVAL)
    with v1.Session(graph=v1.Graph(), config=estimator.config.session_config) as session:
        # From here on the trial has its directory, and in it the folder of the Estimator.
        host.begin_in(session)
    loop = _Loop(estimator, eval_spec, steps, host, v1)
    host.saved_by(loop.saved)
    exports = _Exports(trial, estimator, hparams)
    if exports.folders:
        host.export_with_checkpoints(exports.folders, lambda: exports.write(loop))
    begins, ends = _hooks(v1, loop)
    with host.loop():
        estimator.train(train_spec.input_fn, hooks=[begins, *train_spec.hooks, ends])
    if host.batches_left:
        host.say(f"a hook of the trial class has ended its training, {host.batches_left} batches before the last step")


def _built(trial: EstimatorTrial, method: str, kinds: Any, expected: str, hparams: dict[str, Any]) -> Any:
    built = call_with(getattr(trial, method), hparams=hparams)
    if not isinstance(built, kinds):
        raise DefinitionError(
            f"`{method}` of `{type(trial).__name__}` returned an object of class `{type(built).__name__}`\n"
            f"  expected: {expected}"
        )
    return built


def _copy(given: Any, host: TrialHost, v1: Any) -> Any:
    """An Estimator of the same model, with the folder, the checkpoints and the data sets of the host."""
    kind = v1.estimator.Estimator
    kind = kind if isinstance(given, kind) else importlib.import_module("tensorflow").estimator.Estimator
    seed = given.config.tf_random_seed
    config = given.config.replace(
        model_dir=os.path.join(host.work_directory, "estimator"),
        tf_random_seed=host.seed if seed in (None, _DEFAULT_SEED) else seed,
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
    )
    estimator = kind(
        given._model_fn, config=config, params=given.params or None, warm_start_from=given._warm_start_settings
    )
    call = estimator._call_input_fn

    def call_input_fn(input_fn: Callable[..., Any], mode: str, *args: Any, **kwargs: Any) -> Any:
        data = call(input_fn, mode, *args, **kwargs)
        _check_data(data, mode)
        return data.repeat() if mode == v1.estimator.ModeKeys.TRAIN else data

    # An `input_fn` must not be wrapped, because the names of its parameters decide which arguments it gets.
    estimator._call_input_fn = call_input_fn
    return estimator


def _check_data(data: Any, mode: str) -> None:
    if hasattr(data, "repeat") and hasattr(data, "batch"):
        return
    what = "train" if mode == "train" else "validation"
    kind = f"a tuple of {len(data)}" if isinstance(data, tuple) else f"an object of class `{type(data).__name__}`"
    raise DefinitionError(
        f"the `input_fn` of `build_{what}_spec` returned {kind}\n"
        "  expected: a `tf.data.Dataset`; a tuple `(features, labels)` of tensors is not supported",
        "return the data set itself, whose elements are `(features, labels)`",
    )


class _Loop:
    """The work around the batches of a training.

    Args:
        estimator: the Estimator that trains.
        spec: the `EvalSpec`.
        steps: the `Steps`.
        host: the host.
        v1: `tensorflow.compat.v1`.

    Attributes:
        loss: the tensor of the loss.
        session: the session that trains.
    """

    loss: Any
    session: Any
    _saver: Any
    _exporter: Any

    def __init__(self, estimator: Any, spec: Any, steps: Steps, host: TrialHost, v1: Any) -> None:
        self._estimator = estimator
        self._spec = spec
        self._steps = steps
        self._host = host
        self._v1 = v1
        self._saver = self._exporter = self.loss = self.session = None

    def graph_is_built(self) -> None:
        """The graph is complete except what hooks add to it."""
        # The Estimator adds the loss of the model to this collection, as the last one.
        self.loss = self._v1.get_collection(self._v1.GraphKeys.LOSSES)[-1]
        self._saver = self._v1.train.Saver(max_to_keep=1, save_relative_paths=True)
        self._exporter = self._v1.train.Saver(max_to_keep=None)
        self._host.name_metrics_of_runs(self.loss.graph, {self.loss.name: "loss"})

    def batch_begins(self) -> None:
        """A batch is about to be trained."""
        self._steps.batch_begins()

    def batch_ended(self, loss: Any, context: Any) -> None:
        """A batch was trained. Validates if the plan says so; ends the training after the plan's last batch.

        Args:
            loss: of the batch.
            context: of the run.
        """
        host = self._host
        self._steps.batch_ended({"loss": loss})
        if host.is_validation_due or not host.batches_left:
            self._validate()
        if not host.batches_left:
            host.finish()
            context.request_stop()

    def ends(self) -> None:
        """The training is over, and its session is still open. If a hook has ended it, there was no last batch."""
        self._host.finish()

    def save_for_export(self, path: str) -> str:
        """Writes the current variables. Returns the path to read them from."""
        return self._exporter.save(self.session, path, write_meta_graph=False, write_state=False)

    def saved(self, directory: str) -> str:
        """Saves the variables, without the host. Returns the path to read them from."""
        if self._host.batches_left:
            raise DefinitionError(
                f"a hook of the trial class has ended its training, {self._host.batches_left} batches before the end "
                "of the step\n"
                "  expected: the whole step; nothing was saved"
            )
        return self.save_for_export(os.path.join(directory, "model.ckpt"))

    def _validate(self) -> None:
        self._steps.validation_begins()
        # This deletes the file of the previous validation, which logs a line about a deprecated function.
        path = self._saver.save(self.session, os.path.join(self._estimator.model_dir, "model.ckpt"), self._host.batches)
        spec = self._spec
        found = self._estimator.evaluate(
            spec.input_fn, steps=spec.steps, hooks=spec.hooks, checkpoint_path=path, name=spec.name
        )
        found = {name: value for name, value in found.items() if name != _GLOBAL_STEP}
        self._host.validated(metrics.scalars(found))
        self._steps.validated(found)


class _Exports:
    """A SavedModel for each function of the trial.

    Attributes:
        folders: their folders, each with the name of its function.

    Raises:
        DefinitionError: `build_serving_input_receiver_fns` returned something else.
    """

    def __init__(self, trial: EstimatorTrial, estimator: Any, hparams: dict[str, Any]) -> None:
        functions = call_with(trial.build_serving_input_receiver_fns, hparams=hparams)
        if not isinstance(functions, dict) or not all(map(callable, functions.values())):
            raise DefinitionError(
                f"`build_serving_input_receiver_fns` returned an object of class `{type(functions).__name__}`\n"
                "  expected: a dict of functions by names"
            )
        self._estimator = estimator
        self._root: str = os.path.join(os.path.dirname(estimator.model_dir), "exports")
        self._functions = functions
        self.folders = [os.path.join(self._root, name) for name in functions]

    def write(self, loop: _Loop) -> None:
        """Writes all of them, with the current variables.

        Args:
            loop: the `_Loop` that trains.
        """
        made = os.path.join(self._root, "new")
        os.makedirs(made, exist_ok=True)
        path = loop.save_for_export(os.path.join(made, "model.ckpt"))
        for folder, function in zip(self.folders, self._functions.values()):
            # It makes a folder in `made`, named by the time.
            found = self._estimator.export_saved_model(made, function, checkpoint_path=path)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(found, folder)
        shutil.rmtree(made)


def _hooks(v1: Any, loop: _Loop) -> tuple[Any, Any]:
    """The hook that is called first, and the one that is called last."""
    base: Any = v1.train.SessionRunHook

    class Begins(base):
        def begin(self) -> None:
            loop.graph_is_built()

        def after_create_session(self, session: Any, coord: Any) -> None:
            loop.session = session

        def before_run(self, run_context: Any) -> None:
            loop.batch_begins()

    class Ends(base):
        def before_run(self, run_context: Any) -> Any:
            return v1.train.SessionRunArgs(loop.loss)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            loop.batch_ended(run_values.results, run_context)

        def end(self, session: Any) -> None:
            loop.ends()

    return Begins(), Ends()
