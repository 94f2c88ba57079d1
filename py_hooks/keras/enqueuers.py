"""Keras 2: what `fit_generator` and its siblings take batches from, with a position that a replay can skip to.

The framework's `OrderedEnqueuer` has a thread that hands items to workers, and lets the data set's `on_epoch_end` run
when it finds its queue empty. Here the consumer drives: workers build a few items ahead of it, and an epoch ends when
the first item of the next one is asked for, or when `join_end_of_epoch` says so. So what a data set goes through
depends on what was consumed, not on the clock.

In a replay an item that only an answered call would look into is not built: a `SkippedBatch` of its size stands in.

Source: keras 2.3.1, keras/utils/data_utils.py and keras/engine/training_generator.py; for image iterators,
keras_preprocessing 1.1.2, keras_preprocessing/image/iterator.py.
"""
import sys
import threading

from py_hooks.advice import calls as recorder
from py_hooks.advice.data import Items, SequencePass
from py_hooks.advice.random_streams import PrivateStream

_LOOP = "keras.engine.training_generator"
_LOCAL = threading.local()


class SkippedBatch:
    """Stands in for the arrays of a batch that nobody looks into: it has a size, and nothing else."""

    def __init__(self, size):
        self.shape = (size,)

    def __len__(self):
        return self.shape[0]


class EnqueuedItems(Items):
    """Items whose builders know which one they build, and that notice a data set that changes while it builds."""

    def __init__(self, dataset, key):
        Items.__init__(self, dataset, key)
        self._watched = False

    def build(self, epoch, index):
        """The item at `index`, as the data set makes it in that epoch."""
        outer = getattr(_LOCAL, "item", None)
        _LOCAL.item = (epoch, index)
        try:
            return Items.build(self, epoch, index) if self._watched else self._build_first(epoch, index)
        finally:
            _LOCAL.item = outer

    def _build_first(self, epoch, index):
        self._watched = True
        before = self.plain_attributes()
        item = Items.build(self, epoch, index)
        after = self.plain_attributes()
        changed = sorted(name for name in after if after[name] != before.get(name))
        if changed:
            recorder.CALLS.refuse_exactness(
                f"the data set `{type(self.dataset).__name__}` changes its attribute `{changed[0]}` in `__getitem__`"
            )
        return item


class ItemStream:
    """The items of a data set, epoch after epoch, as an enqueuer yields them.

    Args:
        dataset: a `Sequence`.
        workers: threads that build ahead; with 0 the consumer builds.
        ahead: how many items may be under way.
        shuffle: whether every epoch has an order of its own.
        notifies: whether the end of an epoch calls `on_epoch_end`; where not, the framework's loop calls it.
    """

    def __init__(self, dataset, workers, ahead, shuffle, notifies):
        streams = recorder.CALLS.streams
        self._dataset = dataset
        self._items = EnqueuedItems(dataset, streams.new_key())
        self._workers = workers
        self._ahead = ahead
        self._shuffle = shuffle
        self._notifies = notifies
        self._epoch = 0
        self._length = 0
        self._taken = 0
        self._taken_in_all = 0
        self._pass = None
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        from py_hooks.keras.graph import recorded_batch_size

        calls = recorder.CALLS
        if self.closed:
            raise StopIteration
        self._begin_epoch()
        size = recorded_batch_size(calls) if sys._getframe(1).f_globals.get("__name__") == _LOOP else 0
        item = self._skip(size) if size else next(self._pass)
        self._taken += 1
        self._taken_in_all += 1
        self._end_of_pass()
        if item is None:
            calls.refuse_exactness("a data set with items that are None")
            return next(self)
        return item

    def _begin_epoch(self):
        """Lets the next epoch begin, if the last one is over or there was none."""
        self.join_end_of_epoch()
        if self._pass is None:
            self._length = len(self._dataset)
            self._taken = 0
            order = self._items.order(self._length, self._epoch, self._shuffle)
            self._pass = SequencePass(self._items, self._epoch, order, self._workers, self._ahead)

    def _skip(self, size):
        self._pass.skip()
        return SkippedBatch(size), SkippedBatch(size)

    def _end_of_pass(self):
        """Leaves generators that the data set owns in a state that does not depend on which items were built."""
        if self._taken == self._length and not self._notifies:
            self._items.notify(_settle, self._epoch)

    def join_end_of_epoch(self):
        """Ends the epoch, if its last item was taken."""
        if self._pass is not None and self._taken == self._length:
            self._pass.close()
            self._pass = None
            if self._notifies:
                self._items.notify(self._dataset.on_epoch_end, self._epoch)
            self._epoch += 1

    def close(self):
        """Lets the workers go."""
        if not self.closed:
            self.closed = True
            if self._pass is not None:
                self._pass.close()
            self._items.notify(_settle, self._epoch)
            if hasattr(self._dataset, "total_batches_seen"):
                self._dataset.total_batches_seen += self._taken_in_all


def _settle():
    """Stands in for a hook of the data set."""


def start_ordered(original, enqueuer, workers=1, max_queue_size=10):
    """`OrderedEnqueuer.start`: the items of a stream of ours, but for worker processes."""
    if enqueuer.use_multiprocessing:
        original(enqueuer, workers=workers, max_queue_size=max_queue_size)
        return
    stream = ItemStream(enqueuer.sequence, workers, max_queue_size, enqueuer.shuffle, notifies=True)
    enqueuer.workers = workers
    enqueuer.get = lambda: stream
    enqueuer.stop = lambda timeout=None: stream.close()
    enqueuer.is_running = lambda: not stream.closed
    enqueuer.join_end_of_epoch = stream.join_end_of_epoch


def iter_sequence_infinite(original, seq):
    """`iter_sequence_infinite`: items built by the consumer. A data set with an order of its own keeps it."""
    from keras.utils import Sequence

    if type(seq).__iter__ is not Sequence.__iter__:
        return original(seq)
    return ItemStream(seq, workers=0, ahead=1, shuffle=False, notifies=False)


# -- image iterators ---------------------------------------------------------------------------------------------------

def image_iterator(original, iterator, *args, **kwargs):
    """`Iterator.__init__`: gives it a stream for its first order; one with a seed shares it with those of that seed."""
    original(iterator, *args, **kwargs)
    key = recorder.CALLS.streams.new_key()
    iterator._pedl_key = key if iterator.seed is None else (iterator.seed,)


def image_item(original, iterator, index):
    """`Iterator.__getitem__`: seeds by the number of the item, where Keras counts the items that were built so far.

    What it draws when it is first used, the order of its images, comes from a stream of its own, so that it does not
    depend on which item was built first.
    """
    import numpy

    item = getattr(_LOCAL, "item", None)
    if item is None or index >= len(iterator):
        return original(iterator, index)
    epoch, position = item
    if iterator.seed is not None:
        numpy.random.seed(iterator.seed + iterator.total_batches_seen + epoch * len(iterator) + position)
    with iterator.lock:
        if iterator.index_array is None:
            with PrivateStream("order of images", *iterator._pedl_key):
                iterator._set_index_array()
    start = iterator.batch_size * index
    return iterator._get_batches_of_transformed_samples(iterator.index_array[start:start + iterator.batch_size])
