"""Keras 3: passes over the data of a fit that can be skipped in a replay.

The framework's loop asks its data adapter for an iterator, and hands that to the compute function, which takes the
batch. In a replay a compute function that is answered calls `skip` on the iterator instead of taking the batch. So
the position in the data is the number of batches consumed, whoever looked ahead.

Source: keras 3.15.1, keras/src/trainers/epoch_iterator.py and keras/src/trainers/data_adapters/.
"""
import itertools

from py_hooks.advice import calls as recorder
from py_hooks.advice.data import Items, SequencePass
from py_hooks.advice.random_streams import PrivateStream


class ArrayPass:
    """One epoch over arrays, with the draws of `ArrayDataAdapter._get_iterator` in the same order.

    Source: keras 3.15.1, array_data_adapter.py, `ArrayDataAdapter._get_iterator`.
    """

    def __init__(self, adapter, convert, inputs):
        self._adapter = adapter
        self._convert = convert
        self._inputs = inputs
        self._position = 0
        self._permutation = None

    def __iter__(self):
        return self

    def _next_indices(self):
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

    def __next__(self):
        from keras.src import tree

        indices = self._next_indices()
        return tree.map_structure(lambda array: self._convert(array, indices), self._inputs, none_is_leaf=False)

    def skip(self):
        """Counts one batch as consumed, and draws what building it would have drawn."""
        self._next_indices()


def array_iterator(original, adapter, convert, inputs):
    """`ArrayDataAdapter._get_iterator`: the same batches, by position."""
    return ArrayPass(adapter, convert, inputs)


def array_dataset(original, adapter):
    """`ArrayDataAdapter.get_tf_dataset`: the shuffles in it are keyed by the pass where the script sets no seed."""
    streams = recorder.CALLS.streams
    streams.in_array_pipeline = True
    try:
        return original(adapter)
    finally:
        streams.in_array_pipeline = False


class ConvertedPass:
    """A framework's iterator around one of our passes: batches come through it, skips go past it."""

    def __init__(self, iterator, source):
        self._iterator = iterator
        self._source = source

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._iterator)

    def skip(self):
        """Counts one batch as consumed."""
        self._source.skip()


def _is_ours(adapter):
    return adapter.__dict__.get("_pedl_items") is not None


def sequence_adapter(original, adapter, x, *args, **kwargs):
    """`PyDatasetAdapter.__init__`: our passes take the place of its enqueuer, but for worker processes."""
    original(adapter, x, *args, **kwargs)
    calls = recorder.CALLS
    adapter._pedl_items = None
    if x.use_multiprocessing and x.workers > 0:
        return
    adapter._pedl_items = Items(x, calls.streams.new_key())
    adapter._pedl_epoch = -1
    adapter._pedl_start = 0
    adapter.enqueuer = None


def sequence_iterator(original, adapter):
    """`PyDatasetAdapter._get_iterator`: one pass over the items."""
    if not _is_ours(adapter):
        return original(adapter)
    dataset, epoch = adapter.py_dataset, max(0, adapter._pedl_epoch)
    length = dataset.num_batches
    items = adapter._pedl_items
    order = itertools.count() if length is None else items.order(length, epoch, adapter.shuffle)
    ahead = 1 if recorder.CALLS.replaying else dataset.max_queue_size
    start, adapter._pedl_start = adapter._pedl_start, 0
    # One worker without processes is the caller (keras 3.15.1, py_dataset_adapter.py, `PyDatasetAdapter.__init__`).
    workers = dataset.workers if dataset.workers > 1 else 0
    source = SequencePass(items, epoch, order, workers, ahead, start)
    return ConvertedPass(map(adapter._standardize_batch, source), source)


def sequence_jax_iterator(original, adapter):
    """`PyDatasetAdapter.get_jax_iterator`: its conversion is a generator, which could not skip."""
    if not _is_ours(adapter):
        return original(adapter)
    source = adapter._get_iterator()
    adapter._get_iterator = lambda: source
    try:
        converted = original(adapter)
    finally:
        del adapter._get_iterator
    return ConvertedPass(converted, source)


def sequence_dataset(original, adapter):
    """`PyDatasetAdapter.get_tf_dataset`: it builds the first items to learn their types, under a stream of its own."""
    if not _is_ours(adapter):
        return original(adapter)
    with PrivateStream(*(adapter._pedl_items.key + ("peek",))):
        return original(adapter)


def sequence_epoch_begin(original, adapter):
    """`PyDatasetAdapter.on_epoch_begin`: the data set's own hook, under a stream of its own."""
    if not _is_ours(adapter):
        return original(adapter)
    adapter._pedl_epoch += 1
    return _under_stream(original, adapter, "begin")


def sequence_epoch_end(original, adapter):
    """`PyDatasetAdapter.on_epoch_end`: the data set's own hook, under a stream of its own."""
    if not _is_ours(adapter):
        return original(adapter)
    return _under_stream(original, adapter, "end")


def _under_stream(original, adapter, hook):
    def notify():
        return original(adapter)

    notify.__name__ = hook
    return adapter._pedl_items.notify(notify, adapter._pedl_epoch)


class DatasetPass:
    """One pass over a `tf.data` pipeline of an adapter, begun at the position that was skipped to.

    Nothing is pulled, and the pipeline's iterator is not even made, before the first element that somebody needs.
    """

    def __init__(self, dataset, adapter, ordinal):
        self._dataset = dataset
        self._adapter = adapter
        self._ordinal = ordinal
        self._iterator = None
        self._position = 0
        self._skipped = 0

    def __iter__(self):
        return self

    def __next__(self):
        if recorder.CALLS.replaying:
            self._skipped += 1
            return Skipped(self, self._skipped)
        return next(self.live())

    def skip(self):
        """Counts one element as consumed."""
        self._skipped += 1

    def live(self):
        """The pipeline's own iterator, at the position skipped to."""
        if self._iterator is None:
            recorder.CALLS.streams.begin_pass(self._ordinal)
            if _is_sequence(self._adapter):
                self._adapter._pedl_start = self._position = self._skipped
            self._iterator = iter(self._dataset)
        while self._position < self._skipped:
            next(self._iterator)
            self._position += 1
        return self._iterator


class Skipped:
    """An element of a `DatasetPass` that nobody has looked into: made only where a call needs it after all."""

    def __init__(self, source, position):
        self._source = source
        self._position = position

    def element(self):
        """The real element."""
        source = self._source
        source._skipped = self._position - 1
        iterator = source.live()
        source._skipped = source._position = self._position
        return next(iterator)


def _is_sequence(adapter):
    return "_pedl_items" in adapter.__dict__


class _Passes:
    """Stands for an adapter's pipeline: its iterators are `DatasetPass`es, numbered in the order they are asked for."""

    def __init__(self, dataset, adapter):
        self._dataset = dataset
        self._adapter = adapter

    def __iter__(self):
        streams = recorder.CALLS.streams
        streams.passes += 1
        return DatasetPass(self._dataset, self._adapter, streams.passes)


def dataset_iterator(original, epoch_iterator):
    """`TFEpochIterator._get_iterator`: passes over the pipeline that can skip, in the recorder's thread."""
    dataset = original(epoch_iterator)
    calls = recorder.CALLS
    # Without an entry it is the iterator of a trainer that is no model, whose functions are the framework's own.
    if calls.begun and calls.entries and calls.recordable():
        return _Passes(dataset, epoch_iterator.data_adapter)
    return dataset
