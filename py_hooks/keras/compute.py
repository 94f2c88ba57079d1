"""Keras 3: the compute functions of a model, recorded and answered.

`make_train_function` and its siblings set a function on the model; it is wrapped here. On JAX it takes and returns
the state of the model (lists of arrays), on TensorFlow it works on the variables.

Source: keras 3.15.1, keras/src/backend/jax/trainer.py and keras/src/backend/tensorflow/trainer.py.
"""
import weakref

from py_hooks.advice import calls as recorder
from py_hooks.advice.data import skip
from py_hooks.keras.passes import DatasetPass, Skipped
from py_hooks.keras.variables import VARIABLES

_NAMES = {recorder.TRAIN: "train", recorder.TEST: "test", recorder.PREDICT: "predict"}


class _Models(object):
    """Models by number, in the order of their first compute call; never by address, which is used again."""

    def __init__(self):
        self._numbers = weakref.WeakKeyDictionary()
        self._next = 0

    def number(self, model):
        if model not in self._numbers:
            self._numbers[model] = self._next
            self._next += 1
        return self._numbers[model]


MODELS = _Models()


def make_train_function(original, model, force=False):
    """`Model.make_train_function`: wraps what it sets."""
    return _make(original, model, force, "train_function", recorder.TRAIN)


def make_test_function(original, model, force=False):
    """`Model.make_test_function`: wraps what it sets."""
    return _make(original, model, force, "test_function", recorder.TEST)


def make_predict_function(original, model, force=False):
    """`Model.make_predict_function`: wraps what it sets."""
    return _make(original, model, force, "predict_function", recorder.PREDICT)


def _make(original, model, force, attribute, kind):
    from keras.src import backend

    original(model, force=force)
    function = getattr(model, attribute)
    if not isinstance(function, ComputeFunction):
        wrapper = JaxFunction if backend.backend() == "jax" else TensorFlowFunction
        setattr(model, attribute, wrapper(model, kind, function))
    return getattr(model, attribute)


class ComputeFunction(object):
    """A compute function of one model: called live, or answered from the log.

    Args:
        model: the model; held weakly, since it holds this object.
        kind: TRAIN, TEST or PREDICT.
        function: what the framework made.
    """

    def __init__(self, model, kind, function):
        self.model = weakref.ref(model)
        self.kind = kind
        self.function = function
        self.identity = recorder.CALLS.trial.intern("{} model {}".format(_NAMES[kind], MODELS.number(model)))

    def _made(self, calls, traced, result):
        """Records a call that was made, and counts the batch."""
        calls.record(self.kind, self.identity, calls.arguments | traced, result)
        if self.kind != recorder.PREDICT:
            VARIABLES.mark_stale(self, self._changed)
        if self.kind == recorder.TRAIN:
            calls.trained()

    def _must_be_made(self, calls):
        """Whether the record says that the call traced, so that it must be made again in the replay."""
        return calls.next_arguments() & recorder.TRACED

    def _recorded_result(self, calls, result, traced):
        """The recorded result of a call that was made again. Its own is equal if nothing was skipped before it."""
        if calls.skipped:
            return self._answer(calls, traced)
        calls.check(self.kind, self.identity, calls.arguments | traced, result)
        return result

    def _answer(self, calls, traced=0):
        return calls.answer(self.kind, self.identity, calls.arguments | traced)

    def _replayed(self, calls):
        """Counts an answered call, and ends the replay if it was the last one. True if it was."""
        if self.kind != recorder.PREDICT:
            VARIABLES.mark_stale(self, self._changed)
        if self.kind == recorder.TRAIN:
            calls.trained_before()
        return calls.answered()

    def _changed(self):
        """The variables that the call changes, but for those that a replay keeps true."""
        model = self.model()
        variables = list(model.non_trainable_variables) + list(model.metrics_variables)
        if self.kind == recorder.TRAIN:
            kept = {id(variable) for variable in _kept_true(model)}
            optimizer = model.optimizer.variables if model.optimizer is not None else ()
            variables += model.trainable_variables
            variables += [variable for variable in optimizer if id(variable) not in kept]
        return variables


def _kept_true(model):
    """Optimizer variables whose value a replay knows: the count of batches, and the learning rate set by Python."""
    optimizer = model.optimizer
    rate = getattr(optimizer, "_learning_rate", None)
    return [variable for variable in (getattr(optimizer, "iterations", None), rate) if variable is not None]


class JaxFunction(ComputeFunction):
    """On JAX: `function(state, iterator)` returns `(result, state)`; the variables may be empty meanwhile."""

    _count_at = None

    def __call__(self, state, iterator):
        calls = recorder.CALLS
        if not calls.recordable():
            return self.function(state, iterator)
        if calls.replaying:
            return self._replay(calls, state, iterator)
        traced, result, state = self._make(calls, state, iterator)
        self._hold(state)
        self._made(calls, traced, result)
        return result, state

    def _make(self, calls, state, iterator):
        traces = calls.traces
        calls.depth += 1
        try:
            result, state = self.function(state, iterator)
        finally:
            calls.depth -= 1
        return (recorder.TRACED if calls.traces > traces else 0), result, state

    def _replay(self, calls, state, iterator):
        if self._must_be_made(calls):
            traced, result, state = self._make(calls, state, iterator)
            result = self._recorded_result(calls, result, traced)
        else:
            skip(iterator)
            result = self._answer(calls)
            if self.kind == recorder.TRAIN:
                state = self._count_batch(state)
        self._hold(state)
        if self._replayed(calls):
            state = self._restored(state)
        return result, state

    def _groups(self):
        """The model's variables in the order of the state's lists."""
        model = self.model()
        groups = [model.trainable_variables, model.non_trainable_variables]
        if self.kind == recorder.TRAIN:
            groups.append(model.optimizer.variables)
        if self.kind != recorder.PREDICT:
            groups.append(model.metrics_variables)
        return groups

    def _hold(self, state):
        """Keeps the values that live outside the variables, for a checkpoint at this batch."""
        VARIABLES.in_flight = _InFlight(self._groups, state)

    def _count_batch(self, state):
        """Moves the optimizer's count of batches on, in the state; a numpy number is enough until somebody reads."""
        import numpy

        if self._count_at is None:
            optimizer = self.model().optimizer
            held = [variable is optimizer.iterations for variable in optimizer.variables]
            self._count_at = held.index(True) if True in held else -1
        if self._count_at < 0:
            return state
        values = list(state[2])
        values[self._count_at] = numpy.asarray(values[self._count_at])[()] + 1
        return (state[0], state[1], values, state[3])

    def _restored(self, state):
        """The state with the checkpoint's values in it."""
        restored, VARIABLES.restored = VARIABLES.restored, {}
        state = tuple(
            [restored.get(id(variable), value) for variable, value in zip(variables, values)]
            for variables, values in zip(self._groups(), state)
        )
        self._hold(state)
        return state


class _InFlight(object):
    """`id(variable)` -> value for the state of a running epoch, worked out when somebody asks."""

    def __init__(self, groups, state):
        self._groups = groups
        self._state = state
        self._values = None

    def _mapping(self):
        if self._values is None:
            self._values = {
                id(variable): value
                for variables, values in zip(self._groups(), self._state)
                for variable, value in zip(variables, values)
            }
        return self._values

    def get(self, key, default):
        return self._mapping().get(key, default)

    def __contains__(self, key):
        return key in self._mapping()


class TensorFlowFunction(ComputeFunction):
    """On TensorFlow: `function(iterator)` (a list of elements for predict) works on the variables."""

    def __call__(self, iterator):
        calls = recorder.CALLS
        if not calls.recordable():
            return self.function(_live(iterator))
        if calls.replaying:
            return self._replay(calls, iterator)
        traced, result = self._make(calls, iterator)
        self._made(calls, traced, result)
        return result

    def _make(self, calls, iterator):
        traces = calls.traces
        calls.depth += 1
        try:
            result = self.function(_live(iterator))
        finally:
            calls.depth -= 1
        return (recorder.TRACED if calls.traces > traces else 0), result

    def _replay(self, calls, iterator):
        if self._must_be_made(calls):
            traced, result = self._make(calls, iterator)
            result = self._recorded_result(calls, result, traced)
        else:
            skip(iterator)
            result = self._answer(calls)
            if self.kind == recorder.TRAIN:
                self._count_batch(calls)
        self._replayed(calls)
        return result

    def _answer(self, calls, traced=0):
        """predict calls `.numpy()` on what it gets; the others only convert to floats."""
        tensor = None
        if self.kind == recorder.PREDICT:
            from keras.src.backend import convert_to_tensor as tensor
        return calls.answer(self.kind, self.identity, calls.arguments | traced, tensor)

    def _count_batch(self, calls):
        optimizer = self.model().optimizer
        if optimizer is not None:
            calls.depth += 1
            optimizer.iterations.assign_add(1)
            calls.depth -= 1


def _live(iterator):
    """What the framework's function works on: the pipeline's own iterator, or real elements."""
    if isinstance(iterator, DatasetPass):
        return iterator.live()
    if isinstance(iterator, list):
        return [item.element() if isinstance(item, Skipped) else item for item in iterator]
    return iterator


def metrics_result(original, model, logs):
    """`Trainer._get_metrics_result_or_logs`: reads metric variables, which an answered call does not update."""
    calls = recorder.CALLS
    if not calls.begun or not calls.recordable():
        return original(model, logs)
    identity = calls.trial.intern("metrics of model {}".format(MODELS.number(model)))
    return calls.call(recorder.METRICS, identity, lambda: dict(original(model, logs)))


def count_trace(original, *args, **kwargs):
    """`Layer.__call__`: a layer's Python ran. Inside a compute call that means that the call traced."""
    recorder.CALLS.traces += 1
    return original(*args, **kwargs)
