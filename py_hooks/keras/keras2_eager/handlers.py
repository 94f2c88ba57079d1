"""Keras 2 on TensorFlow 2: passes over the data of a fit that can be skipped in a replay.

A `DataHandler` has an adapter for its kind of data make a `tf.data` pipeline, and passes the pipeline's iterator to the
compute function, which takes the batch. The iterator is replaced by a `DatasetPass` (`passes.py`). In a replay it pulls
nothing; if a batch is needed again, the pipeline is advanced to it.

Over arrays there is one pass for all epochs, whose orders a shuffle in the pipeline draws; advancing it pulls the batches
before. Over a `Sequence` there is a pass for each epoch, whose items are built with separate streams.

Source: keras 2.15.0, keras/src/engine/data_adapter.py.
"""
from __future__ import annotations

from py_hooks.datasets import generators
from py_hooks.datasets.item_passes import SequencePass
from py_hooks.datasets.items import Items
from py_hooks.engine.patch import binding
from py_hooks.keras.keras3.passes import AHEAD, PEEK, Passes
from py_hooks.recording import recorder
from py_hooks.tensorflow.data import pipelines
from py_hooks.workers import worker_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

# Adapters whose pipelines depend only on the position in them.
_OF_ARRAYS = (
    "TensorLikeDataAdapter", "GenericArrayLikeDataAdapter", "CompositeTensorDataAdapter", "ListsOfScalarsDataAdapter",
)


@binding
def enumerate_epochs(original: Callable[..., Any]) -> Callable[..., Any]:
    """`DataHandler.enumerate_epochs`: its iterators are passes that can skip, in the recorder's thread."""

    def epochs(handler: Any) -> Iterator[Any]:
        calls = recorder.CALLS
        if calls.begun and calls.entries and calls.recordable():
            return _with_passes(original, handler)
        return original(handler)

    return epochs


def _with_passes(original: Callable[..., Any], handler: Any) -> Iterator[Any]:
    dataset = handler._dataset
    handler._adapter._pedl_is_of_arrays = type(handler._adapter).__name__ in _OF_ARRAYS
    handler._dataset = Passes(dataset, handler._adapter)
    try:
        yield from original(handler)
    finally:
        handler._dataset = dataset


def local_dataset(
    original: Callable[..., Any], handler: Any, strategy: Any, x: Any, steps_per_epoch: Any, class_weight: Any, distribute: bool
) -> Any:
    """`DataHandler._configure_dataset_and_inferred_steps`: each of several ranks already has its share of the data.

    So the strategy does not share it out again; the iterator is an ordinary one of TensorFlow, as with one process.
    """
    is_shared = getattr(recorder.CALLS.agreement, "strategy", None) is strategy
    return original(handler, strategy, x, steps_per_epoch, class_weight, distribute and not is_shared)


# -- sequences ---------------------------------------------------------------------------------------------------------

# The items of the adapter that is being made, innermost last.
_BEING_MADE: list[Items | None] = []


def sequence_adapter(original: Callable[..., Any], adapter: Any, x: Any, *args: Any, **kwargs: Any) -> None:
    """`KerasSequenceAdapter.__init__`: our passes replace its enqueuer, except for processes that are not forked."""
    items, workers = None, kwargs.get("workers", 1)
    in_processes = kwargs.get("use_multiprocessing", False) and workers > 0
    if not in_processes or worker_processes.are_forked():
        workers = workers if workers > 1 or in_processes else 0
        items = adapter._pedl_items = Items(x, recorder.CALLS.streams.new_key(), workers, in_processes)
        adapter._pedl_epoch = adapter._pedl_start = 0
    _BEING_MADE.append(items)
    try:
        original(adapter, x, *args, **kwargs)
    finally:
        _BEING_MADE.pop()
    if items is not None and items.must_be_built:
        # An item that is built early changes the data set early, and it is not known how early.
        adapter._dataset = pipelines.without_prefetching(adapter._dataset)


def peek(original: Callable[..., Any], x: Any) -> Any:
    """`KerasSequenceAdapter._peek_and_restore`: builds the first item to learn its types, with a separate stream."""
    items = _BEING_MADE[-1] if _BEING_MADE else None
    if items is None:
        return original(x)
    return items.build(PEEK, 0), x


def sequence_items(
    original: Callable[..., Any], adapter: Any, x: Any, workers: int, use_multiprocessing: bool, max_queue_size: int
) -> Callable[[], Any]:
    """`KerasSequenceAdapter._handle_multiprocessing`: the function that makes one pass over the items."""
    items = adapter.__dict__.get("_pedl_items")
    if items is None:
        return original(adapter, x, workers, use_multiprocessing, max_queue_size)

    def begin() -> SequencePass:
        epoch = adapter._pedl_epoch
        order = items.order(len(x), epoch, adapter._shuffle_sequence)
        start, adapter._pedl_start = adapter._pedl_start, 0
        return SequencePass(items, epoch, order, max_queue_size, start)

    return begin


def sequence_epoch_end(original: Callable[..., Any], adapter: Any) -> Any:
    """`KerasSequenceAdapter.on_epoch_end`: calls the hook of the data set with a separate stream."""
    items = adapter.__dict__.get("_pedl_items")
    if items is None:
        return original(adapter)

    def on_epoch_end() -> Any:
        return original(adapter)

    items.end_epoch(len(items.dataset))
    items.notify(on_epoch_end, adapter._pedl_epoch)
    adapter._pedl_epoch += 1
    return None


# -- Python generators -------------------------------------------------------------------------------------------------


def generator_adapter(original: Callable[..., Any], adapter: Any, x: Any, *args: Any, **kwargs: Any) -> None:
    """`GeneratorDataAdapter.__init__`: batches are drawn with the generator's stream, ahead by one of our threads.

    How many batches TensorFlow would draw beyond those consumed is unknown, and a second fit continues after them.
    """
    workers = kwargs.get("workers", 1)
    if not hasattr(x, "__next__") or hasattr(x, "__getitem__") or (kwargs.get("use_multiprocessing") and workers > 0):
        # A `Sequence` (image iterators are both), whose adapter is derived from this one; or processes, each with a
        # copy of the generator.
        original(adapter, x, *args, **kwargs)
        return
    source = generators.SOURCES.of(x, recorder.CALLS.streams)
    source.ahead = AHEAD if workers else 0
    # The source does not keep its generator alive.
    adapter._pedl_generator = x
    original(adapter, source, *args, **dict(kwargs, workers=0))
    adapter._dataset = pipelines.without_prefetching(adapter._dataset)
