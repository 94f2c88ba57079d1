"""Keras 2 on TensorFlow 1, and the Keras within TensorFlow 1: a model's compute functions, recorded and answered.

A model's `train_function` and its siblings are objects of `K.function`: a list of arrays goes in, a list of numbers
comes out, and the variables of the session change. The object that `_make_train_function` sets on the model is wrapped
here. Making it creates slots and ops in the graph, so it is made in a replay too. If the framework's loop makes it with the
first batch, or makes it anew with a later one (`tf.keras` does, when sample weights appear), the record of that batch says
so, and that batch is really built in a replay. The first call initializes the new variables, which is done in a replay too;
so an answered call leaves out nothing but the numbers.

Source: keras 2.3.1, keras/engine/training.py; tensorflow 1.15.5, tensorflow/python/keras/backend.py and
engine/training.py.
"""
from __future__ import annotations

import contextlib
import sys
from threading import get_ident

from py_hooks import causes as table
from py_hooks.border import ExitCode
from py_hooks.engine.patch import binding
from py_hooks.keras import models, packages, plan, sources
from py_hooks.keras.functions import ModelFunction, runs_user_code
from py_hooks.keras.keras2_graph import enqueuers
from py_hooks.keras.keras2_graph.batch_sizes import SIZE
from py_hooks.keras.validation import GraphValidation
from py_hooks.recording import call_kinds, ending, fingerprint, recorder
from py_hooks.tensorflow.graphs import graphs, op_kinds
from py_hooks.tensorflow.sessions import not_intercepted, session_causes, sessions
from py_hooks.tensorflow.variables.resource_variables import RESOURCE_VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from numpy import ndarray

    from py_hooks.keras.accumulators import Sums
    from py_hooks.recording.recorder import Calls
    from py_hooks.tensorflow.graphs.graphs import Effects, Graph

# The usual types of inputs, with those of numpy below: none of them represents a value that is still to be computed.
_VALUES: set[type] = {int, float, bool}


def _maker(name: str, attribute: str, kind: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    @binding
    def advice(original: Callable[..., Any]) -> Callable[..., Any]:
        def make(model: Any) -> None:
            if kind != call_kinds.TRAIN or isinstance(getattr(model, attribute, None), GraphFunction):
                # A function that tf.keras makes anew needs no order: its optimizers count batches after their other updates.
                _make(original, model, attribute, kind)
            else:
                with _ordered_updates(model):
                    _make(original, model, attribute, kind)

        return make

    advice.__name__ = name
    advice.__doc__ = f"`Model._{name}`: wraps what it sets; for training, orders what reads the optimizer's count of batches."
    return advice


def _make(original: Callable[..., Any], model: Any, attribute: str, kind: int) -> None:
    calls = recorder.CALLS
    if calls.depth:
        original(model)
    else:
        with calls.unrecorded():
            original(model)
    function = getattr(model, attribute)
    # In eager mode it is another object, or is not made.
    if not isinstance(function, GraphFunction) and hasattr(function, "updates_op"):
        setattr(model, attribute, GraphFunction(model, kind, function))


make_train_function = _maker("make_train_function", "train_function", call_kinds.TRAIN)
make_test_function = _maker("make_test_function", "test_function", call_kinds.TEST)
make_predict_function = _maker("make_predict_function", "predict_function", call_kinds.PREDICT)
make_fit_function = _maker("make_fit_function", "_fit_function", call_kinds.TRAIN)
make_eval_function = _maker("make_eval_function", "_eval_function", call_kinds.TEST)


class GraphFunction(ModelFunction):
    """A compute function of one model: called live, or answered from the log. Otherwise it behaves as Keras's function."""

    function: Any
    _running: frozenset[str]
    _fetched: Fetched | None

    def __init__(self, model: Any, kind: int, function: Any) -> None:
        ModelFunction.__init__(self, model, kind, function)
        import numpy

        _VALUES.update((numpy.ndarray, numpy.float32, numpy.float64))
        self._graph = graphs.of(function.outputs[0].graph)
        self._effects: Effects | None = None
        self.answers_batches = not runs_user_code(model)
        self._gives_arrays = any(output.shape.ndims != 0 for output in function.outputs)
        self._is_new = True
        self._running, self._fetched = frozenset(), None
        if kind == call_kinds.TRAIN:
            self._find_sums(list(model.metrics_names))
            self.accumulators.begin_with_epoch(model)
        if kind != call_kinds.PREDICT:
            recorder.CALLS.trial.metric_names(self.identity, list(model.metrics_names))

    def __getattr__(self, name: str) -> Any:
        if "function" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.function, name)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Runs the function for one batch, or returns its recorded result."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            self.pass_by(calls)
            return self.function(inputs)
        is_scripts = bool(calls.arguments)
        tensors = [each for each in inputs if type(each) not in _VALUES and fingerprint.is_symbolic(each)]
        if tensors:
            self._check_sources(calls, tensors)

        def compute() -> tuple[Any, int]:
            result = self.function(inputs)
            self._is_new = False
            return result, 1

        def skip() -> int:
            self._initialize(calls)
            if not is_scripts:
                self._pull(calls, tensors)
            return 1

        return self.perform(
            calls, compute, skip, calls.arguments or _batch_size(inputs) | self._is_new,
            notes_trace=False, may_trace=is_scripts,
            # The script may change what it gets.
            is_kept_at_once=self._gives_arrays or is_scripts,
        )  # fmt: skip

    # -- sums of metrics -------------------------------------------------------------------------------------------

    def _find_sums(self, names: Sequence[str]) -> None:
        """Has the sums behind the results fetched, too. Adds nothing to the graph."""
        function = self.function
        running = {name: output for name, output in zip(names, function.outputs) if _is_of_variables_alone(output)}
        self._running = frozenset(running)
        found = {name: _quotient(output) for name, output in running.items()}
        if not packages.graph_facts_of(self.model()).functions_have_fetch_callbacks:
            found = {}
        self._fetched = self.accumulators.fetched = Fetched(name for name, sums in found.items() if sums)
        self._fetched.attach(function, found, self._graph)

    def running_names(self) -> frozenset[str]:
        """Names of metrics that are computed from variables alone."""
        return self._running

    def accumulated(self) -> Sums | None:
        """The sums after the last batch; None before the first."""
        return self._fetched.accumulated()

    def snapshot(self) -> list[Any]:
        """The sums after the last batch."""
        return list(self._fetched.values)

    def sums_of(self, snapshot: Sequence[Any] | Sums | None) -> Sums | None:
        """The sums at the time of the snapshot."""
        return self._fetched.sums_of(snapshot)

    def _initialize(self, calls: Calls) -> None:
        """Gives the variables that were created with the function their values, as its first call does."""
        if self._is_new:
            self._is_new = False
            with calls.unrecorded():
                sys.modules[type(self.function).__module__].get_session()

    def _check_sources(self, calls: Calls, tensors: list[Any]) -> None:
        """Reports what a replay could not pull again: only iterators yield the same again."""
        effects = self._graph.effects(tensors, [])
        for kind in effects.takes_data + effects.hidden_streams:
            if not op_kinds.is_iterator(kind):
                calls.exactness.refuse(table.TENSORS_FROM(kind=kind))
        if any(not name.startswith("pedl_random/") for name in effects.writes):
            calls.exactness.refuse(table.TENSORS_WRITE())

    def _pull(self, calls: Calls, tensors: list[Any]) -> None:
        """Takes the next elements of the iterators behind tensors, as the call would.

        At an iterator's end it raises what the call would raise, for which there is no record.
        """
        if tensors:
            with calls.unrecorded():
                sys.modules[type(self.function).__module__].get_session().run([tensor.op for tensor in tensors])

    def answer_skipped(self, batch: Any) -> Any:
        """What a `..._on_batch` that the framework's loop calls returns for a batch that was not built."""
        outputs = self([batch])
        return outputs[0] if len(outputs) == 1 else outputs

    def changed(self, calls: Calls) -> None:
        """Notes which variables a call changes."""
        if self._effects is None:
            self._effects = self._find_effects(calls)
        note = self._graph.changed_by_training if self.kind == call_kinds.TRAIN else self._graph.changed
        note(self._effects.writes)

    def _find_effects(self, calls: Calls) -> Effects:
        function = self.function
        fetches = list(function.outputs) + [function.updates_op] + list(function.fetches)
        effects = self._graph.effects(fetches, list(function.inputs))
        for kind in effects.hidden_streams:
            calls.exactness.refuse(table.HIDDEN_STATE(kind=kind, place="a model"))
        if effects.takes_data:
            calls.exactness.refuse(table.TAKES_DATA())
        return effects


def _batch_size(inputs: Sequence[Any]) -> int:
    """The size of a batch in records: how many rows its first array has; 0 for that of a pipeline."""
    if not inputs or (type(inputs[0]) not in _VALUES and fingerprint.is_symbolic(inputs[0])):
        return 0
    shape: Any = getattr(inputs[0], "shape", ())
    return (SIZE | int(shape[0]) << 1) if len(shape) else 0


# -- sums of metrics ---------------------------------------------------------------------------------------------------

_READS = ("ReadVariableOp", "Variable", "VariableV2", "VarHandleOp", "TemporaryVariable")
_QUOTIENTS = ("RealDiv", "Div", "DivNoNan")
_PASSING = ("Identity", "Cast", "Squeeze")


class Fetched:
    """The sums of a model's metrics after its last batch.

    They are fetched with each batch, because they are computed for it anyway, and its results come to the host as well.

    Args:
        names: names of the metrics.

    Attributes:
        values: alternately total and count; None before the first batch.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self.values: list[Any] = [None] * (2 * len(self._names))

    def attach(self, function: Any, sums: dict[str, list[Any] | None], graph: Graph) -> None:
        """Has a function of the backend fetch them: a pair of tensors for each name.

        The interception of the session keeps them (`session_runs.make_callable_from_options`): the way of the function, a
        callback for each tensor, takes longer.
        """
        fetched = [tensor for name in self._names for tensor in sums[name]]
        if fetched:
            function.fetches = list(function.fetches) + fetched
            graph.keep_fetched(fetched, self)

    def accumulated(self) -> Sums | None:
        """The sums by name; None before the first batch."""
        return self.sums_of(self.values)

    def sums_of(self, snapshot: Sequence[Any] | Sums | None) -> Sums | None:
        """The sums as they were when this copy of `values` was made. It may be a dict of them, or None."""
        if snapshot is None or isinstance(snapshot, dict):
            return snapshot
        if any(value is None for value in snapshot):
            return None
        numbers = list(map(float, snapshot))
        return dict(zip(self._names, zip(numbers[::2], numbers[1::2])))

    def put(self, sums: Sums) -> None:
        """Sets the sums of a checkpoint as those of the last batch."""
        self.values = [number for name in self._names for number in sums[name]]


def _is_of_variables_alone(tensor: Any) -> bool:
    """Whether a tensor is computed from variables, and from nothing that is fed with a batch: a running value."""
    seen, waiting = set(), [tensor.op]
    while waiting:
        op = waiting.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.type in _READS:
            continue
        if not op.inputs and op.type != "Const":
            return False
        waiting.extend(one.op for one in op.inputs)
    return True


def _quotient(tensor: Any) -> list[Any] | None:
    """The two sums whose quotient a tensor is, as they were read for it; None if it is anything else."""
    op = _behind_passing(tensor).op
    if op.type not in _QUOTIENTS:
        return None
    sums = list(op.inputs)
    are_read = all(_behind_passing(one).op.type in _READS and one.shape.ndims == 0 for one in sums)
    return sums if are_read else None


def _behind_passing(tensor: Any) -> Any:
    while tensor.op.type in _PASSING:
        tensor = tensor.op.inputs[0]
    return tensor


# -- the order of updates ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _ordered_updates(model: Any) -> Iterator[None]:
    """While a train function is made: what reads a variable that the optimizer changes does so before the change.

    Keras 2 leaves the order open, so that runs of one script differ, even on one machine. Every optimizer creates
    `update_add(iterations, 1)` and then reads `iterations` (keras 2.3.1, keras/optimizers.py, `Adam.get_updates`). And
    up to 2.2.5 variables are references, which are changed in place while gradients may still be read from them.

    Plain Python read the old count with Adam, Adamax and RMSprop in every run made, the new one with Nadam, and either
    with SGD (2.3.1, two cores). The optimizers' formulas mean the old one, so it is used for all of them.
    """
    optimizer = getattr(model, "optimizer", None)
    if not hasattr(optimizer, "get_updates"):
        yield
        return
    get_updates = optimizer.get_updates

    def get_ordered_updates(*args: Any, **kwargs: Any) -> Any:
        updates = get_updates(*args, **kwargs)
        _read_before_written([update.op for update in updates if hasattr(update, "op")], model.total_loss.op)
        return updates

    # Not by `__setattr__`, with which the optimizers of tf.keras turn values into hyperparameters.
    vars(optimizer)["get_updates"] = get_ordered_updates
    try:
        yield
    finally:
        del vars(optimizer)["get_updates"]


def _read_before_written(writers: list[Any], loss: Any) -> None:
    """Makes operations that read what `writers` change run before them, if they run for the loss at all."""
    running = _reached(writers + [loss], _inputs_of)
    for writer in writers:
        if not writer.inputs or not op_kinds.is_variable(writer.inputs[0]):
            continue
        after = _reached([writer], _users_of) | {op.name for op in writer.control_inputs}
        readers = [op for op in _readers(writer.inputs[0]) if op.name in running and op.name not in after]
        writer._add_control_inputs(readers)


def _readers(held: Any) -> list[Any]:
    """The ops that read a variable's value; for a reference, the ops that use the read value, which is no copy."""
    found = []
    for op in held.consumers():
        if op.type == "ReadVariableOp":
            found.append(op)
        elif op.type == "Identity":
            found.extend(op.outputs[0].consumers())
    return [op for op in found if op._get_control_flow_context() is None]


def _inputs_of(op: Any) -> list[Any]:
    return [tensor.op for tensor in op.inputs] + op.control_inputs


def _users_of(op: Any) -> list[Any]:
    return [user for tensor in op.outputs for user in tensor.consumers()] + op._control_outputs


def _reached(operations: Iterable[Any], neighbours_of: Callable[[Any], list[Any]]) -> set[str]:
    """Names of the operations and of all operations that are reached along their neighbours."""
    seen, waiting = set(), list(operations)
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            waiting.extend(neighbours_of(op))
    return seen


# -- what the generation knows of weights and devices ------------------------------------------------------------------


class GraphWeights:
    """Weights that are variables of a TensorFlow 1 graph."""

    sources = frozenset([sources.GENERATORS, sources.PIPELINES, sources.PROCESSES, sources.TENSORS])
    # There is no `steps_per_execution`.
    counts_steps = False
    # Without workers it neither shuffles a data set nor ends its epochs (keras 2.3.1, engine/training_generator.py).
    trains_otherwise_without_workers = True

    def steps_per_execution(self, model: Any) -> int:
        """How many batches a call of the model's training function takes."""
        return 1

    def is_stale(self, weight: Any) -> bool:
        """Whether training changed the weight since Python last wrote it."""
        return weight.op.name in graphs.of(weight.graph).stale

    def values(self, model: Any, weights: list[Any]) -> list[ndarray]:
        """The values of weights of a model, read without being recorded."""
        with recorder.CALLS.unrecorded():
            return packages.module(model, "backend").batch_get_value(weights)

    def loaded(self, model: Any) -> None:
        """Notes that a model's weights now have values that only a file has."""
        if not self.is_intercepted():
            return
        optimizer = getattr(model, "optimizer", None)
        for weight in sources.weights_of(model) + sources.weights_of(optimizer):
            graphs.of(weight.graph).changed([weight.op.name])

    def is_intercepted(self) -> bool:
        """Whether there are compute functions, and they are intercepted; in eager mode there are none."""
        from tensorflow.python.eager import context

        return not context.executing_eagerly()

    def causes(self, model: Any) -> list[table.Told]:
        """Causes in the session why it cannot be resumed exactly."""
        if not self.is_intercepted():
            return [_eager_cause(recorder.CALLS)]
        session = sessions.SESSIONS.of_default_graph(packages.module(model, "backend"))
        found = []
        if packages.graph_facts_of(model).models_have_strategy and model._distribution_strategy is not None:
            found.append(table.DISTRIBUTED(strategy=type(model._distribution_strategy).__name__))
        return found + session_causes.causes_of(session)


WEIGHTS = GraphWeights()


def _eager_cause(calls: Calls) -> table.Told:
    """The cause for training in eager mode. Ends the process if a number of steps is given, which would have no effect."""
    if calls.trial.has_plan:
        ending.stop(
            calls,
            ExitCode.CONFIGURATION,
            "the number of steps is given, and `tf.keras` trains in eager mode of TensorFlow 1\n"
            "  its batches are not counted there\n"
            "  the script was stopped before it trained",
            "leave out `tf.enable_eager_execution()`, or leave the number of steps to the script",
        )
    return not_intercepted.cause_of(not_intercepted.EAGER_TRAINING)


def prepare(calls: Calls) -> None:
    """Has the entry points look at weights and devices, and fits validate, as TensorFlow 1 requires."""
    if calls.checkpoints.keeps(RESOURCE_VARIABLES):
        ending.stop(
            calls,
            ExitCode.UNSUPPORTED,
            "keras 2.2.0 - 2.3.1 on TensorFlow 2 is not something pedl-run can intercept\n"
            "  known: keras 2.2.0 - 2.3.1 on TensorFlow 1\n"
            "  the script was stopped before it trained",
            "use `tf.keras`, or TensorFlow 1.15; or pass `--no-hooks keras` to train without checkpoints and resume",
        )
    sources.use(WEIGHTS)
    plan.prepare(calls, GraphValidation())
    calls.checkpoints.keep("empty items", enqueuers.EMPTY_ITEMS)
    calls.lifecycle.at_begin.append(lambda: enqueuers.EMPTY_ITEMS.begin(calls.checkpoints.states().get("empty items", [])))
    models.prepare(calls, sessions.SESSIONS.key_of)
    if not calls.checkpoints.keeps(sessions.SESSIONS):
        calls.exactness.refuse(table.NO_HOOKS_SESSIONS())
