"""Passes over the items of a data set, in a given order: the next item is built, or is skipped without being built.

The thread that asks for an item builds it, or threads or worker processes have built it ahead. `Items` (`items.py`) decides
whether a skipped item has to be built all the same, and how an item is built. After the end of a pass, what asks it for an item
gets StopIteration, whichever thread that is.
"""
from __future__ import annotations

import atexit
import collections
import itertools
import threading
import weakref
from time import perf_counter

from py_hooks.recording import recorder
from py_hooks.workers import worker_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from _pedl import Ahead, ThreadTask, ThreadTasks

    from py_hooks.datasets.items import Items


class SequencePass:
    """One pass over the items in a given order: `next` builds, `skip` only counts, unless items must be built.

    Args:
        items: the `Items`.
        epoch: number of the epoch, part of each item's key.
        order: iterable of indices.
        ahead: how many items may be under way.
        start: how many items of the order to skip at first.

    Attributes:
        has_begun: whether an item was taken or skipped.
    """

    def __init__(self, items: Items, epoch: int, order: Iterable[int], ahead: int = 0, start: int = 0) -> None:
        self.has_begun = False
        self._items = items
        self._epoch = epoch
        self._order: Iterator[int] = iter(order)
        self._ahead = max(1, ahead)
        # Workers get more items if no more than this are under way. Processes get several at once: to wake one for each
        # costs more than to hand it over. Threads do not: if items are built in order, how many are built has to follow
        # from how many were taken, in a replay too.
        self._fewest = self._ahead - 1
        if items.in_processes:
            self._fewest = self._ahead - max(1, self._ahead // 3)
        # Pairs of an index, and of the task by which the workers identify the item.
        self._building: collections.deque[tuple[int, Any]] = collections.deque()
        self._workers: worker_processes.ItemProcesses | ItemThreads | None = None
        # Takes the items that processes build ahead: it returns most items, without a call of `__next__` here.
        self._going: Ahead | None = recorder.CALLS.trial.ahead(items.workers) if items.in_processes else None
        self._is_over = False
        # A framework takes items in one of its threads, and does not always wait for that when it ends an epoch.
        self._lock = threading.Lock()
        items.begin(self, start, self._ahead)
        for _ in range(start):
            self.skip()

    def __iter__(self) -> Iterator[Any]:
        if self._going is None:
            return self
        return self._going.items(self.__next__, self._open)

    def __next__(self) -> Any:
        begun = perf_counter()
        with self._lock:
            if self._going is None:
                item = self._next()
            else:
                self._stop()
                item = self._next()
                self._go_on()
        recorder.CALLS.trial.waited(perf_counter() - begun, self._items.workers)
        return item

    def _next(self) -> Any:
        self.has_begun = True
        if self._is_over:
            raise StopIteration
        if not self._items.workers:
            return self._items.build(self._epoch, next(self._order))
        if len(self._building) <= self._fewest:
            # A replay skips items, so it builds none ahead; if they must be built, as many are built ahead as in the first run.
            ahead = 1 if recorder.CALLS.skips_data and not self._items.must_be_built else self._ahead
            if len(self._building) < ahead:
                self._submit(ahead - len(self._building))
        if not self._building:
            self._is_over = True
            self._release(waits=True)
            raise StopIteration
        return self._workers.take(self._items, self._building.popleft()[1])

    def _go_on(self) -> None:
        """From here on `_going` returns items without a call of `__next__` here, if they only have to be taken."""
        items = self._items
        if self._workers is None or not items.is_known or recorder.CALLS.skips_data:
            return
        processes: Any = self._workers
        self._going.begin(
            processes.pool, self._order, self._epoch, processes.state, self._building, self._fewest, self._ahead,
            processes.limit_s,
        )

    def _stop(self) -> None:
        """From here on `__next__` is called for every item."""
        if self._going is not None:
            self._going.end()

    def _open(self, sent: tuple[Any, Any, Any]) -> Any:
        return worker_processes.opened(self._items, sent)

    def skip(self) -> None:
        """Counts one item as consumed. Raises StopIteration if `next` would."""
        with self._lock:
            self._stop()
            if self._is_over or self._items.must_be_built or not self._items.is_known:
                self._next()
                return
            self.has_begun = True
            self._items.leave_out()
            if self._building:
                self._workers.cancel(self._building.popleft()[1])
            else:
                next(self._order)

    def put_back(self) -> None:
        """What is being built ahead is built again when it is requested, because the data set is about to change.

        If items must be built in order, nothing is built ahead. Worker processes do not build in order.
        """
        with self._lock:
            self._stop()
            if self._items.must_be_built and not self._items.in_processes:
                return
            indices = [index for index, _ in self._building]
            self._release(waits=True)
            self._items.begin_anew()
            self._order = itertools.chain(indices, self._order)

    def close(self) -> None:
        """Ends the pass. The workers finish what they have begun; they build nothing else, unless items must be built."""
        # Set without the lock: a thread that takes items may take the next one before it releases the lock to others.
        self._is_over = True
        with self._lock:
            self._release(waits=True)

    def __del__(self) -> None:
        # This may run in a thread that builds an item.
        self._release(waits=False)

    def _release(self, waits: bool) -> None:
        self._stop()
        while self._building:
            _, building = self._building.popleft()
            if self._items.must_be_built and not self._items.in_processes:
                self._workers.take(self._items, building)
            else:
                self._workers.cancel(building)
        workers, self._workers = self._workers, None
        if workers is not None:
            if not waits:
                self._items.left.append(workers)
            workers.release(waits)

    def _submit(self, count: int) -> None:
        indices = list(itertools.islice(self._order, count))
        if not indices:
            return
        if self._workers is None:
            items = self._items
            self._workers = items.processes(self._ahead) if items.in_processes else ItemThreads(items)
        self._building.extend(zip(indices, self._workers.submit(self._items, self._epoch, indices)))


# The tasks of each worker thread, also if nothing refers to the pass any more.
_TASKS_OF_THREADS: weakref.WeakKeyDictionary[threading.Thread, ThreadTasks] = weakref.WeakKeyDictionary()


@atexit.register
def _end_threads() -> None:
    # A thread that returns to an interpreter that is gone ends the process by SIGABRT.
    for thread, tasks in list(_TASKS_OF_THREADS.items()):
        tasks.close()
        thread.join()


class ItemThreads:
    """The worker threads of one pass."""

    def __init__(self, items: Items) -> None:
        self._tasks = recorder.CALLS.trial.thread_tasks()
        self._threads = [
            threading.Thread(target=self._tasks.serve, args=(items.build,), name=f"pedl-data_{number}", daemon=True)
            for number in range(items.workers)
        ]
        for thread in self._threads:
            _TASKS_OF_THREADS[thread] = self._tasks
            thread.start()

    def submit(self, items: Items, epoch: int, indices: Sequence[int]) -> list[ThreadTask]:
        """Lets the threads build items; returns a task for each."""
        return self._tasks.submit(epoch, indices)

    def take(self, items: Items, task: ThreadTask) -> Any:
        """Waits for the item."""
        return task.take()

    def cancel(self, task: ThreadTask) -> None:
        """An item is not needed any more."""
        task.cancel()

    def release(self, waits: bool) -> None:
        """The pass is over: releases the threads. If it `waits`, returns when the items that they build now are built."""
        self._tasks.close()
        if waits:
            for thread in self._threads:
                thread.join()


def skip(iterator: Any, count: int = 1) -> int:
    """Advances an iterator by up to `count` elements, without building them if the iterator can skip.

    Returns:
        How many elements were skipped.

    Raises:
        StopIteration: there is no element left.
    """
    step = getattr(iterator, "skip", None) or getattr(iterator, "__next__", None)
    if step is None:
        return count
    step()
    for done in range(1, count):
        try:
            step()
        except StopIteration:
            return done
    return count


class Counted:
    """An iterator that counts the elements that were taken from it."""

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self.taken = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> Any:
        element = next(self._iterator)
        self.taken += 1
        return element
