"""Keras 3: passes over the data of a fit that can be skipped in a replay.

The framework's loop asks its data adapter for an iterator, and passes it to the compute function, which takes the batch.
In a replay a compute function that is answered calls `skip` on the iterator instead of taking the batch. So the position
in the data is the number of batches consumed, whatever was read ahead.

Source: keras 3.15.1, keras/src/trainers/epoch_iterator.py and keras/src/trainers/data_adapters/.
"""
from __future__ import annotations

import itertools

from py_hooks.datasets import generators
from py_hooks.datasets.item_passes import SequencePass
from py_hooks.datasets.items import Items
from py_hooks.recording import recorder
from py_hooks.torch import data_loader
from py_hooks.workers import worker_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    class Skippable(Protocol):
        """One of our passes."""

        def skip(self) -> object:
            """Counts one batch as consumed."""


class ArrayPass:
    """One epoch over arrays, with the draws of `ArrayDataAdapter._get_iterator` in the same order.

    Source: keras 3.15.1, array_data_adapter.py, `ArrayDataAdapter._get_iterator`.
    """

    def __init__(self, adapter: Any, convert: Callable[..., Any], inputs: Any) -> None:
        self._adapter = adapter
        self._convert = convert
        self._inputs = inputs
        self._position = 0
        self._permutation = None

    def __iter__(self) -> ArrayPass:
        return self

    def _next_indices(self) -> Any:
        import numpy

        adapter = self._adapter
        if self._position >= adapter._size:
            raise StopIteration
        if self._position == 0 and adapter._shuffle and adapter._shuffle != "batch":
            self._permutation = numpy.random.permutation(adapter._num_samples)
        start = self._position * adapter._batch_size
        stop = min(start + adapter._batch_size, adapter._num_samples)
        self._position += 1
        if adapter._shuffle == "batch":
            return numpy.random.permutation(stop - start) + start
        if self._permutation is not None:
            return self._permutation[start:stop]
        return slice(start, stop)

    def __next__(self) -> Any:
        from keras.src import tree

        indices = self._next_indices()
        return tree.map_structure(lambda array: self._convert(array, indices), self._inputs, none_is_leaf=False)

    def skip(self) -> None:
        """Counts one batch as consumed, and draws what building it would have drawn."""
        self._next_indices()


def array_iterator(original: Callable[..., Any], adapter: Any, convert: Callable[..., Any], inputs: Any) -> ArrayPass:
    """`ArrayDataAdapter._get_iterator`: the same batches, by position."""
    return ArrayPass(adapter, convert, inputs)


def array_dataset(original: Callable[..., Any], adapter: Any) -> Any:
    """`ArrayDataAdapter.get_tf_dataset`: the pass keys the shuffles in it, if the script sets no seed."""
    streams = recorder.CALLS.streams
    streams.in_array_pipeline = adapter._pedl_is_of_arrays = True
    try:
        return original(adapter)
    finally:
        streams.in_array_pipeline = False


class ConvertedPass:
    """A framework's iterator around one of our passes: batches pass through it, skips bypass it."""

    def __init__(self, iterator: Iterator[Any], source: Skippable) -> None:
        self._iterator = iterator
        self._source = source

    def __iter__(self) -> ConvertedPass:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def skip(self) -> None:
        """Counts one batch as consumed."""
        self._source.skip()


def epoch_iterator(original: Callable[..., Any], iterator: Any, *args: Any, **kwargs: Any) -> None:
    """`EpochIterator.__init__`: notes in its adapter whether a pass continues after the end of an epoch."""
    original(iterator, *args, **kwargs)
    iterator.data_adapter._pedl_goes_on = iterator.steps_per_epoch is not None


def _goes_on(adapter: Any) -> bool:
    return getattr(adapter, "_pedl_goes_on", False)


def is_ours(adapter: Any) -> bool:
    """Whether passes over the data of a `PyDatasetAdapter` are ours."""
    return adapter.__dict__.get("_pedl_items") is not None


def sequence_adapter(original: Callable[..., Any], adapter: Any, x: Any, *args: Any, **kwargs: Any) -> None:
    """`PyDatasetAdapter.__init__`: our passes replace its enqueuer, except for processes that are not forked."""
    original(adapter, x, *args, **kwargs)
    calls = recorder.CALLS
    adapter._pedl_items = None
    in_processes = x.use_multiprocessing and x.workers > 0
    if in_processes and not worker_processes.are_forked():
        return
    # One worker without processes is the caller (keras 3.15.1, py_dataset_adapter.py, `PyDatasetAdapter.__init__`).
    workers = x.workers if x.workers > 1 or in_processes else 0
    adapter._pedl_items = Items(x, calls.streams.new_key(), workers, in_processes)
    adapter._pedl_epoch = -1
    adapter._pedl_start = 0
    adapter.enqueuer = None


def sequence_iterator(original: Callable[..., Any], adapter: Any) -> Any:
    """`PyDatasetAdapter._get_iterator`: one pass over the items."""
    if not is_ours(adapter):
        return original(adapter)
    dataset, epoch = adapter.py_dataset, max(0, adapter._pedl_epoch)
    length = dataset.num_batches
    items = adapter._pedl_items
    order = itertools.count() if length is None else items.order(length, epoch, adapter.shuffle)
    start, adapter._pedl_start = adapter._pedl_start, 0
    source = SequencePass(items, epoch, order, dataset.max_queue_size, start)
    return ConvertedPass(map(adapter._standardize_batch, source), source)


def sequence_jax_iterator(original: Callable[..., Any], adapter: Any) -> Any:
    """`PyDatasetAdapter.get_jax_iterator`: its conversion is a generator, which could not skip."""
    if not is_ours(adapter):
        return original(adapter)
    source = adapter._get_iterator()
    adapter._get_iterator = lambda: source
    try:
        converted = original(adapter)
    finally:
        del adapter._get_iterator
    return ConvertedPass(converted, source)


def loader_adapter(original: Callable[..., Any], adapter: Any, dataloader: Any) -> None:
    """`TorchDataLoaderAdapter.__init__`: processes of a pool build batches, if the loader asks for processes."""
    from keras.src.backend.config import backend

    original(adapter, dataloader)
    adapter._pedl_loader = None
    # On TensorFlow loaders are a cause, however their batches are built.
    if backend() != "tensorflow" and data_loader.is_for_pool(dataloader):
        loader = adapter._pedl_loader = data_loader.Loader(dataloader, recorder.CALLS.streams.new_key())
        adapter.on_epoch_end = lambda: loader.end_epoch(_goes_on(adapter))


def is_for_pool(adapter: Any) -> bool:
    """Whether the batches of a `TorchDataLoaderAdapter` are built by the processes of a pool."""
    return adapter._pedl_loader is not None


def loader_iterator(original: Callable[..., Any], adapter: Any) -> Any:
    """`TorchDataLoaderAdapter.get_numpy_iterator`: uses worker processes of a pool; in a replay nothing is built."""
    if not is_for_pool(adapter):
        return original(adapter)
    import numpy
    from keras.src import tree

    def to_numpy(batch: Any) -> tuple[Any, ...]:
        return tuple(tree.map_structure(lambda tensor: numpy.asarray(tensor.cpu()), batch, none_is_leaf=False))

    source = adapter._pedl_loader.begin()
    return ConvertedPass(map(to_numpy, source), source)


# The epoch of an item that is built to learn its types, before the first one.
PEEK = -1


class _Peeked:
    """A data set while its adapter learns the types of its items: they are built as all others are."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._dataset = adapter.py_dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __getitem__(self, index: int) -> Any:
        items = self._adapter._pedl_items
        item = items.build(PEEK, index)
        if items.must_be_built:
            self._adapter.enqueuer = _NO_PREFETCH
        return item


# In the place of an enqueuer it keeps the framework from looking ahead (keras 3.15.1, py_dataset_adapter.py,
# `PyDatasetAdapter.get_tf_dataset`). An item that is built early changes the data set early, and it is not known how early.
# If the pass continues after the end of an epoch, it is also built before that end changes the data set.
_NO_PREFETCH = object()


def sequence_dataset(original: Callable[..., Any], adapter: Any) -> Any:
    """`PyDatasetAdapter.get_tf_dataset`: it builds the first items to learn their types."""
    if not is_ours(adapter):
        return original(adapter)
    dataset, adapter.py_dataset = adapter.py_dataset, _Peeked(adapter)
    if adapter._pedl_items.must_be_built or _goes_on(adapter):
        adapter.enqueuer = _NO_PREFETCH
    try:
        return original(adapter)
    finally:
        adapter.py_dataset, adapter.enqueuer = dataset, None


def sequence_epoch_begin(original: Callable[..., Any], adapter: Any) -> Any:
    """`PyDatasetAdapter.on_epoch_begin`: calls the hook of the data set with a separate stream."""
    if not is_ours(adapter):
        return original(adapter)
    adapter._pedl_epoch += 1
    return _under_stream(original, adapter, "begin")


def sequence_epoch_end(original: Callable[..., Any], adapter: Any) -> Any:
    """`PyDatasetAdapter.on_epoch_end`: calls the hook of the data set with a separate stream."""
    if not is_ours(adapter):
        return original(adapter)
    adapter._pedl_items.end_epoch(adapter.num_batches or 0, _goes_on(adapter))
    return _under_stream(original, adapter, "end")


def _under_stream(original: Callable[..., Any], adapter: Any, hook: str) -> Any:
    def notify() -> Any:
        return original(adapter)

    notify.__name__ = hook
    return adapter._pedl_items.notify(notify, adapter._pedl_epoch)


class DatasetPass:
    """One pass over a `tf.data` pipeline of an adapter, which begins at the position that was skipped to.

    Nothing is pulled, and the pipeline's iterator is not even made, before the first element that is needed. But if an
    element does not depend only on its position, all elements are pulled, in a replay too, from iterators that are made
    in the order of the requests. This holds for a pipeline of the script, a Python generator, and a data set that changes
    while it builds.
    """

    def __init__(self, dataset: Any, adapter: Any, ordinal: int) -> None:
        self._dataset = dataset
        self._adapter = adapter
        self._ordinal = ordinal
        self._iterator = None
        self._position = 0
        self._skipped = 0
        self._taken = 0
        # Keras 2 has one pass over arrays for all epochs, and does not give its length.
        self._length = getattr(adapter, "num_batches", None)
        self._items = adapter._pedl_items if is_ours(adapter) else None
        if self._items is not None:
            self._items.begin_anew()
        if self._must_be_pulled():
            self.live()

    def _must_be_pulled(self) -> bool:
        if self._items is not None:
            return self._items.must_be_built
        return not getattr(self._adapter, "_pedl_is_of_arrays", False)

    def __iter__(self) -> DatasetPass:
        return self

    def __next__(self) -> Any:
        if recorder.CALLS.skips_data and not self._must_be_pulled():
            self._leave_out()
            return Skipped(self, self._skipped)
        return next(self.live())

    def skip(self) -> None:
        """Counts one element as consumed. Raises StopIteration at the end, as far as it is known without pulling."""
        if self._must_be_pulled():
            next(self.live())
            self._taken += 1
        elif self.taken(1):
            self._leave_out()
        else:
            raise StopIteration

    def _leave_out(self) -> None:
        self._skipped += 1
        if self._items is not None:
            self._items.leave_out()

    def taken(self, count: int) -> int:
        """A call takes up to `count` elements. Returns how many there are, as far as their number is known."""
        if self._length is not None:
            count = max(0, min(count, self._length - self._taken))
        self._taken += count
        return count

    def live(self) -> Iterator[Any]:
        """The iterator of the pipeline, at the position that was skipped to."""
        if self._iterator is None:
            recorder.CALLS.streams.begin_pass(self._ordinal)
            if self._items is not None:
                self._adapter._pedl_start = self._position = self._skipped
            self._iterator = iter(self._dataset)
        while self._position < self._skipped:
            next(self._iterator)
            self._position += 1
        return self._iterator


class Skipped:
    """An element of a `DatasetPass` that was not read: it is built only if a call needs it after all."""

    def __init__(self, source: DatasetPass, position: int) -> None:
        self._source = source
        self._position = position

    def element(self) -> Any:
        """The real element."""
        source = self._source
        source._skipped = self._position - 1
        iterator = source.live()
        source._skipped = source._position = self._position
        return next(iterator)


class Passes:
    """Replaces an adapter's pipeline: its iterators are `DatasetPass`es, numbered in the order of the requests."""

    def __init__(self, dataset: Any, adapter: Any) -> None:
        self._dataset = dataset
        self._adapter = adapter

    def __iter__(self) -> DatasetPass:
        streams = recorder.CALLS.streams
        streams.passes += 1
        return DatasetPass(self._dataset, self._adapter, streams.passes)


def dataset_iterator(original: Callable[..., Any], epoch_iterator: Any) -> Any:
    """`TFEpochIterator._get_iterator`: passes over the pipeline that can skip, in the recorder's thread."""
    dataset = original(epoch_iterator)
    calls = recorder.CALLS
    # Without an entry it is the iterator of a trainer that is not a model, whose functions are not intercepted.
    if calls.begun and calls.entries and calls.recordable():
        return Passes(dataset, epoch_iterator.data_adapter)
    return dataset


# -- Python generators -------------------------------------------------------------------------------------------------


# How many batches are drawn while another one is trained on.
AHEAD = 2


def generator_adapter(original: Callable[..., Any], adapter: Any, generator: Iterator[Any]) -> None:
    """`GeneratorDataAdapter.__init__`: batches are drawn with the generator's stream, by any thread."""
    source = generators.SOURCES.of(generator, recorder.CALLS.streams)
    # The source does not keep its generator alive.
    adapter._pedl_generator, adapter._pedl_source = generator, source
    original(adapter, source)


def generator_dataset(original: Callable[..., Any], adapter: Any) -> Any:
    """`GeneratorDataAdapter.get_tf_dataset`: the generator's source looks ahead, and not TensorFlow.

    How many batches TensorFlow would draw beyond those consumed is unknown, and a second fit continues after them.
    """
    from py_hooks.tensorflow.data import pipelines

    adapter._pedl_source.ahead = AHEAD
    return pipelines.without_prefetching(original(adapter))
