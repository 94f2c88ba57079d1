"""Keras 2: the sources of batches of `fit_generator` and its siblings, with a position that a replay can skip to.

The framework's `OrderedEnqueuer` has a thread that hands items to workers, and calls the data set's `on_epoch_end` when it
finds its queue empty. Here the consumer drives: workers build a few items ahead of it, and an epoch ends when the first item
of the next one is requested, or when `join_end_of_epoch` says so. So the changes of a data set depend on what was consumed,
not on the clock.

In a replay an item that only an answered call would read is not built: a `SkippedBatch` of its size replaces it.

A Python generator has one thread that draws ahead, however many workers are requested. With worker processes each has a copy
of it, which is a cause. But tf.keras itself makes a generator from the arrays on which a fit on a `Sequence` is validated. Its
copies would yield some batches twice and others never, depending on their speed. That generator is drawn from here, in order.

Source: keras 2.3.1, keras/utils/data_utils.py and keras/engine/training_generator.py.
"""
from __future__ import annotations

import sys

from py_hooks.datasets import generators
from py_hooks.datasets.item_epochs import ItemEpochs
from py_hooks.keras.keras2_graph.batch_sizes import recorded_batch_size
from py_hooks.keras.packages import PACKAGES, graph_facts_of
from py_hooks.keras.skipped_batch import SkippedBatch
from py_hooks.recording import recorder
from py_hooks.workers import worker_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

_LOOPS = tuple(package + ".engine.training_generator" for package in PACKAGES)
# Their `__iter__` yields the items in their order, epoch after epoch. The one of image iterators does so, too.
_SEQUENCES = tuple(package + ".utils.data_utils" for package in PACKAGES) + ("keras_preprocessing.image.iterator",)


class _EmptyItems:
    """Items that were None, which enqueuers leave out. Part of a checkpoint: a replay does not build what it skips."""

    def __init__(self) -> None:
        # Used as an ordered set, because it is searched for every item.
        self._found: dict[tuple[int, ...], None] = {}

    def note(self, *place: int) -> None:
        """An item was None: its stream and epoch, and how many were taken before it in its epoch."""
        self._found[place] = None

    def has(self, *place: int) -> bool:
        """Whether the item at this place is known to be None."""
        return place in self._found

    def begin(self, found: Iterable[Iterable[int]]) -> None:
        """The trial has begun.

        Args:
            found: what `capture` returned for the checkpoint that is resumed; empty if there is none.
        """
        self._found.update((tuple(place), None) for place in found)

    def capture(self) -> tuple[list[Any], list[tuple[int, ...]]]:
        """The places: part of a checkpoint."""
        return [], list(self._found)

    def restore(self, tensors: object, state: object) -> None:
        """Does nothing: the replay is over, and only it needs the places."""


EMPTY_ITEMS = _EmptyItems()


class ItemStream(ItemEpochs):
    """The items of a data set, epoch after epoch, as an enqueuer yields them: without those that are None."""

    def __next__(self) -> Any:
        size = recorded_batch_size(recorder.CALLS) if sys._getframe(1).f_globals.get("__name__") in _LOOPS else 0
        item = None
        while item is None:
            place = (self.number,) + self.begin_next()
            item = self._skip(size, EMPTY_ITEMS.has(*place)) if size else self.take()
            if item is None:
                EMPTY_ITEMS.note(*place)
        return item

    def _skip(self, size: int, is_empty: bool) -> tuple[SkippedBatch, SkippedBatch] | None:
        self.skip()
        return None if is_empty else (SkippedBatch(size), SkippedBatch(size))


class GeneratorStream:
    """The values of a Python generator, as an enqueuer yields them: without those that are None.

    Args:
        generator: an object with `__next__`.
        ahead: how many batches may be drawn before they are asked for.
    """

    def __init__(self, generator: Iterator[Any], ahead: int) -> None:
        self._source = generators.SOURCES.of(generator, recorder.CALLS.streams)
        self._ahead = ahead
        self.closed = False

    def __iter__(self) -> GeneratorStream:
        return self

    def __next__(self) -> Any:
        if self.closed:
            raise StopIteration
        batch = None
        while batch is None:
            batch = self._source.take(self._ahead)
        return batch

    def close(self) -> None:
        """No more batches are taken from it."""
        self.closed = True


def start_ordered(original: Callable[..., Any], enqueuer: Any, workers: int = 1, max_queue_size: int = 10) -> None:
    """`OrderedEnqueuer.start`: the items of one of our streams, except for worker processes that are not forked."""
    in_processes, dataset = enqueuer.use_multiprocessing, enqueuer.sequence
    if in_processes and not worker_processes.are_forked():
        original(enqueuer, workers=workers, max_queue_size=max_queue_size)
        return
    _serve(enqueuer, ItemStream(dataset, workers, max_queue_size, enqueuer.shuffle, True, in_processes), workers)


def start_generator(original: Callable[..., Any], enqueuer: Any, workers: int = 1, max_queue_size: int = 10) -> None:
    """`GeneratorEnqueuer.start`: batches of one of our streams, except for worker processes with copies of the script's."""
    facts = graph_facts_of(enqueuer)
    generator = getattr(enqueuer, facts.attribute_of_generator)
    in_processes = getattr(enqueuer, facts.attribute_of_processes)
    if in_processes and not _is_of_loop(generator):
        original(enqueuer, workers=workers, max_queue_size=max_queue_size)
        return
    _serve(enqueuer, GeneratorStream(generator, max_queue_size), workers)


def _is_of_loop(generator: object) -> bool:
    """Whether Keras's loop has made a generator from arrays (`convert_to_generator_like`)."""
    frame = getattr(generator, "gi_frame", None)
    return frame is not None and frame.f_globals.get("__name__") in _LOOPS


def _serve(enqueuer: Any, stream: ItemStream | GeneratorStream, workers: int) -> None:
    enqueuer.workers = workers
    enqueuer.get = lambda: stream
    enqueuer.stop = lambda timeout=None: stream.close()
    enqueuer.is_running = lambda: not stream.closed
    enqueuer.join_end_of_epoch = getattr(stream, "join_end_of_epoch", None)


def iter_sequence_infinite(original: Callable[..., Any], seq: Any) -> Any:
    """`iter_sequence_infinite`: items built by the consumer. A data set that defines its order keeps it."""
    if type(seq).__iter__.__module__ not in _SEQUENCES:
        return original(seq)
    return _consumed(seq)


def iterate_sequence(original: Callable[..., Any], seq: Any) -> Any:
    """`Sequence.__iter__` of Keras before 2.2.3, if Keras's loop calls it: items built by the consumer."""
    if sys._getframe(2).f_globals.get("__name__") not in _LOOPS:
        return original(seq)
    return _consumed(seq)


def _consumed(dataset: Any) -> ItemStream:
    """The items of a data set that the consumer builds. Keras's loop itself signals the end of an epoch to the data set."""
    stream = ItemStream(dataset, workers=0, ahead=1, shuffle=False, notifies=False)
    stream.stand_in(_LOOPS)
    return stream
