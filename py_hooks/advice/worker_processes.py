"""Worker processes that build the items of a data set, each under the stream of its key.

They start when the first item is asked for, all at once, as copies of the process that trains, and end with the pass
over the data. In a worker the global generators are set for each
item to the states that a private stream of its key would have, so that what goes past the dispatchers draws the same.

A worker that dies takes nothing along: the others are replaced too, and what was not built yet is built again, which
gives the same, since an item depends on its key alone. An item that ends its worker again and again ends the pass.
"""
import os
import signal
import threading
import time

# How often an item may take its worker along.
MAX_DEATHS = 3

# Seconds between two looks of a worker at whether the process that trains is still there.
_LOOK_SECONDS = 1


def are_forked():
    """Whether `multiprocessing` is set to fork: other processes know nothing of private streams."""
    import multiprocessing

    return multiprocessing.get_start_method() == "fork"


class ItemProcesses:
    """The worker processes of one pass.

    Args:
        items: the `Items` that they build.
        workers: how many.
    """

    def __init__(self, items, workers):
        self._items = items
        self._workers = workers
        self._executor = None
        self._generation = 0

    def submit(self, epoch, index):
        """Has an item built; returns something with `result()` and `cancel()`."""
        if self._executor is None:
            self._start()
        return _Building(self, epoch, index)

    def future(self, epoch, index):
        """The future of an item in the processes that run now, and their number."""
        return self._executor.submit(_build, epoch, index), self._generation

    def renew(self, generation):
        """Replaces the processes, unless those of this number were replaced already."""
        if generation == self._generation:
            self.close()
            self._start()

    def close(self, waits=True):
        """Lets the processes go, once what they build now is built; what waits is for the caller to cancel.

        Args:
            waits: without waiting, Python 3.7 may wait for ever at its end; so it is waited for in any case.
        """
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def _start(self):
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        barrier = multiprocessing.Barrier(self._workers)
        self._executor = ProcessPoolExecutor(self._workers, initializer=_begin, initargs=(self._items, barrier))
        self._generation += 1
        # Some versions start processes one by one as they are needed, when the data set may have changed.
        for _ in range(self._workers):
            self._executor.submit(_meet)


class _Building:
    """An item that is being built."""

    def __init__(self, processes, epoch, index):
        self._processes = processes
        self._key = epoch, index
        self._future, self._generation = processes.future(*self._key)

    def cancel(self):
        """It is not needed any more."""
        self._future.cancel()

    def result(self):
        """The item, and the name of an attribute of the data set that building it changed, or None."""
        from concurrent.futures.process import BrokenProcessPool

        for _ in range(MAX_DEATHS):
            try:
                return self._future.result()
            except BrokenProcessPool:
                self._processes.renew(self._generation)
                self._future, self._generation = self._processes.future(*self._key)
        epoch, index = self._key
        raise RuntimeError(
            f"pedl: worker processes of the data set died {MAX_DEATHS} times while item {index} of epoch {epoch} was "
            "built; the kernel's log tells whether memory was short"
        )


# -- in a worker -------------------------------------------------------------------------------------------------------

_worker = {}


def _begin(items, barrier):
    # Ctrl-C is for the process that trains, which lets its workers go; what the script handles is not for them either.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _worker.update(items=items, barrier=barrier)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent):
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


def _meet():
    _worker["barrier"].wait()


def _build(epoch, index):
    return _worker["items"].build_in_worker(epoch, index)
