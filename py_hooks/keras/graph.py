"""Keras 2 on TensorFlow 1: the compute functions of a model, recorded and answered.

A model's `train_function` and its siblings are objects of `K.function`: a list of arrays goes in, a list of numbers
comes out, and the variables of the session change. The object that `_make_train_function` sets on the model is
wrapped here. Making it creates slots and ops in the graph, so it is made in a replay too; its first call makes
nothing, so an answered call leaves nothing out but the numbers.

Source: keras 2.3.1, keras/engine/training.py; tensorflow 1.15.5, tensorflow/python/keras/backend.py.
"""
import contextlib
import sys
from threading import get_ident

from py_hooks.advice import calls as recorder
from py_hooks.advice import entries
from py_hooks.engine.patch import binding
from py_hooks.keras import plan, sources
from py_hooks.keras.functions import ComputeFunction, runs_user_code
from py_hooks.keras.validation import GraphValidation
from py_hooks.tensorflow import graphs, sessions

_KINDS = (recorder.TRAIN, recorder.TEST, recorder.PREDICT)

# Marks `arguments` as the size of a batch that the framework fed; a checksum of the script's own batch has 32 bits.
_SIZE = 1 << 40


def _maker(name, attribute, kind):
    @binding
    def advice(original):
        def make(model):
            if isinstance(getattr(model, attribute, None), GraphFunction):
                original(model)
            elif kind == recorder.TRAIN:
                with _ordered_updates(model):
                    _make(original, model, attribute, kind)
            else:
                _make(original, model, attribute, kind)

        return make

    advice.__name__ = name
    advice.__doc__ = f"`Model._{name}`: wraps what it sets; for training, orders what reads the optimizer's count of batches."
    return advice


def _make(original, model, attribute, kind):
    calls = recorder.CALLS
    calls.depth += 1
    try:
        original(model)
    finally:
        calls.depth -= 1
    function = getattr(model, attribute)
    if not isinstance(function, GraphFunction):
        setattr(model, attribute, GraphFunction(model, kind, function))


make_train_function = _maker("make_train_function", "train_function", recorder.TRAIN)
make_test_function = _maker("make_test_function", "test_function", recorder.TEST)
make_predict_function = _maker("make_predict_function", "predict_function", recorder.PREDICT)


class GraphFunction(ComputeFunction):
    """A compute function of one model: called live, or answered from the log. Else it is what Keras made."""

    def __init__(self, model, kind, function):
        ComputeFunction.__init__(self, model, kind, function)
        self._graph = graphs.of(function.outputs[0].graph)
        self._effects = None
        self.answers_batches = not runs_user_code(model)
        self._gives_arrays = any(output.shape.ndims != 0 for output in function.outputs)
        if kind != recorder.PREDICT:
            recorder.CALLS.trial.metric_names(self.identity, list(model.metrics_names))

    def __getattr__(self, name):
        if "function" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.function, name)

    def __call__(self, inputs):
        """Runs the function for one batch, or gives its recorded result."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            return self.function(inputs)
        if calls.replaying and calls.arguments:
            return self.answer_batch(calls, lambda: self.function(inputs))
        arguments = calls.arguments or _batch_size(inputs)
        if calls.replaying:
            result = self.answer(calls, arguments)
            self.count_answered(calls)
            return result
        _, result = self.make(calls, lambda: self.function(inputs))
        calls.record(self.kind, self.identity, arguments, result)
        if self._gives_arrays or calls.arguments:
            # They are the script's to change.
            calls.append_pending()
        self.count_made(calls)
        return result

    def answer_skipped(self, batch):
        """What the `..._on_batch` that the framework's loop calls returns for a batch that was not built."""
        outputs = self([batch])
        return outputs[0] if len(outputs) == 1 else outputs

    def changed(self, calls):
        """Notes which variables a call changes."""
        if self._effects is None:
            self._effects = self._find_effects(calls)
        self._graph.changed(self._effects.writes)

    def _find_effects(self, calls):
        function = self.function
        fetches = list(function.outputs) + [function.updates_op] + list(function.fetches)
        effects = self._graph.effects(fetches, list(function.inputs))
        for kind in effects.hidden_streams:
            calls.refuse_exactness(f"the TensorFlow op `{kind}` in a model draws from a state that cannot be read")
        if effects.takes_data:
            calls.refuse_exactness("a model that takes data from a queue or an iterator, or calls Python in its graph")
        return effects


def _batch_size(inputs):
    """The size of a batch as it stands in records: how many rows its first array has."""
    shape = getattr(inputs[0], "shape", ()) if inputs else ()
    return (_SIZE | int(shape[0]) << 1) if len(shape) else 0


def recorded_batch_size(calls):
    """How many rows the batch of the next answered call has; 0 where the next record is no such call."""
    record = calls.guarded(calls.trial.peek) if calls.replaying else None
    if record is None or record[0] not in _KINDS or not record[2] & _SIZE:
        return 0
    return (record[2] & ~_SIZE) >> 1


# -- the order of updates ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _ordered_updates(model):
    """While a train function is made: what reads a variable that the optimizer changes does so before it is changed.

    Keras 2 leaves the order open, so that runs of one script differ, even on one machine. Every optimizer creates
    `update_add(iterations, 1)` and then reads `iterations` (keras 2.3.1, keras/optimizers.py, `Adam.get_updates`). And
    up to 2.2.5 variables are references, which are changed in place while gradients may still be read from them.

    Plain Python read the old count with Adam, Adamax and RMSprop in every run made, the new one with Nadam, and either
    with SGD (2.3.1, two cores). The old one is what the optimizers' formulas mean, so it is taken for all of them.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        yield
        return
    get_updates = optimizer.get_updates

    def get_ordered_updates(*args, **kwargs):
        updates = get_updates(*args, **kwargs)
        _read_before_written([update.op for update in updates if hasattr(update, "op")], model.total_loss.op)
        return updates

    optimizer.get_updates = get_ordered_updates
    try:
        yield
    finally:
        del optimizer.get_updates


def _read_before_written(writers, loss):
    """Has the operations that read what `writers` change run before them, as far as they run for the loss at all."""
    running = _reached(writers + [loss], _inputs_of)
    for writer in writers:
        if not writer.inputs or not graphs.is_variable(writer.inputs[0]):
            continue
        after = _reached([writer], _users_of) | {op.name for op in writer.control_inputs}
        readers = [op for op in _readers(writer.inputs[0]) if op.name in running and op.name not in after]
        writer._add_control_inputs(readers)


def _readers(held):
    """The ops that look at a variable's value; of a reference, those that use what was read, which is no copy."""
    found = []
    for op in held.consumers():
        if op.type == "ReadVariableOp":
            found.append(op)
        elif op.type == "Identity":
            found.extend(op.outputs[0].consumers())
    return [op for op in found if op._get_control_flow_context() is None]


def _inputs_of(op):
    return [tensor.op for tensor in op.inputs] + op.control_inputs


def _users_of(op):
    return [user for tensor in op.outputs for user in tensor.consumers()] + op._control_outputs


def _reached(operations, neighbours_of):
    """Names of the operations themselves and of all that a walk along their neighbours comes to."""
    seen, waiting = set(), list(operations)
    while waiting:
        op = waiting.pop()
        if op.name not in seen:
            seen.add(op.name)
            waiting.extend(neighbours_of(op))
    return seen


def get_gradients(original, optimizer, *args, **kwargs):
    """`Optimizer.get_gradients`: in a `get_updates` that no model asked for, a training loop of the script's own."""
    if sys._getframe(2).f_code.co_name == "get_updates":
        sessions.say_not_intercepted("training through `K.function`")
    return original(optimizer, *args, **kwargs)


# -- models from files -------------------------------------------------------------------------------------------------


def load_model(original, filepath, *args, **kwargs):
    """`load_model`: makes a model, in a replay too; but the file may be newer there, so its values are unknown."""
    calls = recorder.CALLS
    if not calls.begun or not calls.recordable():
        return original(filepath, *args, **kwargs)
    calls.depth += 1
    try:
        model = original(filepath, *args, **kwargs)
    finally:
        calls.depth -= 1
    WEIGHTS.loaded(model)
    calls.checked(recorder.COMPOSITE, calls.trial.intern(f"load_model from {entries.path_text(filepath)}"), 0)
    return model


# -- what the generation knows of weights and devices ------------------------------------------------------------------


class GraphWeights:
    """Weights that are variables of a TensorFlow 1 graph."""

    def is_stale(self, weight):
        """Whether training changed the weight since Python last wrote it."""
        return weight.op.name in graphs.of(weight.graph).stale

    def values(self, weights):
        """The values of weights, read past the door."""
        import keras

        calls = recorder.CALLS
        calls.depth += 1
        try:
            return keras.backend.batch_get_value(weights)
        finally:
            calls.depth -= 1

    def loaded(self, model):
        """Notes that a model's weights now hold what only a file knows."""
        optimizer = getattr(model, "optimizer", None)
        for weight in list(model.weights) + list(getattr(optimizer, "weights", ())):
            graphs.of(weight.graph).changed([weight.op.name])

    def causes(self, model):
        """What about the session cannot be resumed exactly."""
        session = sessions.SESSIONS.of_default_graph()
        found = []
        if not sessions.runs_one_at_a_time(session):
            found.append(
                recorder.Unrepeatable(
                    "TensorFlow 1 runs several operations at once (`inter_op_parallelism_threads`); `--exact` imposes 1"
                )
            )
        kinds = sorted({device.device_type for device in session.list_devices()} - {"CPU", "XLA_CPU"})
        if kinds:
            found.append("training on {}, where exact resume was not tried".format(", ".join(kinds)))
        return found


WEIGHTS = GraphWeights()


def prepare(calls):
    """Has the entry points look at weights and devices, and fits validate, in the way of TensorFlow 1."""
    sources.below = WEIGHTS
    plan.prepare(calls, GraphValidation())
    if sessions.SESSIONS.capture not in [provider.capture for _, provider in calls.state_providers]:
        calls.refuse_exactness("sessions are not intercepted (`--no-hooks tensorflow`)")
