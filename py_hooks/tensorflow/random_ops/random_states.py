"""TensorFlow 2: random ops whose state can be read and assigned.

A stateful random kernel hides its counter, and an answered call would not advance it. So inside a traced function an op is
built as its twin that draws from a state of pedl-run (see `random_ops.py`), an eager resource that the function captures.
With seeds, the numbers are those of TensorFlow, bit for bit, and start again if TensorFlow deletes its kernels
(`tf.random.set_seed`, `clear_session`). The numbers differ if TensorFlow makes several kernels of one op, each with a
counter: for a function that others call, that one calls twice, or that runs with a `GradientTape` and without. These draw
from one state here. The numbers also differ under XLA, which has no kernels.

Outside of functions an op runs again in a replay as it did before, so it keeps TensorFlow's kernel. An op without any seed
is an exception: it would draw from the operating system, so it draws from a state with a seed of the trial.

In the functions of `tf.data` pipelines `random_ops.py` leaves an op its kernel.

Source: tensorflow 2.15.1, tensorflow/python/ops/gen_random_ops.py, random_ops.py and gen_stateful_random_ops.py;
tensorflow/python/eager/context.py.
"""
from __future__ import annotations

import contextlib
import functools
import importlib
import weakref

from py_hooks import causes
from py_hooks.recording import recorder
from py_hooks.tensorflow.random_ops import random_ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from typing import Any

    from numpy import ndarray

    from py_hooks.recording.recorder import Calls


class RandomState:
    """The state of a random op: an eager resource.

    Attributes:
        handle: the handle of the resource; whoever uses the state holds it.
        name: for records.
        first: the first value.
        begins_anew: whether it starts again from `first` when TensorFlow deletes its kernels. Without a seed of the script
            TensorFlow's numbers would differ after that, so the state continues, which gives other numbers too.
    """

    begins_anew = False

    def __init__(self, number: int, seed: int, seed2: int) -> None:
        from tensorflow.python.framework import constant_op, dtypes, ops
        from tensorflow.python.ops import gen_resource_variable_ops

        # A plain resource, because a function must not make variables after its first call.
        self.name = f"pedl_random/{number}"
        self.first = [0, seed2, seed]
        with ops.init_scope(), ops.device("cpu:0"):
            self.handle = gen_resource_variable_ops.var_handle_op(dtypes.int64, [3], shared_name=self.name, name="pedl_random")
            first = constant_op.constant(self.first, dtypes.int64)
            gen_resource_variable_ops.assign_variable_op(self.handle, first)

    def numpy(self) -> ndarray:
        """The value."""
        from tensorflow.python.framework import dtypes
        from tensorflow.python.ops import gen_resource_variable_ops

        return gen_resource_variable_ops.read_variable_op(self.handle, dtypes.int64).numpy()

    def assign(self, value: Sequence[int] | ndarray) -> None:
        """Sets the value."""
        from tensorflow.python.framework import constant_op, dtypes
        from tensorflow.python.ops import gen_resource_variable_ops

        gen_resource_variable_ops.assign_variable_op(self.handle, constant_op.constant(value, dtypes.int64))


class RandomStates:
    """The states by creation number; those of graphs live as long as their graph. A provider of state."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[RandomState]] = {}
        self._by_handle: dict[int, weakref.ref[RandomState]] = {}
        self._created = 0
        self._eager: dict[Hashable, RandomState] = {}

    def of_handle(self, handle: object) -> weakref.ref[RandomState] | None:
        """A weak reference to the state whose handle this is; None for other handles."""
        return self._by_handle.get(id(handle))

    def new(self, seed: int, seed2: int) -> RandomState:
        """A state as TensorFlow would give a kernel with these seeds."""
        number = self._created
        self._created += 1
        state = RandomState(number, seed, seed2)
        handle = id(state.handle)

        def forget(_: object) -> None:
            self._references.pop(number, None)
            self._by_handle.pop(handle, None)

        self._references[number] = self._by_handle[handle] = weakref.ref(state, forget)
        return state

    def of_function(self, graph: Any, seed: int, seed2: int, begins_anew: bool = True) -> tuple[Any, Any]:
        """A state for an op in the graph of a function."""
        _know_twins()
        is_seeded = bool(seed or seed2)
        state = self.new(*((seed, seed2) if is_seeded else random_ops.seeds_of_trial(is_of_rank=True)))
        state.begins_anew = is_seeded and begins_anew
        # All graphs on the way out hold the state: a branch or the body of a loop may be deleted before the function that
        # calls it, and a function that was traced in another one may outlive that.
        while graph is not None and graph.building_function:
            graph._pedl_states = [*getattr(graph, "_pedl_states", ()), state]
            graph = getattr(graph, "outer_graph", None)
        return state.handle, self.algorithm()

    def of_eager(self, kind: Hashable) -> tuple[Any, Any]:
        """The state for ops of one kind that have no seed and are in no function."""
        if kind not in self._eager:
            self._eager[kind] = self.new(*random_ops.seeds_of_trial())
        return self._eager[kind].handle, self.algorithm()

    @staticmethod
    def algorithm() -> Any:
        """The number of Philox."""
        from tensorflow.python.framework import constant_op, dtypes

        return constant_op.constant(1, dtypes.int64)

    def _alive(self) -> Iterator[tuple[str, RandomState]]:
        for number, reference in sorted(self._references.items()):
            state = reference()
            if state is not None:
                yield str(number), state

    def begin_anew(self) -> None:
        """TensorFlow has deleted its kernels, and with them their counters."""
        from tensorflow.python.framework import ops

        with ops.init_scope():
            for _, state in self._alive():
                if state.begins_anew:
                    state.assign(state.first)

    def capture(self) -> tuple[list[tuple[str, ndarray]], list[Any] | None]:
        """The states, and that of the generator from which TensorFlow takes seeds of eager ops."""
        import numpy
        from tensorflow.python.eager import context

        tensors = [(number, state.numpy()) for number, state in self._alive()]
        generator = getattr(context.context(), "_rng", None)
        if generator is None:
            return tensors, None
        version, words, gauss = generator.getstate()
        return [*tensors, ("seeds", numpy.array(words, numpy.uint64))], [version, gauss]

    def restore(self, tensors: dict[str, ndarray], state: list[Any] | None) -> None:
        """Assigns saved states."""
        from tensorflow.python.eager import context

        for number, own in self._alive():
            if number in tensors:
                own.assign(tensors[number])
        if state is not None and "seeds" in tensors:
            words = tuple(int(word) for word in tensors["seeds"])
            context.context()._rng.setstate((state[0], words, state[1]))


STATES = RandomStates()


def prepare(calls: Calls) -> None:
    """Has the states kept in checkpoints, and ops made with them."""
    calls.checkpoints.keep("tensorflow-random", STATES)
    random_ops.make_states_by(_new_state)


def _new_state(kind: Hashable, seed: int | None, seed2: int | None) -> tuple[Any, Any] | None:
    """`(handle, algorithm)` for a new op; None if the op keeps TensorFlow's kernel.

    Args:
        kind: distinguishes ops that have separate streams.
        seed: of the graph, as TensorFlow would give it to the kernel.
        seed2: of the op, in the same way.
    """
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    calls = recorder.CALLS
    # A replay does not trace what saving a model traces.
    if calls.in_composite or not calls.on_main_thread():
        return None
    if context.executing_eagerly():
        return None if seed or seed2 else STATES.of_eager(kind)
    graph = ops.get_default_graph()
    if not graph.building_function:
        return _of_session(kind, seed, seed2)
    with ops.init_scope():
        if not context.executing_eagerly():
            return _of_session(kind, seed, seed2)
    return STATES.of_function(graph, seed or 0, seed2 or 0)


def _of_session(kind: Hashable, seed: int | None, seed2: int | None) -> tuple[Any, Any] | None:
    """`(handle, algorithm)` for an op that sessions run: a variable of their graph."""
    _know_twins()
    return random_ops.state_of_graph(kind, seed, seed2)


@random_ops.but_in_pipelines
def random_uniform_int(
    original: Callable[..., Any],
    shape: Any,
    minval: Any,
    maxval: Any,
    seed: int | None = 0,
    seed2: int | None = 0,
    name: str | None = None,
) -> Any:
    """`gen_random_ops.random_uniform_int`, which ignores the limits if no numbers are wanted; its twin checks them."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops, tensor_util
    from tensorflow.python.ops import array_ops, math_ops

    if not context.executing_eagerly() and not recorder.CALLS.in_composite:
        minval = ops.convert_to_tensor(minval)
        maxval = ops.convert_to_tensor(maxval, dtype=minval.dtype)
        least, below = tensor_util.constant_value(minval), tensor_util.constant_value(maxval)
        if least is None or below is None or least >= below:
            is_wanted = math_ops.reduce_prod(shape) > 0
            minval = array_ops.where_v2(is_wanted, minval, array_ops.zeros_like(minval))
            maxval = array_ops.where_v2(is_wanted, maxval, array_ops.ones_like(maxval))
    return random_ops.random_uniform_int(original, shape, minval, maxval, seed=seed, seed2=seed2, name=name)


def pipeline_function(original: Callable[..., Any], wrapper: Any, *args: Any, **kwargs: Any) -> None:
    """`StructuredFunctionWrapper.__init__`: traces a function of a `tf.data` pipeline.

    A `tf.function` in it that was traced before has a state already. Pipelines run ahead of training, so the position of
    that state is unknown.
    """
    random_ops.pipeline_function(original, wrapper, *args, **kwargs)
    if not recorder.CALLS.on_main_thread():
        return
    if any(STATES.of_handle(tensor) is not None for tensor in wrapper.function.captured_inputs):
        recorder.CALLS.exactness.refuse(causes.PIPELINE_FUNCTION())


def cleared(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`TFE_ContextClearCaches`: TensorFlow deletes the kernels that eager calls have made."""
    result = original(*args, **kwargs)
    STATES.begin_anew()
    return result


_TWINS = ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniformInt")
# The op by which `multinomial` draws its keys.
_KEY = "StatefulUniformFullInt"


@functools.lru_cache(maxsize=None)
def _know_twins() -> None:
    """Registers for the twins what TensorFlow knows of the ops that they replace.

    This is that they have no gradient (TensorFlow looks for one on every path from a resource), and how `vectorized_map`
    draws for all of its elements at once.

    Source: tensorflow 2.3.4 to 2.21.0, tensorflow/python/ops/random_ops.py and parallel_for/pfor.py, `_convert_random`.
    """
    from tensorflow.python.framework import ops

    # In some versions the package has a function of this name.
    pfor = importlib.import_module("tensorflow.python.ops.parallel_for.pfor")
    for twin in (*_TWINS, _KEY):
        # Some versions have registered it already.
        with contextlib.suppress(KeyError):
            ops.NotDifferentiable(twin)
    for twin in _TWINS:
        with contextlib.suppress(KeyError):
            pfor.RegisterPFor(twin)(_draw_for_all)


def _draw_for_all(pfor_input: Any) -> Any:
    """Converts an op in the function of a `vectorized_map`. The op is still in the graph and draws, so it shares no state."""
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import array_ops, math_ops

    pfor = importlib.import_module("tensorflow.python.ops.parallel_for.pfor")
    op = pfor_input.op
    state = _state_behind(op.inputs[0])
    if state is None:
        # The state of a `tf.random.Generator`: does what TensorFlow does with ops that it does not know.
        return pfor._fallback_converter(pfor_input)
    handle, algorithm = STATES.of_function(ops.get_default_graph(), state.first[2], state.first[1], state.begins_anew)
    shape, *bounds = (pfor_input.unstacked_input(place) for place in range(2, pfor_input.num_inputs))
    number = math_ops.cast(pfor_input.pfor.loop_len_vector, shape.dtype)
    inputs = [handle, algorithm, array_ops.concat([number, shape], axis=0), *bounds]
    drawn = pfor._create_op(op.type, inputs, [output.dtype for output in op.outputs], attrs=op.node_def.attr)
    return [pfor.wrap(output, True) for output in drawn.outputs]


def _state_behind(tensor: Any) -> RandomState | None:
    """The state whose handle a tensor is, in some function; None for other handles."""
    while tensor is not None:
        reference = STATES.of_handle(tensor)
        if reference is not None:
            return reference()
        captures = getattr(getattr(tensor, "graph", None), "captures", ())
        tensor = next((outside for outside, inside in captures if inside is tensor), None)
    return None
