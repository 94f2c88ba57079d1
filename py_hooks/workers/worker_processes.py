"""Worker processes that build the items of a data set, each under the stream of its key.

They all start when the first item is asked for: from a clean process if the data set can be sent there
(`served_workers.py`), else as forks of the training process. They live as long as items of the data set are taken:
a whole `fit`. They build items in memory that they share with the trainer (`Trial.pool`), which reads them there. In a
worker numpy's global generator is set to the stream of an item that draws, so that code which bypasses the dispatchers
draws the same (`worker_streams.WorkerStream`).

Changes to the data set in the training process (`on_epoch_end`, a callback that sets an attribute) reach the
workers before they build the first item of the next pass: the attributes that changed are sent to them; if that
is not possible, the workers are replaced by new forks (`dataset_state.py`).

A worker that dies is replaced, and its item is built again, with the same result, because an item depends only on
its key. If an item ends its worker repeatedly, the pass ends, with the last worker's traceback.
"""
from __future__ import annotations

import collections
import contextlib
import faulthandler
import functools
import io
import json
import os
import pickle
import signal
import sys
import threading
import traceback
from importlib import import_module

from py_hooks.recording import forks, recorder
from py_hooks.workers import served_workers
from py_hooks.workers.transfer import sendable
from py_hooks.workers.transfer.dataset_state import DatasetState, Update

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn, Protocol

    import numpy
    from _pedl import Pool, PoolWorker

    from py_hooks.datasets.items import Items

    class _Pool(Protocol):
        """A `_pedl.Pool`, or what has the same worker's side."""

        def worker(self, number: int, parent: int) -> PoolWorker:
            """In a worker: the worker's side of the pool."""

# The prefix of worker process names, before the numbers from 1 on: that of `multiprocessing.Pool`, which data sets know.
NAME = "ForkPoolWorker-"

# How often an item may end its worker.
MAX_DEATHS = 3

# How many workers, for each of the pool, may die without having built anything. A single death may be bad luck.
_MAX_IDLE_DEATHS = 10

# Batches that may be held without a copy: the one that is computed on, and those that a framework has queued as its
# next ones.
_LEASES = 5

# Seconds that workers which build an unneeded item may take to end, and then to end by a signal.
_GRACE_SECONDS = 1

# Added to a worker's OOM score, so that the kernel kills it before the training process: worth half of all memory.
_OOM_SCORE = 500

# The most that is read of what a worker wrote when it crashed.
_MAX_TRACEBACK_BYTES = 1 << 16


def are_forked() -> bool:
    """Whether `multiprocessing` is set to fork."""
    import multiprocessing

    return multiprocessing.get_start_method() == "fork"


class ItemProcesses:
    """The worker processes of one data set.

    Args:
        workers: the number of workers.
        window: the number of items that may be under way.
        limit_s: seconds that building an item may take; None for no limit.

    Attributes:
        pool: the memory that they share with the trainer; None without processes.
        limit_s: as it was given.
    """

    pool: Pool | None
    _state: DatasetState | None
    _update: Update | None
    _served: served_workers.ServedPool | None

    def __init__(self, workers: int, window: int, limit_s: float | None = None) -> None:
        self._count = workers
        self._window = window
        self.limit_s = limit_s
        # These are None while there are no processes.
        self.pool = self._state = self._update = self._served = None
        self._workers: list[WorkerProcess | served_workers.ServedProcess] = []
        # Tasks that are not needed any more, but not finished.
        self._left: set[int] = set()
        self._deaths: collections.Counter[tuple[int, int]] = collections.Counter()
        self._idle_deaths = 0
        # Whether items are built from the data set as it was when the pass began; if not in a pass, it may have changed.
        self._is_in_pass = True
        self._process = os.getpid()
        # Passes of several threads may share the processes.
        self._lock = threading.RLock()

    def refresh(self, items: Items) -> None:
        """A pass begins: updates the workers to the data set as it is now. None of its items is being built."""
        with self._lock:
            if self._process != os.getpid():
                # A forked child that continues the script has no workers.
                self.__init__(self._count, self._window, self.limit_s)  # type: ignore[misc]  # no class derives from it
            if self.pool is not None:
                self._is_in_pass = False
                try:
                    for task in sorted(self._left):
                        self._discard(items, task)
                finally:
                    self._is_in_pass = True
                if self._update.write(self._state.changes()):
                    return
                self._end()
            self._start(items)

    @property
    def state(self) -> int:
        """The number of the state of the data set from which items are built."""
        return self._update.number

    def submit(self, items: Items, epoch: int, indices: Sequence[int]) -> list[int]:
        """Has items built; returns the number of a task for each."""
        with self._lock:
            tasks: list[int] = []
            while True:
                first, end = self.pool.publish(epoch, indices[len(tasks) :], self.state)
                tasks.extend(range(first, end))
                if len(tasks) == len(indices):
                    return tasks
                # Frees the slot of a task that was cancelled while it was being built.
                self._discard(items, end - self._window)

    def take(self, items: Items, task: int, count: int = 1) -> Any:
        """Waits for the item of a task, for which `count` items are built, and returns it."""
        with self._lock:
            pool, limit_s = self.pool, self.limit_s and self.limit_s * count
            if pool is None or not pool.is_under_way(task):
                raise RuntimeError(
                    "pedl: items of a data set are asked for in a process that its workers know nothing of"
                )
            try:
                sent = pool.take(task, limit_s)
                while sent is None:
                    self._hear_news(items)
                    sent = pool.take(task, limit_s)
            except BaseException:
                if pool.is_under_way(task):
                    self.cancel(task)
                raise
            self._idle_deaths = 0
        return opened(items, sent)

    def cancel(self, task: int) -> None:
        """A task is not needed any more."""
        pool = self.pool
        if pool is not None and not pool.withdraw(task):
            self._left.add(task)

    def release(self, waits: bool) -> None:
        """A pass is over; the processes stay for the next one."""

    def close(self) -> None:
        """Ends the processes, once they have built their current items. What is under way is not needed any more."""
        if self._process == os.getpid():
            with self._lock:
                self._end()

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _discard(self, items: Items, task: int) -> None:
        while not self.pool.discard(task, self.limit_s):
            self._hear_news(items)
        self._left.discard(task)

    def _hear_news(self, items: Items) -> None:
        ended, stuck = self.pool.news()
        for number in stuck:
            self._workers[number].abort()
        for number in ended:
            self._replace(items, number)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _start(self, items: Items) -> None:
        trial = recorder.CALLS.trial
        self.pool = trial.pool(self._window, _LEASES, self._count, dumps, loads)
        self._update = Update(_memory_file())
        self._left.clear()
        self._served = self._serve(items)
        self._workers = [self._start_worker(items, number) for number in range(self._count)]
        if self._served is None:
            self._state = DatasetState(items.dataset)
        else:
            pickler = functools.partial(sendable.SendingPickler, known=self._served.globals)
            self._state = DatasetState(items.dataset, pickler, self._served.modules)

    def _serve(self, items: Items) -> served_workers.ServedPool | None:
        """The pool of the worker server if the data set can be sent; else None."""
        what, log = f"worker processes of the data set `{type(items.dataset).__name__}`", recorder.CALLS.trial.log_debug
        try:
            served = served_workers.ServedPool(items, self.pool, self._update.descriptor)
        except served_workers.NOT_SERVED as error:
            log(f"{what} are forked: {error}")
            return None
        log(f"{what} start from a clean process")
        return served

    def _start_worker(self, items: Items, number: int) -> WorkerProcess | served_workers.ServedProcess:
        worker: WorkerProcess | served_workers.ServedProcess
        if self._served is not None:
            try:
                worker = self._served.start(number)
                self.pool.watch(number, worker.pid, worker.sentinel)
            except (served_workers.ServerFailed, OSError) as error:
                self._served.close()
                self._served = None
                recorder.CALLS.trial.log_debug(f"worker processes are forked from here on: {error}")
            else:
                return worker
        if self._state is not None and self._is_in_pass:
            # The worker that it replaces had the data set as it was at the beginning of the pass.
            items.notice_differences(self._state.differences(), self._state.untold)
        worker = WorkerProcess(items, self.pool, number, self._update)
        self.pool.watch(number, worker.pid, worker.sentinel)
        return worker

    def _replace(self, items: Items, number: int) -> None:
        """A worker has ended by itself."""
        worker = self._workers[number]
        how = worker.wait()
        key = self.pool.recover(number)
        if key is None:
            self._idle_deaths += 1
            if self._idle_deaths > _MAX_IDLE_DEATHS * self._count:
                raise RuntimeError(
                    f"pedl: {self._idle_deaths} worker processes of the data set ended before they built anything; "
                    f"the last one {how}{worker.traceback()}"
                )
            what = ""
        else:
            self._deaths[key] += 1
            what = f" while it built item {key[1]}"
            if self._deaths[key] == MAX_DEATHS:
                raise RuntimeError(
                    f"pedl: item {key[1]} of the data set has ended {MAX_DEATHS} worker processes that built it; "
                    f"the last one {how}{worker.traceback()}"
                )
        trial = recorder.CALLS.trial
        trial.log(f"worker process {worker.pid} of the data set {how}{what}; another takes its place")
        members = {"pid": worker.pid, "how": how, "item": None if key is None else key[1]}
        trial.event(json.dumps(dict(members, event="worker_ended")))
        worker.forget()
        self._workers[number] = self._start_worker(items, number)

    def _end(self) -> None:
        if self.pool is not None:
            self.pool.close()
            for worker in self._workers:
                worker.end()
                worker.forget()
            if self._served is not None:
                self._served.close()
            self.pool = self._state = self._update = self._served = None
            self._workers = []


def opened(items: Items, sent: tuple[Any, str | None, tuple[BaseException | None, str] | None]) -> Any:
    """The item in what a worker has sent; raises the worker's exception."""
    item, changed, error = sent
    if error is not None:
        raise _received(*error)
    if changed is not None or not items.is_known:
        items.notice(changed)
    return item


def _memory_file() -> io.FileIO:
    return os.fdopen(recorder.CALLS.trial.memory_file(), "r+b", buffering=0)


class WorkerProcess:
    """One worker process, in the process that started it.

    Args:
        items: the items that it builds.
        pool: has the method `worker` of a `_pedl.Pool`.
        number: of the worker.
        update: the changes of the data set.

    Attributes:
        pid: of the process.
        sentinel: a file descriptor that becomes readable when it ends.
    """

    def __init__(self, items: Items, pool: _Pool, number: int, update: Update) -> None:
        import multiprocessing

        self._crash = _memory_file()
        self._process = multiprocessing.get_context("fork").Process(
            target=_work,
            args=(items, pool, number, os.getpid(), update, self._crash.fileno()),
            name=f"{NAME}{number + 1}",
            daemon=True,
        )
        self._process.start()
        self.pid = self._process.pid
        self.sentinel = self._process.sentinel
        self._is_stuck = False

    def abort(self) -> None:
        """The worker takes too long: has it write its traceback, and end."""
        if self._is_stuck:
            # It did not end.
            self._process.kill()
            return
        self._is_stuck = True
        os.kill(self.pid, signal.SIGABRT)
        self._process.join(_GRACE_SECONDS)

    def wait(self) -> str:
        """The worker has ended. Returns how, in words."""
        self._process.join()
        code = self._process.exitcode
        if self._is_stuck:
            return "took longer than --worker-timeout, and was ended"
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"

    def traceback(self) -> str:
        """What the worker wrote when it crashed, to be appended to a sentence."""
        text = os.pread(self._crash.fileno(), _MAX_TRACEBACK_BYTES, 0).decode("utf-8", "replace").rstrip()
        if text:
            return ":\n" + _of_the_script(text)
        is_killed = self._process.exitcode == -signal.SIGKILL
        return "; the kernel's log tells whether memory was short" if is_killed else ""

    def end(self) -> None:
        """The worker was asked to end: waits until it has, and ends it if that takes long."""
        for end in (self._process.terminate, self._process.kill, None):
            self._process.join(_GRACE_SECONDS)
            if self._process.exitcode is not None:
                break
            if end is not None:
                end()

    def forget(self) -> None:
        """The worker has ended, and is not needed any more."""
        self._crash.close()


def _of_the_script(text: str) -> str:
    """The output of `faulthandler`, without the frames of this package below those of the script."""
    kept, is_ours = [], False
    for line in text.splitlines():
        is_frame = line.startswith("  File ")
        is_ours = is_frame and (is_ours or f"{os.sep}py_hooks{os.sep}" in line)
        if not is_ours and not line.startswith("Extension modules:"):
            kept.append(line)
    return "\n".join(kept).rstrip()


# -- in a worker -------------------------------------------------------------------------------------------------------


def end_process() -> NoReturn:
    """Flushes stdout and stderr, and ends this process at once."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()
    os._exit(0)


def _work(items: Items, pool: _Pool, number: int, parent: int, update: Update, crash: int) -> None:
    # Ctrl-C is for the training process, which ends its workers; signal handlers of the script do not run in them either.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    faulthandler.enable(crash)
    _be_killed_first()
    _run_as_batch()
    forks.CHANGES.leave_out()

    def refresh(state: int) -> None:
        if update.read(items.dataset, state):
            items.forget_dataset()

    pool.worker(number, parent).serve(refresh, items.build_in_worker, _sendable)


def _be_killed_first() -> None:
    """If memory is short, the kernel should kill a worker: that is replaced, and its item is built again."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
        score = int(file.read())
        file.seek(0)
        file.write(str(min(1000, score + _OOM_SCORE)))


def _run_as_batch() -> None:
    """Keeps a worker that gets a task from preempting the training process."""
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _sendable(error: BaseException) -> tuple[BaseException | None, str]:
    """The exception, or None if it cannot be sent, and the worker's traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever the class of the script's does
        return None, text
    return error, text


def _received(error: BaseException | None, text: str) -> BaseException:
    """The exception that a worker has sent, in the trainer."""
    if error is None:
        return RuntimeError(f"a worker process of the data set raised what cannot be sent:\n{text}")
    if hasattr(error, "add_note"):
        # Keras 3 removes the `__cause__`.
        error.add_note(f"in a worker process:\n{text}")
    else:
        from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]  # the stub lacks it

        error.__cause__ = RemoteTraceback(f'\n"""\n{text}"""')
    return error


# -- pickles without arrays --------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Leaves out arrays and torch tensors, and numbers them."""

    def __init__(self, file: io.BytesIO) -> None:
        import numpy

        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.arrays: list[numpy.ndarray] = []
        self._ndarray = numpy.ndarray

    def persistent_id(self, value: Any) -> int | tuple[str, int] | None:
        if type(value) is self._ndarray:
            return None if value.dtype.hasobject else self._place_of(value)
        array = _array_of_tensor(value)
        return None if array is None else (_TENSOR, self._place_of(array))

    def _place_of(self, array: numpy.ndarray) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1


_TENSOR = "torch"


def _array_of_tensor(value: Any) -> numpy.ndarray | None:
    """The memory of a torch tensor as an array; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor:
        return None
    is_plain = value.device.type == "cpu" and value.layout == torch.strided and not value.requires_grad
    if not is_plain or _is_of_other_numbers(value) or not value.numel():
        return None
    try:
        return value.numpy()
    except (TypeError, RuntimeError):
        # A number type that numpy does not have, such as bfloat16.
        return None


def _is_of_other_numbers(tensor: Any) -> bool:
    """Whether a tensor's numbers differ from those in its memory. Before torch 1.10 there are no such tensors."""
    return hasattr(tensor, "is_neg") and (tensor.is_conj() or tensor.is_neg())


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: list[numpy.ndarray]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def persistent_load(self, place: Any) -> Any:
        if type(place) is tuple:
            # Perhaps only the worker has imported torch.
            return import_module("torch").from_numpy(self._arrays[place[1]])
        return self._arrays[place]


def dumps(value: object) -> tuple[bytes, list[numpy.ndarray]]:
    """The pickle of a value without its arrays, and these arrays."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.arrays


def loads(text: bytes, arrays: list[numpy.ndarray]) -> Any:
    """The value of a pickle by `dumps`, with its arrays."""
    return _Unpickler(io.BytesIO(text), arrays).load()
