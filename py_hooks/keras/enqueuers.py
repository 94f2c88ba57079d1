"""Keras 2: what `fit_generator` and its siblings take batches from, with a position that a replay can skip to.

The framework's `OrderedEnqueuer` has a thread that hands items to workers, and lets the data set's `on_epoch_end` run
when it finds its queue empty. Here the consumer drives: workers build a few items ahead of it, and an epoch ends when
the first item of the next one is asked for, or when `join_end_of_epoch` says so. So what a data set goes through
depends on what was consumed, not on the clock.

In a replay an item that only an answered call would look into is not built: a `SkippedBatch` of its size stands in.

A Python generator has one thread that draws ahead, however many workers are asked for. With worker processes each has a
copy of it, which is a cause. But tf.keras makes a generator itself, of arrays that a fit on a `Sequence` is validated on: of
its copies whichever is quicker would give batches twice, and others never. That one is drawn from here, in order.

Source: keras 2.3.1, keras/utils/data_utils.py and keras/engine/training_generator.py.
"""
import sys

from py_hooks.advice import calls as recorder
from py_hooks.advice import generators, worker_processes
from py_hooks.advice.item_epochs import ItemEpochs
from py_hooks.keras.packages import PACKAGES

_LOOPS = tuple(package + ".engine.training_generator" for package in PACKAGES)
# Whose `__iter__` goes through the items in their order, epoch after epoch. That of image iterators, too.
_SEQUENCES = tuple(package + ".utils.data_utils" for package in PACKAGES) + ("keras_preprocessing.image.iterator",)


class SkippedBatch:
    """Stands in for the arrays of a batch that nobody looks into: it has a size, and nothing else."""

    def __init__(self, size):
        self.shape = (size,)

    def __len__(self):
        return self.shape[0]


class _EmptyItems:
    """Items that were None, which enqueuers leave out. Part of a checkpoint: a replay does not build what it skips."""

    def __init__(self):
        # Its keys, in the order in which they were found; it is asked for every item.
        self._found = {}

    def note(self, *place):
        """An item was None: stream, epoch, and how many were taken before it in its epoch."""
        self._found[place] = None

    def has(self, *place):
        """Whether the item at this place is known to be None."""
        return place in self._found

    def begin(self, found):
        """The trial has begun.

        Args:
            found: what `capture` returned for the checkpoint that is resumed; empty where there is none.
        """
        self._found.update((tuple(place), None) for place in found)

    def capture(self):
        """The places: part of a checkpoint."""
        return [], list(self._found)

    def restore(self, tensors, state):
        """The replay is over; the places were needed in it."""


EMPTY_ITEMS = _EmptyItems()


class ItemStream(ItemEpochs):
    """The items of a data set, epoch after epoch, as an enqueuer yields them: without those that are None."""

    def __next__(self):
        from py_hooks.keras.graph import recorded_batch_size

        size = recorded_batch_size(recorder.CALLS) if sys._getframe(1).f_globals.get("__name__") in _LOOPS else 0
        item = None
        while item is None:
            place = (self.number,) + self.begin_next()
            item = self._skip(size, EMPTY_ITEMS.has(*place)) if size else self.take()
            if item is None:
                EMPTY_ITEMS.note(*place)
        return item

    def _skip(self, size, is_empty):
        self.skip()
        return None if is_empty else (SkippedBatch(size), SkippedBatch(size))


class GeneratorStream:
    """What a Python generator yields, as an enqueuer yields it: without what is None.

    Args:
        generator: has `__next__`.
        ahead: how many batches may be drawn before they are asked for.
    """

    def __init__(self, generator, ahead):
        self._source = generators.SOURCES.of(generator, recorder.CALLS.streams)
        self._ahead = ahead
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.closed:
            raise StopIteration
        batch = None
        while batch is None:
            batch = self._source.take(self._ahead)
        return batch

    def close(self):
        """Nobody takes from it any more."""
        self.closed = True


def start_ordered(original, enqueuer, workers=1, max_queue_size=10):
    """`OrderedEnqueuer.start`: the items of a stream of ours, but for worker processes that are not forked."""
    in_processes, dataset = enqueuer.use_multiprocessing, enqueuer.sequence
    if in_processes and not worker_processes.are_forked():
        original(enqueuer, workers=workers, max_queue_size=max_queue_size)
        return
    _serve(enqueuer, ItemStream(dataset, workers, max_queue_size, enqueuer.shuffle, True, in_processes), workers)


def start_generator(original, enqueuer, workers=1, max_queue_size=10):
    """`GeneratorEnqueuer.start`: the batches of a stream of ours, but for worker processes with copies of the script's."""
    # Keras before 2.2.3 has them under these names, which begin with an underscore.
    generator = getattr(enqueuer, "_generator", None) or enqueuer.sequence
    in_processes = getattr(enqueuer, "use_multiprocessing", getattr(enqueuer, "_use_multiprocessing", False))
    if in_processes and not _is_of_loop(generator):
        original(enqueuer, workers=workers, max_queue_size=max_queue_size)
        return
    _serve(enqueuer, GeneratorStream(generator, max_queue_size), workers)


def _is_of_loop(generator):
    """Whether a generator is one that Keras's loop has made of arrays (`convert_to_generator_like`)."""
    frame = getattr(generator, "gi_frame", None)
    return frame is not None and frame.f_globals.get("__name__") in _LOOPS


def _serve(enqueuer, stream, workers):
    enqueuer.workers = workers
    enqueuer.get = lambda: stream
    enqueuer.stop = lambda timeout=None: stream.close()
    enqueuer.is_running = lambda: not stream.closed
    enqueuer.join_end_of_epoch = getattr(stream, "join_end_of_epoch", None)


def iter_sequence_infinite(original, seq):
    """`iter_sequence_infinite`: items built by the consumer. A data set with an order of its own keeps it."""
    if type(seq).__iter__.__module__ not in _SEQUENCES:
        return original(seq)
    return _consumed(seq)


def iterate_sequence(original, seq):
    """`Sequence.__iter__` of Keras before 2.2.3, where Keras's loop asks for it: items built by the consumer."""
    if sys._getframe(2).f_globals.get("__name__") not in _LOOPS:
        return original(seq)
    return _consumed(seq)


def _consumed(dataset):
    """The items of a data set that the consumer builds. Keras's loop itself tells it of the end of an epoch."""
    stream = ItemStream(dataset, workers=0, ahead=1, shuffle=False, notifies=False)
    stream.stand_in(_LOOPS)
    return stream
