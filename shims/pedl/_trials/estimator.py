"""Trains `EstimatorTrial`: one `Estimator.train`, which a hook of ours ends when the plan is over.

A `train` for each step would build the graph anew, and begin with the data again. So validations are made within it,
between two batches: the hook saves the variables, and `evaluate` reads them in a graph of its own. Steps, checkpoints and
resume are those of sessions (`py_hooks/tensorflow/sessions.py`), and what the Estimator writes belongs to checkpoints as
the files of a script do.

SavedModels are written anew before each checkpoint, from the variables as they are, and kept in it.

What is trained is a copy of the user's Estimator, with a folder below the trial directory.
"""
import importlib
import os
import shutil

from pedl._trials import metrics
from pedl.errors import DefinitionError
from pedl.trial import call_with

# What `tf.estimator.RunConfig` has as `tf_random_seed` where none was given (tensorflow_estimator 1.13 to 2.15).
_DEFAULT_SEED = 1

_GLOBAL_STEP = "global_step"


def run(trial, _loaders, hparams, steps, host):
    """Trains the trial. What the arguments are: `pedl._trials.run`."""
    v1 = importlib.import_module("tensorflow.compat.v1")
    if importlib.import_module("tensorflow").__version__.partition(".")[0] != "1":
        v1.disable_v2_behavior()
    of_tf = importlib.import_module("tensorflow").estimator
    given = _built(trial, "build_estimator", (v1.estimator.Estimator, of_tf.Estimator), "a `tf.estimator.Estimator`", hparams)
    train_spec = _built(trial, "build_train_spec", of_tf.TrainSpec, "a `tf.estimator.TrainSpec`", hparams)
    eval_spec = _built(trial, "build_validation_spec", of_tf.EvalSpec, "a `tf.estimator.EvalSpec`", hparams)
    estimator = _copy(given, host, v1)
    with v1.Graph().as_default():
        # A mistake in it is told before anything is trained.
        estimator._call_input_fn(eval_spec.input_fn, v1.estimator.ModeKeys.EVAL)
    with v1.Session(graph=v1.Graph(), config=estimator.config.session_config) as session:
        # The trial has its directory from here on, and in it that of the Estimator.
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


def _built(trial, method, kinds, expected, hparams):
    built = call_with(getattr(trial, method), hparams=hparams)
    if not isinstance(built, kinds):
        raise DefinitionError(
            f"`{method}` of `{type(trial).__name__}` returned an object of class `{type(built).__name__}`\n"
            f"  expected: {expected}"
        )
    return built


def _copy(given, host, v1):
    """An Estimator of the same model, whose folder, checkpoints and data sets are the host's."""
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

    def call_input_fn(input_fn, mode, *args, **kwargs):
        data = call(input_fn, mode, *args, **kwargs)
        _check_data(data, mode)
        return data.repeat() if mode == v1.estimator.ModeKeys.TRAIN else data

    # Which arguments an `input_fn` is given, depends on their names: it must not be wrapped itself.
    estimator._call_input_fn = call_input_fn
    return estimator


def _check_data(data, mode):
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
    """What is done around the batches of a training.

    Args:
        estimator: what trains.
        spec: the `EvalSpec`.
        steps: the `Steps`.
        host: the host.
        v1: `tensorflow.compat.v1`.

    Attributes:
        loss: its tensor.
        session: the one that trains.
    """

    def __init__(self, estimator, spec, steps, host, v1):
        self._estimator = estimator
        self._spec = spec
        self._steps = steps
        self._host = host
        self._v1 = v1
        self._saver = self._exporter = self.loss = self.session = None

    def graph_is_built(self):
        """The graph is complete but for what hooks add to it."""
        # The Estimator puts what the model returns as its loss there, last.
        self.loss = self._v1.get_collection(self._v1.GraphKeys.LOSSES)[-1]
        self._saver = self._v1.train.Saver(max_to_keep=1, save_relative_paths=True)
        self._exporter = self._v1.train.Saver(max_to_keep=None)
        self._host.name_metrics_of_runs(self.loss.graph, {self.loss.name: "loss"})

    def batch_begins(self):
        """A batch is to be trained."""
        self._steps.batch_begins()

    def batch_ended(self, loss, context):
        """A batch was trained. Validates where the plan says so; after its last batch the training ends.

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

    def ends(self):
        """The training is over, and its session still open. A hook may have ended it, so that there was no last batch."""
        self._host.finish()

    def save_for_export(self, path):
        """Writes the variables as they are. Returns the path by which they are read."""
        return self._exporter.save(self.session, path, write_meta_graph=False, write_state=False)

    def saved(self, directory):
        """Saves the variables, without the host. Returns the path by which they are read."""
        if self._host.batches_left:
            raise DefinitionError(
                f"a hook of the trial class has ended its training, {self._host.batches_left} batches before the end "
                "of the step\n"
                "  expected: the whole step; nothing was saved"
            )
        return self.save_for_export(os.path.join(directory, "model.ckpt"))

    def _validate(self):
        self._steps.validation_begins()
        # The file of the validation before is deleted, which logs a line about a deprecated function.
        path = self._saver.save(self.session, os.path.join(self._estimator.model_dir, "model.ckpt"), self._host.batches)
        spec = self._spec
        found = self._estimator.evaluate(
            spec.input_fn, steps=spec.steps, hooks=spec.hooks, checkpoint_path=path, name=spec.name
        )
        found = {name: value for name, value in found.items() if name != _GLOBAL_STEP}
        self._host.validated(metrics.scalars(found))
        self._steps.validated(found)


class _Exports:
    """A SavedModel for each function of the trial's.

    Attributes:
        folders: where they are, each called by the function's name.

    Raises:
        DefinitionError: `build_serving_input_receiver_fns` returned something else.
    """

    def __init__(self, trial, estimator, hparams):
        functions = call_with(trial.build_serving_input_receiver_fns, hparams=hparams)
        if not isinstance(functions, dict) or not all(map(callable, functions.values())):
            raise DefinitionError(
                f"`build_serving_input_receiver_fns` returned an object of class `{type(functions).__name__}`\n"
                "  expected: a dict of functions by names"
            )
        self._estimator = estimator
        self._root = os.path.join(os.path.dirname(estimator.model_dir), "exports")
        self._functions = functions
        self.folders = [os.path.join(self._root, name) for name in functions]

    def write(self, loop):
        """Writes all of them, of the variables as they are.

        Args:
            loop: what trains.
        """
        made = os.path.join(self._root, "new")
        os.makedirs(made, exist_ok=True)
        path = loop.save_for_export(os.path.join(made, "model.ckpt"))
        for folder, function in zip(self.folders, self._functions.values()):
            # It makes a folder in that one, called by the time.
            found = self._estimator.export_saved_model(made, function, checkpoint_path=path)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(found, folder)
        shutil.rmtree(made)


def _hooks(v1, loop):
    """The hook that is called first, and the one that is called last."""
    base = v1.train.SessionRunHook

    class Begins(base):
        def begin(self):
            loop.graph_is_built()

        def after_create_session(self, session, coord):
            loop.session = session

        def before_run(self, run_context):
            loop.batch_begins()

    class Ends(base):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs(loop.loss)

        def after_run(self, run_context, run_values):
            loop.batch_ended(run_values.results, run_context)

        def end(self, session):
            loop.ends()

    return Begins(), Ends()
