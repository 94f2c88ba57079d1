"""Random ops whose state can be read and assigned: the ops that replace TensorFlow's, and their states in TensorFlow 1.

A stateful random kernel hides its counter. So an op is built as its twin that draws from a variable of the graph. With
the state that TensorFlow would give the kernel, the numbers are the same, bit for bit. `random_shuffle` and
`multinomial` have no such twin and are built from ops that do: another stream, as random as theirs. bfloat16 has no twins
either; its ops keep their kernels.

An op without any seed would draw from the operating system; it gets a seed of the trial. `random_states.py` has the states
for TensorFlow 2.

The functions of `tf.data` pipelines are an exception: they draw again when a pipeline runs again. There an op keeps
TensorFlow's kernel, with a seed of the trial if it has none.

TensorFlow 1.13 has no such twins: see `keyed_ops.py`.

Source: tensorflow 1.14.0 and 1.15.5, tensorflow/python/ops/gen_random_ops.py and gen_stateful_random_ops.py; the layout of a
state, tensorflow/core/kernels/stateful_random_ops.cc: counter (two words), key.
"""
from __future__ import annotations

import functools

from py_hooks import causes
from py_hooks.random_numbers.random_streams import mix
from py_hooks.recording import recorder
from py_hooks.tensorflow.graphs import control_flow, graphs, op_kinds
from py_hooks.tensorflow.graphs.graph_definitions import own_part, stands_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

    # As `state_of_graph`.
    MakeState = Callable[[Hashable, int | None, int | None], tuple[Any, Any] | None]


class _Pipelines:
    """How many functions of pipelines are being traced, one inside the other."""

    tracing = 0


def pipeline_function(original: Callable[..., Any], wrapper: Any, *args: Any, **kwargs: Any) -> None:
    """`StructuredFunctionWrapper.__init__`: traces a function of a `tf.data` pipeline."""
    calls = recorder.CALLS
    if not calls.on_main_thread():
        original(wrapper, *args, **kwargs)
        return
    _Pipelines.tracing += 1
    try:
        original(wrapper, *args, **kwargs)
    finally:
        _Pipelines.tracing -= 1
    for node in op_kinds.nodes_of(wrapper.function):
        if not calls.in_composite and _has_no_seed(node):
            calls.exactness.refuse(causes.PIPELINE_NO_SEED(kind=node.op))


def _has_no_seed(node: Any) -> bool:
    """Whether a node draws from a stream of the operating system."""
    return "seed" in node.attr and "seed2" in node.attr and not node.attr["seed"].i and not node.attr["seed2"].i


def draws(function: Any) -> bool:
    """Whether a traced function of a pipeline draws random numbers; it may be stateful because it reads a file, too."""
    return any("seed2" in node.attr for node in op_kinds.nodes_of(function))


def is_tracing_pipeline() -> bool:
    """Whether a function of a pipeline is being traced."""
    return _Pipelines.tracing > 0


def but_in_pipelines(advice: Callable[..., Any]) -> Callable[..., Any]:
    """Advice for a random op that leaves it TensorFlow's kernel in the functions of pipelines."""

    @functools.wraps(advice)
    def outside_of_pipelines(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if not is_tracing_pipeline() or not calls.on_main_thread():
            return advice(original, *args, **kwargs)
        if not kwargs.get("seed") and not kwargs.get("seed2") and not calls.in_composite:
            kwargs["seed"], kwargs["seed2"] = seeds_of_trial()
        return original(*args, **kwargs)

    return outside_of_pipelines


@but_in_pipelines
def seeded_in_pipelines(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """An op without a twin: only in the functions of pipelines it gets a seed of the trial, if it has none."""
    return original(*args, **kwargs)


def seeds_of_trial(is_of_rank: bool = False) -> tuple[int, int]:
    """`(seed, seed2)` for a new op, as TensorFlow would give them to the kernel.

    Args:
        is_of_rank: whether each of several ranks gets different seeds.
    """
    calls = recorder.CALLS
    drawn = calls.streams.next_op_seed()
    if is_of_rank and calls.agreement is not None and calls.agreement.rank:
        drawn = mix(drawn, *calls.agreement.key)
    return drawn >> 33, drawn & 0x7FFFFFFF


@but_in_pipelines
def random_uniform(
    original: Callable[..., Any], shape: Any, dtype: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_uniform`."""
    return _twin("stateful_uniform", "RandomUniform", original, shape, dtype, seed, seed2, name)


@but_in_pipelines
def random_standard_normal(
    original: Callable[..., Any], shape: Any, dtype: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_standard_normal`."""
    return _twin("stateful_standard_normal_v2", "RandomStandardNormal", original, shape, dtype, seed, seed2, name)


@but_in_pipelines
def truncated_normal(
    original: Callable[..., Any], shape: Any, dtype: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.truncated_normal`."""
    return _twin("stateful_truncated_normal", "TruncatedNormal", original, shape, dtype, seed, seed2, name)


@but_in_pipelines
def random_uniform_int(
    original: Callable[..., Any],
    shape: Any,
    minval: Any,
    maxval: Any,
    seed: int | None = 0,
    seed2: int | None = 0,
    name: str | None = None,
) -> Any:
    """`gen_random_ops.random_uniform_int`."""
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import gen_stateful_random_ops

    state = _States.make("int", seed, seed2)
    if state is None:
        return original(shape, minval, maxval, seed=seed, seed2=seed2, name=name)
    name = name or "RandomUniformInt"
    # The twin would convert Python's integers to int64.
    minval = ops.convert_to_tensor(minval)
    maxval = ops.convert_to_tensor(maxval, dtype=minval.dtype)
    made = gen_stateful_random_ops.stateful_uniform_int(state[0], state[1], shape, minval, maxval, name=name)
    stands_for(made, "RandomUniformInt", [2, 3, 4], {"Tout": "dtype", "T": "shape_dtype"}, (seed, seed2))
    return made


@but_in_pipelines
def random_shuffle(
    original: Callable[..., Any], value: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_shuffle`: draws one random number for each row, and takes the order in which these sort."""
    from tensorflow.python.framework import dtypes
    from tensorflow.python.ops import gen_stateful_random_ops

    state = _States.make("shuffle", seed, seed2)
    if state is None:
        return original(value, seed=seed, seed2=seed2, name=name)
    draw = gen_stateful_random_ops.stateful_uniform
    return sort_by(lambda count: draw(state[0], state[1], count, dtypes.float64), value, (seed, seed2), name)


def sort_by(draw: Callable[[Any], Any], value: Any, seeds: tuple[int | None, int | None], name: str | None) -> Any:
    """The rows of a tensor in another order, as `random_shuffle` gives them.

    Args:
        draw: takes the number of random numbers, as a tensor of one element, and gives them.
        value: the tensor.
        seeds: those of the original.
        name: for the op, or None.
    """
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import array_ops, gen_array_ops, sort_ops

    with ops.name_scope(name, "RandomShuffle") as scope:
        value = ops.convert_to_tensor(value, name="value")
        if value.shape.ndims == 0:
            return value
        with own_part():
            # TensorFlow's op has no gradient either.
            held = array_ops.stop_gradient(value)
            order = sort_ops.argsort(draw(array_ops.shape(held)[:1]), stable=True)
            axis = ops.convert_to_tensor(0)
        shuffled = gen_array_ops.gather_v2(held, order, axis, name=scope)
        shuffled.set_shape(value.get_shape())
        stands_for(shuffled, "RandomShuffle", [0], {"T": "Tparams"}, seeds)
        return shuffled


@but_in_pipelines
def multinomial(
    original: Callable[..., Any],
    logits: Any,
    num_samples: Any,
    seed: int | None = 0,
    seed2: int | None = 0,
    output_dtype: Any = None,
    name: str | None = None,
) -> Any:
    """`gen_random_ops.multinomial`: a stateless op, keyed by a stateful one."""
    from tensorflow.python.framework import dtypes
    from tensorflow.python.ops import gen_stateful_random_ops

    state = _States.make("multinomial", seed, seed2)
    if state is None:
        output_dtype = output_dtype or dtypes.int64
        return original(logits, num_samples, seed=seed, seed2=seed2, output_dtype=output_dtype, name=name)
    draw = gen_stateful_random_ops.stateful_uniform_full_int
    return sample_by(lambda: draw(state[0], state[1], [2], dtypes.int64), logits, num_samples, (seed, seed2), output_dtype, name)


def sample_by(
    draw: Callable[[], Any],
    logits: Any,
    num_samples: Any,
    seeds: tuple[int | None, int | None],
    output_dtype: Any,
    name: str | None,
) -> Any:
    """Samples, as `multinomial` gives them.

    Args:
        draw: gives a key, a tensor of two integers.
        logits: those of the original.
        num_samples: that of the original.
        seeds: those of the original.
        output_dtype: int64 if it is None.
        name: for the op, or None.
    """
    from tensorflow.python.framework import dtypes, ops
    from tensorflow.python.ops import gen_stateless_random_ops

    with ops.name_scope(name, "Multinomial") as scope:
        logits = ops.convert_to_tensor(logits, name="logits")
        num_samples = ops.convert_to_tensor(num_samples, dtype=dtypes.int32, name="num_samples")
        with own_part():
            key = draw()
        samples = gen_stateless_random_ops.stateless_multinomial(
            logits, num_samples, key, output_dtype=output_dtype or dtypes.int64, name=scope
        )
        stands_for(samples, "Multinomial", [0, 1], {"T": "T", "output_dtype": "output_dtype"}, seeds)
        return samples


def _twin(
    twin: str,
    name: str,
    original: Callable[..., Any],
    shape: Any,
    dtype: Any,
    seed: int | None,
    seed2: int | None,
    given_name: str | None,
) -> Any:
    from tensorflow.python.framework import dtypes
    from tensorflow.python.ops import gen_stateful_random_ops

    # The twins have no kernel for bfloat16.
    dtype = dtypes.as_dtype(dtype)
    state = _States.make((twin, dtype.name), seed, seed2) if dtype != dtypes.bfloat16 else None
    if state is None:
        return original(shape, dtype, seed=seed, seed2=seed2, name=given_name)
    make = getattr(gen_stateful_random_ops, twin)
    made = make(state[0], state[1], shape, dtype=dtype, name=given_name or name)
    stands_for(made, name, [2], {"dtype": "dtype", "T": "shape_dtype"}, (seed, seed2))
    return made


def state_of_graph(kind: Hashable, seed: int | None, seed2: int | None) -> tuple[Any, Any] | None:
    """`(handle, algorithm)` for a new op in the default graph; None if an op cannot have a state of pedl-run.

    Args:
        kind: distinguishes ops that have separate streams; not used here, since in a graph each op has its stream.
        seed: of the graph, as TensorFlow would give it to the kernel.
        seed2: of the op, in the same way.
    """
    found = place_of_state(seed, seed2)
    if found is None:
        return None
    known, seed, seed2 = found
    handle = make_state(known, [0, seed2, seed])
    return inside_control_flow(known, handle), inside_control_flow(known, known.algorithm())


class _States:
    """Makes the states of new ops: those of graphs, or what `random_states.py` has for TensorFlow 2."""

    make: MakeState = staticmethod(state_of_graph)


def make_states_by(make: MakeState) -> None:
    """Called once, for TensorFlow 2; `make` takes the arguments of `state_of_graph`, and returns the same."""
    _States.make = staticmethod(make)


def place_of_state(seed: int | None, seed2: int | None) -> tuple[graphs.Graph, int, int] | None:
    """`(graph, seed, seed2)` for the state of a new op; None if an op cannot have a state of pedl-run.

    An op without any seed gets one of the trial.
    """
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    calls = recorder.CALLS
    if context.executing_eagerly() or not calls.on_main_thread():
        return None
    graph = ops.get_default_graph()
    if graph.building_function:
        calls.exactness.refuse(causes.RANDOM_IN_FUNCTION())
        return None
    seed, seed2 = seed or 0, seed2 or 0
    if not seed and not seed2:
        seed, seed2 = seeds_of_trial()
    return graphs.of(graph), seed, seed2


def make_state(known: graphs.Graph, first: list[int] | int) -> Any:
    """The handle of a new variable of the graph. `first` is its first value: a list of integers, or one."""
    from tensorflow.python.framework import constant_op, dtypes
    from tensorflow.python.ops import gen_resource_variable_ops

    with known.beside():
        name = f"pedl_random/{len(known.random_states)}"
        value = constant_op.constant(first, dtypes.int64, name="pedl_random/first")
        handle = gen_resource_variable_ops.var_handle_op(dtypes.int64, value.shape, shared_name=name, name=name)
        known.random_states.append(gen_resource_variable_ops.assign_variable_op(handle, value, name="pedl_random/set"))
    return handle


def inside_control_flow(known: graphs.Graph, tensor: Any) -> Any:
    """A tensor as seen inside the `cond` or `while_loop` that is being built, if any."""
    from tensorflow.python.framework import ops

    context = known.graph._get_control_flow_context()
    if context is None:
        return tensor
    if recorder.CALLS.trial.exact:
        _run_passes_in_turn(known.graph, context)
    with known.own_ids(), ops.name_scope("pedl_random"):
        return context.AddValue(tensor)


def _run_passes_in_turn(graph: Any, context: Any) -> None:
    """Has loops begin a pass only when the previous one has ended: else the passes draw from an op in any order."""
    from tensorflow.core.framework import attr_value_pb2

    loops = [loop for loop in control_flow.loops_around(context) if loop.parallel_iterations != 1]
    for loop in loops:
        loop._parallel_iterations = 1
    names = {loop.name.encode() for loop in loops}
    for op in graph.get_operations() if names else ():
        if op.type in ("Enter", "RefEnter") and op.get_attr("frame_name") in names:
            op._set_attr("parallel_iterations", attr_value_pb2.AttrValue(i=1))
