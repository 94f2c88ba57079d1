"""Items of indexable data sets, built under streams of their own, and passes over them that can skip.

An item's random numbers come from (trial seed, stream, epoch, index): they depend neither on the number of workers
nor on which of them builds it, nor on whether the items before it were built. So in a replay an item that only an
answered call would have seen is never built.
"""
import collections
import threading

from py_hooks.advice import random_streams
from py_hooks.advice.random_streams import PrivateStream, mix


class Items:
    """The items of one data set, in one stream.

    Generators that the data set owns (`self.rng = RandomState(1)`) are keyed like the global streams: their state is
    set before each item. Then items are built one at a time, since the generator is shared.

    Args:
        dataset: has `__getitem__`.
        key: `Streams.new_key()`; every adapter of a data set has its own.
    """

    def __init__(self, dataset, key):
        self.dataset = dataset
        self.key = ("items",) + key
        self._lock = threading.Lock() if self._owned_generators() else None

    def build(self, epoch, index):
        """The item at `index`, as the data set makes it in that epoch."""
        with PrivateStream(*(self.key + (epoch, index))) as stream:
            if self._lock is None:
                return self.dataset[index]
            with self._lock:
                self._set_owned_generators(stream.key)
                return self.dataset[index]

    def notify(self, hook, epoch):
        """Calls the data set's `on_epoch_begin` or `on_epoch_end` under a stream of its own."""
        with PrivateStream(*(self.key + (hook.__name__, epoch))) as stream:
            self._set_owned_generators(stream.key)
            hook()

    def order(self, length, epoch, shuffle):
        """The indices of one epoch, shuffled by the trial's seed where the framework would shuffle them."""
        indices = list(range(length))
        if shuffle:
            PrivateStream(*(self.key + ("order", epoch))).python.shuffle(indices)
        return indices

    def plain_attributes(self):
        """The data set's attributes that are numbers, texts or flags."""
        attributes = getattr(self.dataset, "__dict__", {})
        plain = (bool, int, float, str, bytes, type(None))
        return {name: value for name, value in attributes.items() if isinstance(value, plain)}

    def _owned_generators(self):
        attributes = getattr(self.dataset, "__dict__", {})
        return [value for value in attributes.values() if random_streams.is_generator(value)]

    def _set_owned_generators(self, key):
        for number, generator in enumerate(self._owned_generators()):
            random_streams.set_generator(generator, mix("owned", number, *key))


class SequencePass:
    """One pass over the items in a given order: `next` builds, `skip` only counts.

    Args:
        items: the `Items`.
        epoch: number of the epoch, part of each item's key.
        order: iterable of indices.
        workers: threads that build ahead; with 0 the caller builds.
        ahead: how many items may be under way.
        start: how many items of the order to skip at first.
    """

    def __init__(self, items, epoch, order, workers=0, ahead=0, start=0):
        self._items = items
        self._epoch = epoch
        self._order = iter(order)
        self._workers = workers
        self._ahead = max(1, ahead)
        self._building = collections.deque()
        self._pool = None
        for _ in range(start):
            self.skip()

    def __iter__(self):
        return self

    def __next__(self):
        if not self._workers:
            return self._items.build(self._epoch, next(self._order))
        while len(self._building) < self._ahead:
            index = next(self._order, None)
            if index is None:
                break
            self._building.append(self._submit(index))
        if not self._building:
            self.close()
            raise StopIteration
        return self._building.popleft().result()

    def skip(self):
        """Counts one item as consumed. Raises StopIteration where `next` would."""
        if self._building:
            self._building.popleft().cancel()
        else:
            next(self._order)

    def close(self):
        """Lets the threads go; what they have not begun is not built."""
        while self._building:
            self._building.popleft().cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    def __del__(self):
        self.close()

    def _submit(self, index):
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="pedl-data")
        return self._pool.submit(self._items.build, self._epoch, index)


def skip(iterator):
    """Moves an iterator on by one element: without building it where the iterator can."""
    step = getattr(iterator, "skip", None)
    if step is not None:
        step()
    elif hasattr(iterator, "__next__"):
        next(iterator)
