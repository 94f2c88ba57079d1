"""The items of an indexable data set, epoch after epoch.

An epoch ends when the first item of the next one is asked for, or when `join_end_of_epoch` says so. So what a data set
goes through depends on what was taken of it, not on the clock.
"""
import sys

from py_hooks.advice import calls as recorder
from py_hooks.advice.data import Items, SequencePass


class ItemEpochs:
    """An iterator over the items of a data set, in their order, or in one of its own for every epoch.

    Args:
        dataset: has `__getitem__`, `__len__`, and `on_epoch_end` where it `notifies`.
        workers: threads or processes that build ahead; with 0 the consumer builds.
        ahead: how many items may be under way.
        shuffle: whether every epoch has an order of its own.
        notifies: whether the end of an epoch calls `on_epoch_end`; where not, the framework's loop calls it.
        in_processes: whether the workers are processes.

    Attributes:
        number: of the data set's stream.
        closed: nobody takes items any more.
    """

    def __init__(self, dataset, workers, ahead, shuffle, notifies, in_processes=False):
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

    def __iter__(self):
        return self

    def __next__(self):
        self.begin_next()
        return self.take()

    def begin_next(self):
        """Lets the next epoch begin, if the last one is over or there was none. Returns the epoch and index of what is next.

        Raises:
            StopIteration: it is closed.
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

    def take(self):
        """The next item of the epoch that has begun."""
        try:
            item = next(self._given)
        except StopIteration:
            raise
        except BaseException:
            # Who goes on behind it goes on with the next one.
            self._taken += 1
            raise
        self._taken += 1
        return item

    def skip(self):
        """Leaves the next item of the epoch that has begun out, without building it where that can be."""
        self._pass.skip()
        self._taken += 1

    def join_end_of_epoch(self):
        """Ends the epoch, if its last item was taken."""
        if self._pass is not None and self._taken == self._length:
            self._pass.close()
            self._pass = self._given = None
            self._items.end_epoch(self._taken)
            if self._notifies:
                self._items.notify(self._dataset.on_epoch_end, self._epoch)
            self._epoch += 1

    def stand_in(self, loops):
        """A framework's loop calls the data set's `on_epoch_end` by itself: that happens under its stream, too.

        Args:
            loops: names of the modules that do; to others it is what it was.
        """
        self._items.replace_attribute("on_epoch_end", lambda hook: _EndOfEpoch(self._items, hook, loops))

    def close(self):
        """Lets the workers go."""
        if not self.closed:
            self.closed = True
            if self._pass is not None:
                self._pass.close()
                self._items.end_epoch(self._taken)
            self._items.close()


class _EndOfEpoch:
    """Stands in the place of a data set's `on_epoch_end`."""

    def __init__(self, items, hook, loops):
        self._items = items
        self._hook = hook
        self._loops = loops
        self._epoch = 0

    def __call__(self):
        if sys._getframe(1).f_globals.get("__name__") not in self._loops:
            return self._hook()
        self._epoch += 1
        return self._items.notify(self._hook, self._epoch - 1)
