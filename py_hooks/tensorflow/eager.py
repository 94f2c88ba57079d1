"""TensorFlow 2 below Keras 3: variables that Keras does not know, reads of them, and random ops.

A read goes through `_read_variable_op`, whoever asks: `variable.numpy()`, a layer called by hand, an optimizer. Inside
a function that is being traced it is no read.

Random ops. Keras's own layers draw from seed variables. What is left is

- the shuffle in Keras's array pipelines. With a seed TensorFlow gives every pass the same order, and so it does here.
  Without one it would draw from the operating system; here it is keyed by the trial's seed and the number of the pass.
- `tf.random.*` in a script: run again in a replay, from seeds of the trial where the script sets none. In a layer or
  a `train_step` its state is hidden in a kernel that an answered call would not move: a cause of "not exact".

Source: tensorflow 2.21.0, tensorflow/python/ops/resource_variable_ops.py and random_ops.py.
"""
import weakref

from py_hooks.advice import calls as recorder
from py_hooks.engine.patch import binding
from py_hooks.keras.variables import VARIABLES


class ResourceVariables:
    """TensorFlow's variables by creation number; in a checkpoint, those that no Keras variable wraps."""

    def __init__(self):
        self._references = []

    def add(self, variable):
        """Numbers a variable that was just made."""
        self._references.append(weakref.ref(variable))

    def _unwrapped(self):
        wrapped = {id(variable._value) for _, variable in VARIABLES.alive()}
        for number, reference in enumerate(self._references):
            variable = reference()
            if variable is not None and id(variable) not in wrapped and variable is not _PassNumber.variable:
                yield str(number), variable

    def capture(self):
        """The values of the variables that have a numpy form."""
        found = [(number, variable) for number, variable in self._unwrapped() if variable.dtype.is_numpy_compatible]
        return [(number, variable.numpy()) for number, variable in found], None

    def restore(self, tensors, state):
        """Assigns saved values."""
        for number, variable in self._unwrapped():
            if number in tensors:
                variable.assign(tensors[number])


RESOURCE_VARIABLES = ResourceVariables()


def prepare(calls):
    """Has TensorFlow's variables kept in checkpoints, and passes over pipelines known to the shuffles in them."""
    calls.state_providers.append(("tensorflow", RESOURCE_VARIABLES))
    calls.streams.at_pass.append(_PassNumber.set)


def created(original, variable, *args, **kwargs):
    """`ResourceVariable.__init__`: numbers the variable. Results of assignments are of another class."""
    original(variable, *args, **kwargs)
    if not recorder.CALLS.in_composite:
        RESOURCE_VARIABLES.add(variable)


class _PassNumber:
    """The number of the running pass, as a variable that pipelines read."""

    variable = None

    @classmethod
    def read(cls):
        """The number, inside a pipeline's function."""
        import tensorflow

        if cls.variable is None:
            with tensorflow.init_scope(), tensorflow.device("cpu:0"):
                cls.variable = tensorflow.Variable(0, dtype=tensorflow.int64, trainable=False, name="pedl_pass")
        return cls.variable.read_value()

    @classmethod
    def set(cls, ordinal):
        """A pass begins."""
        if cls.variable is not None:
            cls.variable.assign(ordinal)


def random_shuffle(original, value, seed=0, seed2=0, name=None):
    """`gen_random_ops.random_shuffle`: without a seed, keyed by the trial; in array pipelines also by the pass."""
    import tensorflow

    calls = recorder.CALLS
    if seed or seed2 or not calls.on_main_thread():
        return _op(original, "RandomShuffle", value, seed=seed, seed2=seed2, name=name)
    if calls.streams.in_array_pipeline:
        key = calls.streams.next_op_seed() % (1 << 31)
        return tensorflow.random.experimental.stateless_shuffle(value, seed=[key, _PassNumber.read()])
    return _op(original, "RandomShuffle", value, name=name)


def hidden_stream(original, *args, **kwargs):
    """An op that draws from a kernel's own state."""
    return _op(original, original.__name__, *args, **kwargs)


def _op(original, op_name, *args, **kwargs):
    calls = recorder.CALLS
    if not calls.on_main_thread():
        return original(*args, **kwargs)
    if calls.depth:
        calls.refuse_exactness(f"the TensorFlow op `{op_name}` in a model draws from a state that cannot be read")
    if not kwargs.get("seed") and not kwargs.get("seed2"):
        kwargs["seed"], kwargs["seed2"] = calls.streams.next_op_seed() % (1 << 31), 1
    return original(*args, **kwargs)


@binding
def read(original):
    """`BaseResourceVariable._read_variable_op`: a read of what training changed is a recorded call."""

    def read_variable_op(variable, *args, **kwargs):
        calls = recorder.CALLS
        if calls.depth or not calls.begun or not VARIABLES.is_stale(variable) or not calls.recordable():
            return original(variable, *args, **kwargs)
        return _read_stale(calls, original, variable, args, kwargs)

    return read_variable_op


def _read_stale(calls, original, variable, args, kwargs):
    from tensorflow.python.eager import context

    if not context.executing_eagerly():
        return original(variable, *args, **kwargs)
    identity = calls.trial.intern(f"read variable {variable.name}")
    return calls.call(recorder.READ, identity, lambda: original(variable, *args, **kwargs), tensor=_tensor)


def _tensor(array):
    import tensorflow

    return tensorflow.constant(array)


