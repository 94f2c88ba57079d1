"""Keras 3: the compute functions of a model, recorded and answered.

`make_train_function` and its siblings set a function on the model; it is wrapped here. On JAX it takes and returns
the state of the model (lists of arrays), on TensorFlow it works on the variables.

Source: keras 3.15.1, keras/src/backend/jax/trainer.py and keras/src/backend/tensorflow/trainer.py.
"""
import weakref
from threading import get_ident

from py_hooks.advice import calls as recorder
from py_hooks.advice.data import skip
from py_hooks.engine.patch import binding
from py_hooks.keras.passes import DatasetPass, Skipped
from py_hooks.keras.variables import VARIABLES

_NAMES = {recorder.TRAIN: "train", recorder.TEST: "test", recorder.PREDICT: "predict"}


class _Models:
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


def _maker(name, attribute, kind):
    @binding
    def advice(original):
        def make(model, force=False):
            function = getattr(model, attribute, None)
            if isinstance(function, ComputeFunction) and not force:
                return function
            original(model, force=force)
            return _wrapped(model, attribute, kind)

        return make

    advice.__name__ = name
    advice.__doc__ = f"`Model.{name}`: wraps what it sets."
    return advice


def _wrapped(model, attribute, kind):
    from keras.src import backend

    function = getattr(model, attribute)
    if not isinstance(function, ComputeFunction):
        wrapper = JaxFunction if backend.backend() == "jax" else TensorFlowFunction
        function = wrapper(model, kind, function)
        setattr(model, attribute, function)
    return function


make_train_function = _maker("make_train_function", "train_function", recorder.TRAIN)
make_test_function = _maker("make_test_function", "test_function", recorder.TEST)
make_predict_function = _maker("make_predict_function", "predict_function", recorder.PREDICT)


class ComputeFunction:
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
        self.identity = recorder.CALLS.trial.intern(f"{_NAMES[kind]} model {MODELS.number(model)}")
        self._cleaned = None

    def _pass_by(self, calls):
        """A call that is not recorded: a part of another one, or made in a thread of the script's own."""
        if not calls.depth and self.kind == recorder.TRAIN:
            calls.refuse_exactness("a model is trained in a thread of the script's own")

    def _made(self, calls, traced, result):
        """Records a call that was made, and counts the batch."""
        calls.record(self.kind, self.identity, calls.arguments | traced, result)
        if self._cleaned != VARIABLES.cleaned:
            self._mark_stale()
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
        if self._cleaned != VARIABLES.cleaned:
            self._mark_stale()
        if self.kind == recorder.TRAIN:
            calls.trained_before()
        return calls.answered()

    def _mark_stale(self):
        """Notes which variables the call changed: the first time, and when Python has written one since."""
        if self.kind != recorder.PREDICT:
            VARIABLES.mark_stale(self._changed())
        self._cleaned = VARIABLES.cleaned

    def _changed(self):
        """The variables that the call changes: all but the learning rate, which only Python writes."""
        model = self.model()
        variables = list(model.non_trainable_variables) + list(model.metrics_variables)
        if self.kind == recorder.TRAIN:
            variables += model.trainable_variables
            if model.optimizer is not None:
                rate = getattr(model.optimizer, "_learning_rate", None)
                variables += [variable for variable in model.optimizer.variables if variable is not rate]
        return variables


class JaxFunction(ComputeFunction):
    """On JAX: `function(state, iterator)` returns `(result, state)`; the variables may be empty meanwhile."""

    _state = None

    def __call__(self, state, iterator):
        """The call of the framework's loop."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            self._pass_by(calls)
            return self.function(state, iterator)
        if calls.replaying:
            return self._replay(calls, state, iterator)
        traced, result, state = self._make(calls, state, iterator)
        VARIABLES.in_flight, self._state = self, state
        self._made(calls, traced, result)
        VARIABLES.in_flight = self._state = None
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
        VARIABLES.in_flight, self._state = self, state
        if self._replayed(calls):
            state = self._restored(state)
        VARIABLES.in_flight = self._state = None
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

    def values_in_flight(self):
        """`id(variable)` -> value in the state of the running epoch, while a batch's checkpoint may be taken or put in."""
        return {
            id(variable): value
            for variables, values in zip(self._groups(), self._state)
            for variable, value in zip(variables, values)
        }

    def _restored(self, state):
        """The state with the checkpoint's values in it."""
        restored, VARIABLES.restored = VARIABLES.restored, {}
        return tuple(
            [restored.get(id(variable), value) for variable, value in zip(variables, values)]
            for variables, values in zip(self._groups(), state)
        )


class TensorFlowFunction(ComputeFunction):
    """On TensorFlow: `function(iterator)` (a list of elements for predict) works on the variables."""

    def __call__(self, iterator):
        """The call of the framework's loop."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            self._pass_by(calls)
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
        self._replayed(calls)
        return result

    def _answer(self, calls, traced=0):
        """Predict calls `.numpy()` on what it gets; the others only convert to floats."""
        tensor = None
        if self.kind == recorder.PREDICT:
            from keras.src.backend import convert_to_tensor as tensor
        return calls.answer(self.kind, self.identity, calls.arguments | traced, tensor)


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
    identity = calls.trial.intern(f"metrics of model {MODELS.number(model)}")
    return calls.call(recorder.METRICS, identity, lambda: dict(original(model, logs)))


@binding
def count_trace(original):
    """`Layer.__call__`: a layer's Python ran. Inside a compute call that means that the call traced."""

    def counted(*args, **kwargs):
        recorder.CALLS.traces += 1
        return original(*args, **kwargs)

    return counted
