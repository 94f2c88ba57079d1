"""Trains `TensorpackTrial`: the loop of a `SimpleTrainer` of tensorpack, whose iterations are those of this module.

    graph       two towers over the same placeholders: one that trains, and `InferenceTower` for validations
    iteration   one run of the trainer's session: the optimizer, the loss, the metrics, and what tensorpack's callbacks add
    epoch       an epoch of tensorpack is a step of the trial. So summaries and monitors have their places
    validation  within the last iteration of a step: one run for each batch of a pass over the other DataFlow

Steps, checkpoints and resume are those of sessions (`py_hooks/tensorflow/sessions/session_loops.py`). A replay draws from
the DataFlows too (`py_hooks/tensorflow/data/dataflows.py`), so that they have the same position as before. In a replay
tensorpack's callbacks, and the user's monitors, run on the recorded numbers; what they write belongs to checkpoints as the files
of a script do.

The progress bar is left out of tensorpack's default callbacks.

TensorFlow 1 reads variables in place, without a copy. So the order in which a run reads and changes them is fixed (`_trainer`):
the gradients and the loss first, then the optimizer, then the count of batches. Without this order two runs differ.

Source: tensorpack 0.11, tensorpack/train/base.py, `Trainer.main_loop`; train/tower.py; callbacks/inference_runner.py.
"""
from __future__ import annotations

import importlib
import os
import sys

from pedl._context import context
from pedl._loops import metrics
from pedl.errors import DefinitionError, described
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from pedl._loops.host import TrialHost
    from pedl._loops.run import Loaders
    from pedl._loops.steps import Steps
    from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial

    from py_hooks.trial_classes.host import DataFlowSource, RecordingHost

_LOSS = "loss"
_OF_VALIDATIONS = "val_"
_TOWER = "InferenceTower"
_TRAINER_TYPE = "replicated"

# The operation in which tensorpack counts batches (callbacks/steps.py, `MaintainStepCounter`).
_COUNTS_UP = "global_step_incr"

# The default folder for monitors; the same as for `TFKerasTensorBoard`.
_DIRECTORY = "tensorboard"

# The methods that a `ModelDesc` has to define, and the alternative to each.
_METHODS = {"inputs": "get_input_signature", "build_graph": "build_graph", "optimizer": "get_optimizer"}


def run(trial: TensorpackTrial, loaders: Loaders, hparams: dict[str, Any], steps: Steps, host: RecordingHost) -> None:
    """Trains the trial. The arguments are explained in `pedl._loops.run`."""
    tp, v1 = _modules()
    v1.set_random_seed(host.seed)
    host.fix_dataflow_seed()
    model = _checked_model(call_with(trial.build_model, hparams=hparams, trainer_type=_TRAINER_TYPE), tp)
    flows = [_checked_flow(flow, what, tp) for flow, what in zip(loaders.make(), ("train", "validate"))]
    loop = _Loop(steps, host)
    trainer = _trainer(tp, loop, v1)
    loop.graph = _Graph(trial, model, trainer, hparams, v1)
    causes = host.causes_of_dataflows(flows)
    config = importlib.import_module("tensorpack.tfutils").get_default_sess_config()
    with v1.Session(graph=v1.Graph(), config=config) as session:
        # From here on the trial has its directory, and may write.
        host.begin_in(session, causes)
    if host.causes_of_dataflows(flows[:1]):
        # Validations do not train, and are not compared.
        host.feeds_vary(v1.get_default_graph())
    loop.feed_from(host.dataflow(flows[0]), host.dataflow(flows[1], is_cut=True))
    callbacks = [tp.MovingAverageSummary(), tp.MergeAllSummaries(), tp.RunUpdateOps(), _ends(tp, loop)]
    trainer.setup_callbacks(callbacks, _monitors(trial, hparams, tp))
    create = importlib.import_module("tensorpack.tfutils.sesscreate").NewSessionCreator()
    trainer.initialize(create, importlib.import_module("tensorpack.tfutils.sessinit").JustCurrentSession())
    loop.graph.provide(host)
    with host.loop():
        trainer.main_loop(steps.size, 1, -(-host.batches_left // steps.size))
    if host.batches_left:
        host.say(f"a monitor of the trial class has ended its training, {host.batches_left} batches before the last step")


def _modules() -> tuple[Any, Any]:
    """tensorpack, and `tensorflow.compat.v1`."""
    version = importlib.import_module("tensorflow").__version__
    if version.partition(".")[0] != "1":
        raise DefinitionError(
            f"a `TensorpackTrial` with TensorFlow {version}\n  expected: TensorFlow 1\n  nothing was trained",
            "install it, as by `pip install tensorflow==1.15.5`",
        )
    try:
        tp = importlib.import_module("tensorpack")
    except ModuleNotFoundError as error:
        if error.name != "tensorpack":
            raise
        raise DefinitionError(
            "a `TensorpackTrial`, and there is no package `tensorpack`\n  nothing was trained",
            "install it: `pip install tensorpack==0.11`",
        ) from None
    return tp, importlib.import_module("tensorflow.compat.v1")


def _checked_model(model: Any, tp: Any) -> Any:
    if not isinstance(model, tp.ModelDesc):
        raise DefinitionError(
            f"`build_model` returned an object of class `{type(model).__name__}`\n  expected: a `tensorpack.ModelDesc`"
        )
    kind = type(model)
    lacking = [
        name
        for name, other in _METHODS.items()
        if all(getattr(kind, one) is getattr(tp.ModelDesc, one) for one in (name, other))
    ]
    if lacking:
        raise DefinitionError(
            f"the model `{kind.__name__}` that `build_model` returned lacks {metrics.listed(lacking)}\n"
            f"  expected: {metrics.listed(_METHODS)}",
            f"define {metrics.listed(lacking)} in `{kind.__name__}`",
        )
    return model


def _checked_flow(flow: Any, what: str, tp: Any) -> Any:
    if isinstance(flow, tp.DataFlow):
        return flow
    raise DefinitionError(
        f"`make_data_loaders` returned an object of class `{type(flow).__name__}` to {what} on\n"
        "  expected: a `tensorpack.DataFlow`, whose elements are batches",
        "arrays become one by `tensorpack.BatchData(tensorpack.DataFromList(rows), batch_size)`",
    )


def _monitors(trial: TensorpackTrial, hparams: dict[str, Any], tp: Any) -> list[Any]:
    logger = importlib.import_module("tensorpack.utils.logger")
    if logger.get_logger_dir() is None:
        # Without this it would ask what to do with an existing folder.
        logger.set_logger_dir(os.path.join(_DIRECTORY, str(context()["trial_id"])), action="k")
    made = call_with(trial.tensorpack_monitors, hparams=hparams)
    if not isinstance(made, (list, tuple)) or not all(isinstance(one, tp.MonitorBase) for one in made):
        expected = "expected: a list of `tensorpack.MonitorBase`"
        raise DefinitionError(f"`tensorpack_monitors` returned {described(made)}\n  {expected}")
    return list(made)


class _Graph:
    """The graph of the trial.

    Attributes:
        inputs: placeholders.
        training, validation: tensors by the names of metrics.

    Raises:
        DefinitionError: the model, or names of metrics, are not what they have to be.
    """

    def __init__(self, trial: TensorpackTrial, model: Any, trainer: Any, hparams: dict[str, Any], v1: Any) -> None:
        source = importlib.import_module("tensorpack.input_source").PlaceholderInput()
        towers = importlib.import_module("tensorpack.tfutils.tower")
        with _ModelErrors(model):
            trainer.setup_graph(model.get_input_signature(), source, _cost_of(model, towers), model.get_optimizer)
            self.inputs = source.get_input_tensors()
            scope = v1.variable_scope(v1.get_variable_scope(), reuse=True)
            with scope, towers.PredictTowerContext(_TOWER):
                trainer.tower_func(*self.inputs)
        tower = trainer.towers.training()[0]
        names = [name for name in _names(trial, "training_metrics", hparams) if name != _LOSS]
        self.training = {_LOSS: v1.identity(tower.outputs)}
        self.training.update((name, _tensor(tower, name, "training_metrics", v1)) for name in names)
        self.validation = {
            _OF_VALIDATIONS + name: _tensor(trainer.towers[_TOWER], name, "validation_metrics", v1)
            for name in _names(trial, "validation_metrics", hparams)
        }
        # For exports only: tensorpack knows whether a tower trains when it builds the tower.
        self._is_training = v1.placeholder_with_default(False, [], name="is_training")
        self._record = dict(zip(model.input_names, self.inputs))

    def provide(self, host: TrialHost) -> None:
        """Gives the host the names of metrics in runs, and the graph that belongs to checkpoints."""
        graph = self._is_training.graph
        host.name_metrics_of_runs(graph, {tensor.name: name for name, tensor in self.training.items()})
        host.keep_graph(graph, self._record, self._is_training, self.validation)


class _ModelErrors:
    """`with _ModelErrors(model)`: if tensorpack rejects what a model returns, that is an error of the definition."""

    def __init__(self, model: Any) -> None:
        self._name = type(model).__name__

    def __enter__(self) -> _ModelErrors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        text = str(error)
        if isinstance(error, AssertionError) and text.startswith("ModelDesc."):
            raise DefinitionError(f"the model `{self._name}` cannot be built\n  {text}") from None


def _cost_of(model: Any, towers: Any) -> Callable[..., Any]:
    """`build_graph` of a model; in the tower that trains it has to return the tensor that is minimized."""

    def build_graph(*inputs: Any) -> Any:
        cost = model.build_graph(*inputs)
        if towers.get_current_tower_context().is_training:
            _check_cost(cost)
        return cost

    return build_graph


def _check_cost(cost: Any) -> None:
    if not hasattr(cost, "graph") or not hasattr(cost, "dtype"):
        raise DefinitionError(
            f"`build_graph` returned an object of class `{type(cost).__name__}`\n  expected: the tensor that is minimized"
        )
    if cost.shape.ndims != 0 or not cost.dtype.is_floating:
        raise DefinitionError(
            f"`build_graph` returned a tensor of shape {cost.shape} and type {cost.dtype.name}\n"
            "  expected: one floating point number, which is minimized",
            "take its mean, as in `tf.reduce_mean(cost)`",
        )


def _names(trial: TensorpackTrial, method: str, hparams: dict[str, Any]) -> list[str]:
    names = call_with(getattr(trial, method), hparams=hparams)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise DefinitionError(
            f"`{method}` returned an object of class `{type(names).__name__}`\n  expected: a list of names of tensors"
        )
    return list(names)


def _tensor(tower: Any, name: str, method: str, v1: Any) -> Any:
    """A new tensor with the value of a tower's tensor, of one in the graph around it, or of a variable.

    It is new because one value may be several metrics.
    """
    variables = {variable.op.name: variable for variable in v1.global_variables()}
    if name in variables:
        return v1.identity(variables[name])
    try:
        return v1.identity(tower.get_tensor(name))
    except (KeyError, ValueError):
        raise DefinitionError(
            f"`{method}` returned `{name}`, and there is no tensor of this name in the graph\n"
            "  expected: names that tensors were given, as in `tf.reduce_mean(correct, name=\"accuracy\")`",
            f"give a tensor of `build_graph` this name, or leave it out of `{method}`",
        ) from None


class _Loop:
    """The iterations of a trainer.

    Args:
        steps: calls the user's callbacks.
        host: counts batches.

    Attributes:
        graph: a `_Graph`.
    """

    # These are set before the first iteration.
    graph: Any
    _training: Any
    _validation: Any
    _first: dict[Any, Any] | None

    def __init__(self, steps: Steps, host: RecordingHost) -> None:
        self._steps = steps
        self._host = host
        self._means = metrics.Means(host.say)
        self._training = self._validation = self._first = None
        self.graph = None

    def feed_from(self, training: DataFlowSource, validation: DataFlowSource) -> None:
        """Sets the sources of batches. Takes the first batch, and checks it."""
        self._training, self._validation = training, validation
        batch = training.next()
        if batch is None:
            raise _without_batches("train")
        self._first = self._feeds(batch)

    def iterate(self, trainer: Any) -> None:
        """One batch, and a validation if the plan says so. A mistake of the definition ends the process.

        tensorpack would log an exception from here, with a traceback.
        """
        try:
            self._train(trainer)
        except DefinitionError as error:
            self._host.refuse(error.message, error.hint)

    def _train(self, trainer: Any) -> None:
        host, steps = self._host, self._steps
        if not host.batches:
            _wait_for_graphs(trainer)
        steps.batch_begins()
        feeds, self._first = self._first or self._feeds(self._next()), None
        of_batch, _ = trainer.hooked_sess.run([self.graph.training, trainer.train_op], feeds)
        steps.batch_ended(of_batch)
        if host.is_validation_due or not host.batches_left:
            self._validate(trainer)
        if not host.batches_left:
            # The session is closed after the last iteration.
            host.finish()

    def ends(self) -> None:
        """The training is over, and its session is still open. If a monitor has ended it, there was no last batch."""
        self._host.finish()

    def _next(self) -> Any:
        batch = self._training.next()
        if batch is None:
            batch = self._training.next()
        if batch is None:
            raise _without_batches("train")
        return batch

    def _validate(self, trainer: Any) -> None:
        host, steps = self._host, self._steps
        steps.validation_begins()
        batches = []
        for batch in iter(self._validation.next, None):
            batches.append(trainer.sess.run(self.graph.validation, self._feeds(batch)))
            host.heed_signal()
        if not batches:
            raise _without_batches("validate")
        means = self._means.of(batches)
        for name, value in metrics.scalars(means):
            trainer.monitors.put_scalar(name, value)
        host.validated(metrics.scalars(means))
        steps.validated(means)

    def _feeds(self, batch: Any) -> dict[Any, Any]:
        """The parts of a batch, by their placeholders.

        Raises:
            DefinitionError: the number or the shapes of its parts do not match the inputs of the model.
        """
        numpy = importlib.import_module("numpy")
        inputs = self.graph.inputs
        if not isinstance(batch, (list, tuple)) or len(batch) != len(inputs):
            of = f" of {len(batch)}" if isinstance(batch, (list, tuple)) else ""
            raise DefinitionError(
                f"a DataFlow of `make_data_loaders` gave an object of class `{type(batch).__name__}`{of}\n"
                f"  expected: a list of as many arrays as `inputs` of the model returns, {len(inputs)}"
            )
        arrays = [numpy.asarray(part, placeholder.dtype.as_numpy_dtype) for part, placeholder in zip(batch, inputs)]
        for array, placeholder in zip(arrays, inputs):
            if not placeholder.shape.is_compatible_with(array.shape):
                raise DefinitionError(
                    f"a DataFlow of `make_data_loaders` gave an array of shape {array.shape} for the input "
                    f"`{placeholder.op.name}`, which has {placeholder.shape}\n  expected: batches that the model takes",
                    "rows become batches by `tensorpack.BatchData(flow, batch_size)`",
                )
        return dict(zip(inputs, arrays))


def _wait_for_graphs(trainer: Any) -> None:
    """Waits for monitors that write the graph in a thread, so that it is in their files before the first checkpoint."""
    for monitor in trainer.monitors._monitors:
        thread = getattr(monitor, "_write_graph_thread", None)
        if thread is not None:
            thread.join()


def _ends(tp: Any, loop: _Loop) -> Any:
    """The callback that is called before the session is closed."""

    class Ends(tp.Callback):
        def _after_train(self) -> None:
            # It is also called after an exception, which is raised again: the training has not ended then.
            if sys.exc_info()[0] is None:
                loop.ends()

    return Ends()


def _without_batches(what: str) -> DefinitionError:
    return DefinitionError(
        f"the DataFlow to {what} on that `make_data_loaders` returned has no batches\n  expected: one at least"
    )


def _trainer(tp: Any, loop: _Loop, v1: Any) -> Any:
    """A trainer for one device. Its iterations are those of `loop`, and read and write variables in one fixed order."""
    towers = importlib.import_module("tensorpack.tfutils.tower")

    class Trainer(tp.SimpleTrainer):
        # TensorFlow's default: no variable changes before all gradients that depend on it are computed. With tensorpack's
        # choice the order differs from run to run.
        GATE_GRADIENTS = v1.train.Optimizer.GATE_OP

        def _setup_graph(self, input: Any, get_cost_fn: Callable[..., Any], get_opt_fn: Callable[[], Any]) -> list[Any]:
            with towers.TrainTowerContext(""):
                gradients = self._make_get_grad_fn(input, get_cost_fn, get_opt_fn)()
                optimizer = get_opt_fn()
                # Regularization reads the variables too.
                with v1.control_dependencies([self.towers.training()[0].outputs]):
                    self.train_op = optimizer.apply_gradients(gradients, name="train_op")
            return []

        def setup_callbacks(self, callbacks: list[Any], monitors: list[Any]) -> None:
            super().setup_callbacks(callbacks, monitors)
            # A learning rate that depends on the number of batches is read before this number is counted up.
            v1.get_default_graph().get_operation_by_name(_COUNTS_UP)._add_control_input(self.train_op)

        def run_step(self) -> None:
            loop.iterate(self)

    return Trainer()
