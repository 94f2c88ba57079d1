"""The items of an indexable data set, epoch after epoch.

An epoch ends at the request for the first item of the next one, or at a call of `join_end_of_epoch`. So the sequence of
calls that a data set receives depends on the items that were taken, not on the clock.
"""
from __future__ import annotations

import sys

from py_hooks.datasets.item_passes import SequencePass
from py_hooks.datasets.items import Items
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from typing import Any


class ItemEpochs:
    """An iterator over the items of a data set, in their order, or in another order for every epoch.

    Args:
        dataset: has `__getitem__`, `__len__`, and, if `notifies`, `on_epoch_end`.
        workers: threads or processes that build ahead; with 0 the consumer builds.
        ahead: how many items may be in progress.
        shuffle: whether every epoch has another order.
        notifies: whether the end of an epoch calls `on_epoch_end`; if not, the loop of the framework calls it.
        in_processes: whether the workers are processes.

    Attributes:
        number: of the data set's stream.
        closed: no more items are taken.
    """

    _pass: SequencePass | None
    _given: Iterator[Any] | None

    def __init__(
        self, dataset: Any, workers: int, ahead: int, shuffle: bool, notifies: bool, in_processes: bool = False
    ) -> None:
        key = recorder.CALLS.streams.new_key()
        self.number = key[-1]
        self.closed = False
        self._dataset = dataset
        self._items = Items(dataset, key, workers, in_processes)
        self._ahead = ahead
        self._shuffle = shuffle
        self._notifies = notifies
        self._epoch = 0
        self._length = 0
        self._taken = 0
        self._pass = self._given = None

    def __iter__(self) -> ItemEpochs:
        return self

    def __next__(self) -> Any:
        self.begin_next()
        return self.take()

    def begin_next(self) -> tuple[int, int]:
        """Begins the next epoch, if the last one is over or there was none. Returns the epoch and index of the next item.

        Raises:
            StopIteration: the iterator is closed.
        """
        if self.closed:
            raise StopIteration
        self.join_end_of_epoch()
        if self._pass is None:
            self._length = len(self._dataset)
            self._taken = 0
            order = self._items.order(self._length, self._epoch, self._shuffle)
            self._pass = SequencePass(self._items, self._epoch, order, self._ahead)
            self._given = iter(self._pass)
        return self._epoch, self._taken

    def take(self) -> Any:
        """The next item of the epoch that has begun."""
        try:
            item = next(self._given)
        except StopIteration:
            raise
        except BaseException:
            # A caller that continues after the error continues with the next item.
            self._taken += 1
            raise
        self._taken += 1
        return item

    def skip(self) -> None:
        """Skips the next item of the epoch that has begun, without building it if possible."""
        self._pass.skip()
        self._taken += 1

    def join_end_of_epoch(self) -> None:
        """Ends the epoch, if its last item was taken."""
        if self._pass is not None and self._taken == self._length:
            self._pass.close()
            self._pass = self._given = None
            self._items.end_epoch(self._taken)
            if self._notifies:
                self._items.notify(self._dataset.on_epoch_end, self._epoch)
            self._epoch += 1

    def stand_in(self, loops: Container[str]) -> None:
        """The loop of a framework calls `on_epoch_end` of the data set itself: that call runs under its stream, too.

        Args:
            loops: names of the modules that call it. For other callers it is unchanged.
        """
        self._items.replace_attribute("on_epoch_end", lambda hook: _EndOfEpoch(self._items, hook, loops))

    def close(self) -> None:
        """Releases the workers."""
        if not self.closed:
            self.closed = True
            if self._pass is not None:
                self._pass.close()
                self._items.end_epoch(self._taken)
            self._items.close()


class _EndOfEpoch:
    """Replaces `on_epoch_end` of a data set."""

    def __init__(self, items: Items, hook: Callable[[], Any], loops: Container[str]) -> None:
        self._items = items
        self._hook = hook
        self._loops = loops
        self._epoch = 0

    def __call__(self) -> Any:
        if sys._getframe(1).f_globals.get("__name__") not in self._loops:
            return self._hook()
        self._epoch += 1
        return self._items.notify(self._hook, self._epoch - 1)
