"""The worker server: a process beside the trial process that starts workers without the trial process's threads and memory.

```text
supervisor ─┬─ trial process        asks for items, and takes them (`worker_processes.py`)
            └─ worker server        has imported the libraries of the data sets
                 └─ pool process    one for each pool: has read the data set, starts and waits for its workers
                      └─ workers
```

The supervisor starts the server when worker processes are needed for the first data set that can be sent
(`sendable.py`): the trial process signals it by SIGURG, and waits for the server at a socket. None of these processes is a
child of the script. They end with the trial process: by the end of their sockets, which no other process has.

A pool process reports the marks of the data set that it read to the trial process, which compares them
(`served_workers.py`).
"""
from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import sys

from py_hooks.recording import recorder
from py_hooks.workers.transfer import dataset_state, marks, settings
from py_hooks.workers.worker_messages import Connection, address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import Any, NoReturn

    from _pedl import PoolWorker, Trial

    from py_hooks.workers.worker_processes import WorkerProcess

# Signals for the script, which do not end the server: it ends with the trial process.
_OF_SCRIPT = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
    signal.SIGWINCH,
)
# The `_pedl.Trial` of this process, which is a server.
_TRIAL: Trial | None = None


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def main(trial: Trial) -> None:
    """The server: starts a pool process for each request, until the trial process has ended.

    Args:
        trial: the `_pedl.Trial` of this process, which does nothing.
    """
    global _TRIAL  # noqa: PLW0603 - of the whole process
    _TRIAL = trial
    trial.die_with_parent()
    for number in _OF_SCRIPT:
        # Not ignored: processes that a worker starts would ignore them too.
        signal.signal(number, _do_nothing)
    try:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.connect(address(trial.serves))
        connection = Connection(trial, end)
        if connection.peer() != (trial.serves, os.getuid()):
            # Any process on this machine may have taken the name, and messages are unpickled.
            return
        with _Silence() as silence:
            _serve(connection, silence)
    except (OSError, EOFError):
        pass
    finally:
        os._exit(0)


class _Silence:
    """`with`: discards what is printed, because the trial process has printed it."""

    def __enter__(self) -> _Silence:
        self._saved = [os.dup(1), os.dup(2)]
        nothing = os.open(os.devnull, os.O_WRONLY)
        self._redirect([nothing, nothing])
        os.close(nothing)
        return self

    def __exit__(self, *exception: object) -> None:
        self._redirect(self._saved)

    def end(self) -> None:
        """In a worker: output goes to the script's streams again."""
        self._redirect(self._saved)

    @staticmethod
    def _redirect(files: Sequence[int]) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):
                stream.flush()
        for number, file in enumerate(files, 1):
            os.dup2(file, number)


def _serve(connection: Connection, silence: _Silence) -> NoReturn:
    pools: list[int] = []
    while True:
        _await(connection)
        pools = [pid for pid in pools if os.waitpid(pid, os.WNOHANG) == (0, 0)]
        request, (theirs, *descriptors) = connection.receive()
        _prepare(request)
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            _TRIAL.die_with_parent()
            if os.getppid() != server:
                os._exit(0)
            connection.close()
            _Pool(Connection(_TRIAL, socket.socket(fileno=theirs)), request, descriptors, silence).serve()
        pools.append(pid)
        for descriptor in (theirs, *descriptors):
            os.close(descriptor)


def _await(connection: Connection) -> None:
    """Waits for a message, or for the end of the trial process, which the socket may not show."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    pause = None
    if hasattr(os, "pidfd_open"):
        waiting.register(_PIDFD or _open_pidfd(), select.POLLIN)
    else:
        pause = 1000
    while True:
        ready = dict(waiting.poll(pause))
        if connection.fileno() in ready:
            return
        if ready or not os.path.exists(f"/proc/{_TRIAL.serves}"):
            raise EOFError


# The process descriptor of the trial process.
_PIDFD: int | None = None


def _open_pidfd() -> int:
    global _PIDFD  # noqa: PLW0603 - forked children have it, too
    _PIDFD = os.pidfd_open(_TRIAL.serves)
    return _PIDFD


def _prepare(request: dict[str, Any]) -> None:
    """Gives this process the environment, directory, path and arguments of the trial process, and imports the libraries."""
    import importlib

    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[:] = request["path"]
    sys.argv[:] = request["arguments"]
    for name in request["libraries"]:
        # If an import fails, the data set cannot be read, which is reported.
        with contextlib.suppress(Exception):
            importlib.import_module(name)


class _Pool:
    """A pool process."""

    def __init__(self, connection: Connection, request: dict[str, Any], descriptors: list[int], silence: _Silence) -> None:
        self._connection = connection
        self._request = request
        self._memory = descriptors[0]
        self._update = dataset_state.Update(os.fdopen(descriptors[1], "r+b", buffering=0))
        self._silence = silence
        self._workers: dict[int, WorkerProcess] = {}

    def serve(self) -> None:
        """Answers the requests of the trial process, until that is gone."""
        from py_hooks.workers.worker_processes import end_process

        try:
            self._connection.send(self._open())
            while True:
                _await(self._connection)
                (number, what), _ = self._connection.receive()
                if what == "close":
                    return
                self._connection.send(self._answer(number, what))
        except (OSError, EOFError):
            pass
        finally:
            end_process()

    def _open(self) -> str | tuple[dict[str, Any], dict[str, Any]]:
        """Reads the data set. Returns its marks and the settings, or why it cannot be used."""
        import importlib

        from py_hooks.datasets.items import Items

        try:
            for name in self._request["modules"]:
                # The training process has imported these modules, and they only define things.
                importlib.import_module(name)
            dataset = pickle.loads(self._request.pop("dataset"))
            if recorder.CALLS is None:
                return "it uses no framework"
            self._items = Items(dataset, self._request["key"], self._request["workers"], in_processes=True, probes=False)
            self._items.adopt_roots(self._request["roots"])
            set_to = {**settings.of_packages(self._request["libraries"]), **settings.of_process()}
            found = marks.portable(dataset, self._request["modules"])[0], set_to
        except Exception as error:  # noqa: BLE001 - whatever the module of the class does
            return f"it cannot be read in another process ({type(error).__name__}: {error})"
        return found

    def _answer(self, number: int, what: str) -> Any:
        if what == "start":
            return self._start(number)
        worker = self._workers[number]
        if what == "forget":
            del self._workers[number]
        return getattr(worker, what)()

    def _start(self, number: int) -> int:
        from py_hooks.workers.worker_processes import WorkerProcess

        worker = self._workers[number] = WorkerProcess(self._items, self, number, self._update)
        return worker.pid

    def worker(self, number: int, parent: int) -> PoolWorker:
        """In a worker: the worker's side of the pool."""
        from py_hooks.workers.worker_processes import dumps, loads

        self._connection.close()
        self._silence.end()
        return recorder.CALLS.trial.pool_worker(self._memory, self._request["shape"], number, parent, dumps, loads)
