"""TensorFlow 1.13: random ops whose state can be read and assigned.

This version has no op that draws from a variable. So an op is built as a stateless one. Its key is its seeds and a number
that a variable of the graph counts up, so each run draws under the next number. One op counts (`ResourceCountUpTo`), so no
number is used twice in a loop that runs several passes at once. The numbers drawn differ from TensorFlow's, and are as random.

Source: tensorflow 1.13.1, tensorflow/python/ops/gen_stateless_random_ops.py and gen_state_ops.py.
"""
from __future__ import annotations

from py_hooks.tensorflow.graphs.graph_definitions import stands_for
from py_hooks.tensorflow.random_ops.random_ops import (
    but_in_pipelines,
    inside_control_flow,
    make_state,
    place_of_state,
    sample_by,
    sort_by,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_LAST = (1 << 63) - 1


@but_in_pipelines
def random_uniform(
    original: Callable[..., Any], shape: Any, dtype: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_uniform`."""
    return _keyed("stateless_random_uniform", "RandomUniform", original, shape, dtype, seed, seed2, name)


@but_in_pipelines
def random_standard_normal(
    original: Callable[..., Any], shape: Any, dtype: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_standard_normal`."""
    return _keyed("stateless_random_normal", "RandomStandardNormal", original, shape, dtype, seed, seed2, name)


@but_in_pipelines
def truncated_normal(
    original: Callable[..., Any], shape: Any, dtype: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.truncated_normal`."""
    return _keyed("stateless_truncated_normal", "TruncatedNormal", original, shape, dtype, seed, seed2, name)


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
    from tensorflow.python.ops import gen_stateless_random_ops

    key = _new_key(seed, seed2)
    if key is None:
        return original(shape, minval, maxval, seed=seed, seed2=seed2, name=name)
    name = name or "RandomUniformInt"
    # The stateless op may convert Python's integers to another type.
    minval = ops.convert_to_tensor(minval)
    maxval = ops.convert_to_tensor(maxval, dtype=minval.dtype)
    made = gen_stateless_random_ops.stateless_random_uniform_int(shape, key, minval, maxval, name=name)
    stands_for(made, "RandomUniformInt", [0, 2, 3], {"Tout": "dtype", "T": "T"}, (seed, seed2))
    return made


@but_in_pipelines
def random_shuffle(
    original: Callable[..., Any], value: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_shuffle`: draws one random number for each row, and takes the order in which these sort."""
    from tensorflow.python.framework import dtypes
    from tensorflow.python.ops import gen_stateless_random_ops

    key = _new_key(seed, seed2)
    if key is None:
        return original(value, seed=seed, seed2=seed2, name=name)
    draw = gen_stateless_random_ops.stateless_random_uniform
    return sort_by(lambda count: draw(count, key, dtypes.float64), value, (seed, seed2), name)


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
    """`gen_random_ops.multinomial`."""
    from tensorflow.python.framework import dtypes

    key = _new_key(seed, seed2)
    if key is None:
        output_dtype = output_dtype or dtypes.int64
        return original(logits, num_samples, seed=seed, seed2=seed2, output_dtype=output_dtype, name=name)
    return sample_by(lambda: key, logits, num_samples, (seed, seed2), output_dtype, name)


def _keyed(
    stateless: str,
    name: str,
    original: Callable[..., Any],
    shape: Any,
    dtype: Any,
    seed: int | None,
    seed2: int | None,
    given_name: str | None,
) -> Any:
    from tensorflow.python.ops import gen_stateless_random_ops

    key = _new_key(seed, seed2)
    if key is None:
        return original(shape, dtype, seed=seed, seed2=seed2, name=given_name)
    made = getattr(gen_stateless_random_ops, stateless)(shape, key, dtype=dtype, name=given_name or name)
    stands_for(made, name, [0], {"dtype": "dtype", "T": "T"}, (seed, seed2))
    return made


def _new_key(seed: int | None, seed2: int | None) -> Any:
    """The key of a new op in the default graph, which changes with each run; None if an op cannot have a state of pedl-run."""
    from tensorflow.python.framework import constant_op, dtypes
    from tensorflow.python.ops import array_ops, gen_state_ops

    found = place_of_state(seed, seed2)
    if found is None:
        return None
    known, seed, seed2 = found
    handle = inside_control_flow(known, make_state(known, 0))
    with known.own_ids():
        number = gen_state_ops.resource_count_up_to(handle, _LAST, dtypes.int64, name="pedl_random/number")
        seeds = constant_op.constant((seed & 0x7FFFFFFF) << 32 | seed2 & 0xFFFFFFFF, dtypes.int64, name="pedl_random/seeds")
        return array_ops.stack([seeds, number], name="pedl_random/key")
