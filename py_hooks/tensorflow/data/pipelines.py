"""`tf.data` pipelines of the script: a replay pulls every element again, so a pipeline has to yield the same again.

An operation that draws without a seed gets a seed of the trial; a generator that a pipeline runs has a separate stream.
TensorFlow itself does not repeat a parallel map whose function draws random numbers, or keeps another state: with `--exact`
such a map is made sequential, without it the map is a cause. A pipeline that is configured not to keep an order is also a
cause, and so is a Python function in a pipeline that draws from the global generators.

Variables that a pipeline writes (the seeds of Keras's augmentation layers) run ahead of training with its prefetching.
Pulling rebuilds them, and they are no part of a checkpoint.

Source: tensorflow 1.13.1, 1.14.0, 1.15.5, 2.3.4 and 2.21.0, tensorflow/python/data/ops/dataset_ops.py, map_op.py,
from_generator_op.py; tensorflow/python/data/experimental/ops/batching.py; tensorflow/python/data/util/random_seed.py;
tensorflow/python/ops/script_ops.py.
"""
from __future__ import annotations

import functools
import inspect
import itertools
import os

from py_hooks import causes
from py_hooks.datasets.generators import GeneratorSource
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.random_numbers.random_streams import PrivateStream
from py_hooks.recording import call_kinds, recorder
from py_hooks.tensorflow.graphs import graphs, op_kinds
from py_hooks.tensorflow.random_ops import random_ops, random_states
from py_hooks.tensorflow.variables import resource_variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def seed(original: Callable[..., Any], seed: Any) -> Any:
    """`random_seed.get_seed` of `tf.data`: an operation without any seed gets one of the trial."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    calls = recorder.CALLS
    if seed is None and calls.on_main_thread():
        if _has_no_global_seed():
            seed = calls.streams.next_op_seed() % (1 << 31)
        elif calls.begun and not calls.depth and not context.executing_eagerly():
            # With a global seed, the operation's seed is the number of operations so far. A replay may have made fewer.
            count = graphs.of(ops.get_default_graph()).count
            calls.checked(call_kinds.WRITE, calls.trial.intern(_SEED_OF_OPERATIONS), count)
    return original(seed)


_SEED_OF_OPERATIONS = "operations in the graph before a tf.data operation without a seed"


def _has_no_global_seed() -> bool:
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    if context.executing_eagerly():
        return context.global_seed() is None
    graph = ops.get_default_graph()
    # If a function of the script builds it, it is no pipeline that a replay pulls.
    return graph.seed is None and (not graph.building_function or random_ops.is_tracing_pipeline())


def mapped(original: Callable[..., Any], dataset: Any, *args: Any, **kwargs: Any) -> Any:
    """`Dataset.map` and `Dataset.interleave`: a parallel one that does not repeat is sequential with `--exact`."""
    made = original(dataset, *args, **kwargs)
    function = _function_of(made)
    if function is None:
        return made
    is_stateful = _is_stateful(function)
    if is_stateful:
        _leave_out_of_checkpoints(function)
    given = dict(inspect.signature(original).bind(dataset, *args, **kwargs).arguments)
    if given.pop("num_parallel_calls", None) is None:
        return made
    if given.pop("deterministic", None) is False:
        _refuse(causes.PIPELINE_ORDER(option="deterministic=False"))
    if not is_stateful:
        return made
    if recorder.CALLS.trial.exact:
        return original(given.pop("self"), **given)
    _refuse(causes.PIPELINE_PARALLEL_MAP())
    return made


def batched(original: Callable[..., Any], dataset: Any, *args: Any, **kwargs: Any) -> Any:
    """`Dataset.batch`: an option lets it keep no order (from TensorFlow 2.5 on)."""
    if kwargs.get("deterministic") is False and kwargs.get("num_parallel_calls") is not None:
        _refuse(causes.PIPELINE_ORDER(option="deterministic=False"))
    return original(dataset, *args, **kwargs)


def cached(original: Callable[..., Any], dataset: Any, filename: Any = "", *args: Any, **kwargs: Any) -> Any:
    """`Dataset.cache`: C++ code fills a cache in files, and a replay fills it again."""
    name = _text_of(filename)
    if name:
        recorder.CALLS.files.caching(name)
    elif name is None:
        recorder.CALLS.exactness.refuse(causes.PIPELINE_CACHE())
    return original(dataset, filename, *args, **kwargs)


def stored(original: Callable[..., Any], dataset: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    """`Dataset.snapshot`, `Dataset.save`: a folder that C++ code writes."""
    name = _text_of(path)
    if name is None or os.path.lexists(name):
        recorder.CALLS.exactness.refuse(causes.PIPELINE_FOLDER())
    else:
        recorder.CALLS.files.entering(name)
    return original(dataset, path, *args, **kwargs)


def _text_of(name: Any) -> str | None:
    """A path that may be a tensor; None for one that has no value yet."""
    if hasattr(name, "numpy"):
        name = name.numpy()
    if isinstance(name, (str, bytes)) or hasattr(name, "__fspath__"):
        return os.fsdecode(name)
    return None


def mapped_and_batched(original: Callable[..., Any], dataset: Any, *args: Any, **kwargs: Any) -> None:
    """`_MapAndBatchDataset.__init__`, of `tf.data.experimental.map_and_batch`: always parallel."""
    original(dataset, *args, **kwargs)
    if _is_stateful(_function_of(dataset)):
        _refuse(causes.PIPELINE_MAP_AND_BATCH())


def interleaved(
    original: Callable[..., Any],
    dataset: Any,
    input_dataset: Any,
    map_func: Callable[..., Any],
    cycle_length: Any,
    block_length: Any,
    sloppy: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """`ParallelInterleaveDataset.__init__`, of `tf.data.experimental.parallel_interleave`."""
    original(dataset, input_dataset, map_func, cycle_length, block_length, sloppy, *args, **kwargs)
    if sloppy is not False and sloppy is not None:
        _refuse(causes.PIPELINE_ORDER(option="sloppy"))
    if _draws(dataset):
        _refuse(causes.PIPELINE_PARALLEL_INTERLEAVE())


def repeated(original: Callable[..., Any], dataset: Any, *args: Any, **kwargs: Any) -> Any:
    """`Dataset.repeat` in TensorFlow 2.2 to 2.5: a race decides if random ops start again in the second round.

    Of 16 rounds of 2.3.4 half did; in 1.13 to 1.15 and from 2.6 on all do.
    """
    waiting = [dataset]
    while waiting:
        above = waiting.pop()
        if _draws(above):
            _refuse(causes.PIPELINE_REPEAT())
        waiting.extend(above._inputs())
    return original(dataset, *args, **kwargs)


def function_within(original: Callable[..., Any], wrapper: Any, *args: Any, **kwargs: Any) -> None:
    """`StructuredFunctionWrapper.__init__` in TensorFlow 2.2 to 2.5: a function of a data set within a data set.

    A race decides if its random ops start again for each data set that the outer function makes: of 150 passes of 2.3.4
    half did; in 1.13 to 1.15 and from 2.6 on all do.
    """
    is_nested = random_ops.is_tracing_pipeline()
    random_states.pipeline_function(original, wrapper, *args, **kwargs)
    if is_nested and recorder.CALLS.on_main_thread() and random_ops.draws(wrapper.function):
        _refuse(causes.PIPELINE_NESTED())


def _draws(dataset: Any) -> bool:
    """Whether the function of a data set draws random numbers."""
    function = _function_of(dataset)
    return function is not None and random_ops.draws(function)


def _function_of(dataset: Any) -> Any:
    """The traced function of a data set that was just made; None if it has none."""
    # TensorFlow 1 wraps the data set.
    dataset = getattr(dataset, "_dataset", dataset)
    return dataset._map_func.function if hasattr(dataset, "_map_func") else None


def _is_stateful(function: Any) -> bool:
    return op_kinds.definition_of(function).signature.is_stateful


# How Keras names the state of a layer's random numbers (keras 3.15.1, keras/src/random/seed_generator.py).
_SEED_STATE = "seed_generator_state"


def _leave_out_of_checkpoints(function: Any) -> None:
    """Leaves out the variables that a pipeline's function writes: pulling rebuilds them."""
    from tensorflow.python.framework import dtypes

    handles = [tensor for tensor in function.captured_inputs if tensor.dtype == dtypes.resource]
    if not handles or not any(node.op.startswith("Assign") for node in op_kinds.nodes_of(function)):
        return
    written = [handle for handle in handles if _SEED_STATE in resource_variables.RESOURCE_VARIABLES.name_of(handle)]
    resource_variables.RESOURCE_VARIABLES.rebuilt_by_pipelines(written)
    if len(written) < len(handles):
        recorder.CALLS.exactness.refuse(causes.PIPELINE_WRITES())


def _refuse(cause: causes.Told) -> None:
    calls = recorder.CALLS
    if not calls.depth:
        # What was computed with the data is recorded and continues from the same state; only the data are drawn again.
        calls.exactness.refuse(cause)


def from_generator(original: Callable[..., Any], generator: Any, *args: Any, **kwargs: Any) -> Any:
    """`Dataset.from_generator`: gives every generator that it makes a separate stream."""
    calls = recorder.CALLS
    if calls.depth or not calls.on_main_thread() or not callable(generator):
        return original(generator, *args, **kwargs)
    key, numbers = calls.streams.new_key(), itertools.count()

    def make(*values: Any) -> GeneratorSource:
        iterator = iter(generator(*values))
        return GeneratorSource(lambda: iterator, (*key, next(numbers)))

    return original(make, *args, **kwargs)


def python_function(original: Callable[..., Any], func: Any, *args: Any, **kwargs: Any) -> Any:
    """`script_ops._internal_py_func`: a Python function in a graph, which may run in any thread and ahead of time."""
    from tensorflow.python.eager import context

    if not callable(func) or context.executing_eagerly():
        return original(func, *args, **kwargs)

    key, numbers = recorder.CALLS.streams.new_key(), itertools.count()

    def watched(*values: Any) -> Any:
        with PrivateStream("a Python function", *key, next(numbers)) as stream:
            result = func(*values)
        if stream.is_drawn_from:
            recorder.CALLS.exactness.refuse(causes.PIPELINE_PYTHON())
        return result

    return original(watched, *args, **kwargs)


def without_prefetching(dataset: Any) -> Any:
    """A pipeline of the framework, without the prefetching at its end, and without any that TensorFlow would add."""
    import tensorflow

    while type(dataset).__name__.strip("_") == "PrefetchDataset":
        dataset = dataset._input_dataset
    options = tensorflow.data.Options()
    *groups, option = tensorflow_facts().option_of_tuning.split(".")
    # TensorFlow adds no prefetching if it does not tune.
    setattr(functools.reduce(getattr, groups, options), option, False)
    return dataset.with_options(options)
