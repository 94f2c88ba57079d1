"""Trains `TensorFlowTrial`: a loop of runs of one session, in the default graph.

    iterators   one over each data set; the one of the training data restarts at its end, the other for each validation
    record      the next element of one of them; `is_training` decides which one
    training    one run for each batch: the optimizer, the loss and the training metrics
    validation  one run for each batch until the data set is at its end, with `is_training` False

Steps, checkpoints and resume are those of sessions (`py_hooks/tensorflow/sessions/session_loops.py`): a replay computes only
the record of a run, so that the iterators have the same position as before.

`is_training` chooses among the iterators' handles, and not among their elements (`tf.cond`): an op in a branch cannot run by
itself.
"""
from __future__ import annotations

import importlib
import os

from pedl._loops import datasets, metrics
from pedl.errors import DefinitionError
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pedl._loops.host import TrialHost
    from pedl._loops.run import Loaders
    from pedl._loops.steps import Steps
    from pedl.frameworks.tensorflow.tensorflow_trial import TensorFlowTrial

_LOSS = "loss"


def run(trial: TensorFlowTrial, loaders: Loaders, hparams: dict[str, Any], steps: Steps, host: TrialHost) -> None:
    """Trains the trial. The arguments are explained in `pedl._loops.run`."""
    v1 = importlib.import_module("tensorflow.compat.v1")
    if importlib.import_module("tensorflow").__version__.partition(".")[0] != "1":
        v1.disable_v2_behavior()
    v1.set_random_seed(host.seed)
    v1.train.get_or_create_global_step()
    feeding = _Feeding(*loaders.make(), v1)
    graph = _Graph(trial, feeding, hparams, v1)
    with v1.Session(config=call_with(trial.session_config, hparams=hparams)) as session:
        host.name_metrics_of_runs(session.graph, graph.metric_names)
        session.run(graph.initializers)
        host.keep_graph(session.graph, feeding.record, feeding.is_training, graph.outputs)
        host.saved_by(lambda directory: _saved(session, directory, v1))
        host.begin_in(session)
        with host.loop():
            _Loop(session, graph, feeding, steps, host).train()
            host.finish()


def _saved(session: Any, directory: str, v1: Any) -> str:
    """Saves the variables, without the host. Returns the path for a `Saver` to read them."""
    with session.graph.as_default():
        return v1.train.Saver().save(session, os.path.join(directory, "model.ckpt"))


class _Feeding:
    """Elements of two data sets, in one tensor each.

    Attributes:
        record: the next element, with its nesting.
        is_training: a tensor that chooses the data set.
        training, validation: iterators.
    """

    def __init__(self, training: Any, validation: Any, v1: Any) -> None:
        elements = datasets.checked(training, validation, v1)
        self.training = v1.data.make_initializable_iterator(training.repeat())
        self.validation = v1.data.make_initializable_iterator(validation)
        self.is_training = v1.placeholder_with_default(True, [], name="is_training")
        handles = v1.stack([self.validation.string_handle(), self.training.string_handle()])
        handle = v1.gather(handles, v1.cast(self.is_training, v1.int32))
        iterator = v1.data.Iterator.from_string_handle(handle, elements.types, elements.shapes, elements.classes)
        self.record = iterator.get_next()


class _Graph:
    """The graph of the trial.

    Attributes:
        step: the operation that trains.
        outputs: the result of `build_graph`.
        training, validation: tensors by the names of metrics.
        metric_names: the names of metrics by the names of tensors that training fetches.
        initializers: operations that run first.

    Raises:
        DefinitionError: `build_graph` or names of metrics are not what they have to be.
    """

    def __init__(self, trial: TensorFlowTrial, feeding: _Feeding, hparams: dict[str, Any], v1: Any) -> None:
        outputs = self.outputs = _checked_outputs(trial.build_graph(feeding.record, feeding.is_training))
        training = _names(trial, "training_metrics", outputs, hparams)
        if _LOSS in training:
            raise DefinitionError(
                "`training_metrics` returned `loss`\n  expected: other metrics; the loss is always reported",
                "leave it out there",
            )
        validation = _names(trial, "validation_metrics", outputs, hparams)
        optimizer = call_with(trial.optimizer, hparams=hparams)
        if not hasattr(optimizer, "minimize"):
            raise DefinitionError(
                f"`optimizer` returned an object of class `{type(optimizer).__name__}`\n  expected: a `tf.train.Optimizer`"
            )
        with v1.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            self.step = optimizer.minimize(outputs[_LOSS], global_step=v1.train.get_global_step())
        # A tensor may be several metrics.
        self.training = {name: v1.identity(outputs[name]) for name in [_LOSS, *training]}
        self.validation = {name: v1.identity(outputs[name]) for name in validation}
        self.metric_names = {tensor.name: name for name, tensor in self.training.items()}
        initializers = v1.global_variables_initializer(), v1.local_variables_initializer(), v1.tables_initializer()
        self.initializers = [*initializers, feeding.training.initializer]


def _checked_outputs(outputs: Any) -> dict[str, Any]:
    if not isinstance(outputs, dict):
        raise DefinitionError(
            f"`build_graph` returned an object of class `{type(outputs).__name__}`\n"
            "  expected: a dict of tensors by their names, with `loss` among them"
        )
    for name, tensor in outputs.items():
        if not hasattr(tensor, "graph") or not hasattr(tensor, "dtype"):
            raise DefinitionError(
                f"`build_graph` returned an object of class `{type(tensor).__name__}` as `{name}`\n  expected: a tensor"
            )
    if _LOSS not in outputs:
        raise DefinitionError(
            f"`build_graph` returned no `loss`\n  it returned {metrics.listed(outputs)}\n"
            "  expected: the tensor that is minimized, by this name",
            "add it to the dict, as in `{\"loss\": loss}`",
        )
    loss = outputs[_LOSS]
    if loss.shape.ndims not in (None, 0) or not loss.dtype.is_floating:
        raise DefinitionError(
            f"`build_graph` returned a `loss` of shape {loss.shape} and type {loss.dtype.name}\n"
            "  expected: one floating point number",
            "take its mean, as in `tf.reduce_mean(loss)`",
        )
    return outputs


def _names(trial: TensorFlowTrial, method: str, outputs: dict[str, Any], hparams: dict[str, Any]) -> list[str]:
    names = call_with(getattr(trial, method), hparams=hparams)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise DefinitionError(
            f"`{method}` returned an object of class `{type(names).__name__}`\n  expected: a list of names of metrics"
        )
    unknown = [name for name in names if name not in outputs]
    if unknown:
        raise DefinitionError(
            f"`{method}` returned {metrics.listed(unknown)}, which `build_graph` does not return\n"
            f"  it returns {metrics.listed(outputs)}",
            "name one of these, or have `build_graph` return it",
        )
    return list(names)


class _Loop:
    def __init__(self, session: Any, graph: _Graph, feeding: _Feeding, steps: Steps, host: TrialHost) -> None:
        self._session = session
        self._graph = graph
        self._feeding = feeding
        self._steps = steps
        self._host = host
        self._end_of_data = importlib.import_module("tensorflow.compat.v1").errors.OutOfRangeError
        self._means = metrics.Means(host.say)

    def train(self) -> None:
        """Trains as long as the plan has batches; validates if the plan says so, and after the last batch."""
        host, steps = self._host, self._steps
        fetches = [self._graph.training, self._graph.step]
        is_first = True
        while host.batches_left:
            steps.batch_begins()
            try:
                of_batch, _ = self._session.run(fetches)
            except self._end_of_data:
                if not is_first:
                    raise
                raise _without_batches("train") from None
            is_first = False
            steps.batch_ended(of_batch)
            if host.is_validation_due or not host.batches_left:
                self._validate()

    def _validate(self) -> None:
        host, steps = self._host, self._steps
        steps.validation_begins()
        self._session.run(self._feeding.validation.initializer)
        batches = []
        while True:
            try:
                batches.append(self._session.run(self._graph.validation, {self._feeding.is_training: False}))
            except self._end_of_data:
                break
            host.heed_signal()
        if not batches:
            raise _without_batches("validate")
        means = self._means.of(batches)
        host.validated(metrics.scalars(means))
        steps.validated(means)


def _without_batches(what: str) -> DefinitionError:
    return DefinitionError(
        f"the data set to {what} on that `make_data_loaders` returned has no batches\n  expected: one at least"
    )
