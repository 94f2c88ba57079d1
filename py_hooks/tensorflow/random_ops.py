"""TensorFlow 1: random ops whose state can be read and assigned.

A stateful random kernel hides its counter. So an op is built as its twin that draws from a variable of the graph: with
the state that TensorFlow would give the kernel, the numbers are the same, bit for bit. `random_shuffle` and
`multinomial` have no such twin and are built from ops that do: another stream, as random as theirs.

An op without any seed would draw from the operating system; it gets a seed of the trial.

Source: tensorflow 1.15.5, tensorflow/python/ops/gen_random_ops.py and gen_stateful_random_ops.py; the layout of a
state, tensorflow/core/kernels/stateful_random_ops.cc: counter (two words), key.
"""
from py_hooks.advice import calls as recorder
from py_hooks.tensorflow import graphs


def random_uniform(original, shape, dtype, seed=0, seed2=0, name=None):
    """`gen_random_ops.random_uniform`."""
    return _twin("stateful_uniform", "RandomUniform", original, shape, dtype, seed, seed2, name)


def random_standard_normal(original, shape, dtype, seed=0, seed2=0, name=None):
    """`gen_random_ops.random_standard_normal`."""
    return _twin("stateful_standard_normal_v2", "RandomStandardNormal", original, shape, dtype, seed, seed2, name)


def truncated_normal(original, shape, dtype, seed=0, seed2=0, name=None):
    """`gen_random_ops.truncated_normal`."""
    return _twin("stateful_truncated_normal", "TruncatedNormal", original, shape, dtype, seed, seed2, name)


def random_uniform_int(original, shape, minval, maxval, seed=0, seed2=0, name=None):
    """`gen_random_ops.random_uniform_int`."""
    from tensorflow.python.ops import gen_stateful_random_ops

    state = _new_state(seed, seed2)
    if state is None:
        return original(shape, minval, maxval, seed=seed, seed2=seed2, name=name)
    name = name or "RandomUniformInt"
    return gen_stateful_random_ops.stateful_uniform_int(state[0], state[1], shape, minval, maxval, name=name)


def random_shuffle(original, value, seed=0, seed2=0, name=None):
    """`gen_random_ops.random_shuffle`: the order in which as many random numbers sort."""
    from tensorflow.python.framework import dtypes, ops
    from tensorflow.python.ops import array_ops, gen_stateful_random_ops, sort_ops

    state = _new_state(seed, seed2)
    if state is None:
        return original(value, seed=seed, seed2=seed2, name=name)
    with ops.name_scope(name, "RandomShuffle"):
        value = ops.convert_to_tensor(value)
        drawn = gen_stateful_random_ops.stateful_uniform(state[0], state[1], array_ops.shape(value)[:1], dtypes.float64)
        shuffled = array_ops.gather(value, sort_ops.argsort(drawn, stable=True))
        shuffled.set_shape(value.get_shape())
        return shuffled


def multinomial(original, logits, num_samples, seed=0, seed2=0, output_dtype=None, name=None):
    """`gen_random_ops.multinomial`: a stateless op, keyed by a stateful one."""
    from tensorflow.python.framework import dtypes, ops
    from tensorflow.python.ops import gen_stateful_random_ops, gen_stateless_random_ops

    output_dtype = output_dtype or dtypes.int64
    state = _new_state(seed, seed2)
    if state is None:
        return original(logits, num_samples, seed=seed, seed2=seed2, output_dtype=output_dtype, name=name)
    with ops.name_scope(name, "Multinomial"):
        key = gen_stateful_random_ops.stateful_uniform_full_int(state[0], state[1], [2], dtypes.int64)
        return gen_stateless_random_ops.stateless_multinomial(logits, num_samples, key, output_dtype=output_dtype)


def _twin(twin, name, original, shape, dtype, seed, seed2, given_name):
    from tensorflow.python.framework import dtypes
    from tensorflow.python.ops import gen_stateful_random_ops

    # The twins have no kernel for it.
    state = _new_state(seed, seed2) if dtypes.as_dtype(dtype) != dtypes.bfloat16 else None
    if state is None:
        return original(shape, dtype, seed=seed, seed2=seed2, name=given_name)
    make = getattr(gen_stateful_random_ops, twin)
    return make(state[0], state[1], shape, dtype=dtype, name=given_name or name)


def _new_state(seed, seed2):
    """`(handle, algorithm)` for a new op in the default graph; None where an op cannot have a state of ours."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    calls = recorder.CALLS
    if context.executing_eagerly() or not calls.on_main_thread():
        return None
    graph = ops.get_default_graph()
    if graph.building_function:
        calls.refuse_exactness("a random op inside a TensorFlow function, where its state cannot be read")
        return None
    seed, seed2 = seed or 0, seed2 or 0
    if not seed and not seed2:
        drawn = calls.streams.next_op_seed()
        seed, seed2 = drawn >> 33, drawn & 0x7FFFFFFF
    known = graphs.of(graph)
    return _inside_control_flow(known, _make_state(known, seed, seed2), known.algorithm())


def _make_state(known, seed, seed2):
    from tensorflow.python.framework import constant_op, dtypes
    from tensorflow.python.ops import gen_resource_variable_ops

    with known.beside():
        name = f"pedl_random/{len(known.random_states)}"
        handle = gen_resource_variable_ops.var_handle_op(dtypes.int64, [3], shared_name=name, name=name)
        first = constant_op.constant([0, seed2, seed], dtypes.int64, name="pedl_random/first")
        known.random_states.append(gen_resource_variable_ops.assign_variable_op(handle, first, name="pedl_random/set"))
    return handle


def _inside_control_flow(known, handle, algorithm):
    """The two inputs as they come into the `cond` or `while_loop` that is being built, if any."""
    context = known.graph._get_control_flow_context()
    if context is None:
        return handle, algorithm
    with known.own_ids():
        return context.AddValue(handle), context.AddValue(algorithm)
