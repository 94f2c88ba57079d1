"""Worker processes that a server starts for the training process: the side of the training process.

A process of the server reads a data set that can be sent (`sendable.py`), and what was read is compared with what
was sent. If anything differs, or cannot be done, `ServedPool` raises, and workers are forked, which is always correct.
What is sent later contains only classes and functions that were compared then (`ServedPool.globals`).

The server starts when it is first needed. This process signals the supervisor by SIGURG, and the supervisor starts it; so
none of its processes is a child of the script. `worker_server.py` describes how it works.
"""
from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from time import monotonic

from py_hooks.recording import recorder
from py_hooks.workers.transfer import definitions, marks, sendable, settings
from py_hooks.workers.worker_messages import Connection, address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from _pedl import Pool

    from py_hooks.datasets.items import Items

# Seconds that the server may take to start: Python starts in less than one. After that, workers are forked.
_START_SECONDS = 20
# Seconds to import what a data set needs, and to read it: TensorFlow takes ten on a busy machine.
_IMPORT_SECONDS = 120
# Seconds after which a run says what it waits for.
_SILENT_SECONDS = 20


class ServerFailed(Exception):
    """A server cannot start worker processes; the text says why."""


# Exceptions that say why workers have to be forked. Any other exception must not end the training of the script.
NOT_SERVED = ServerFailed, sendable.NotSendable, definitions.DoesMore, marks.Unnamed, settings.TooMuch


class Server:
    """The server of this process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def start(cls) -> Server:
        """Asks the supervisor for a server, and waits until it connects."""
        supervisor = os.getppid()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(address(os.getpid()))
                listener.listen(1)
                os.kill(supervisor, signal.SIGURG)
                connection = _accept(listener, supervisor)
            except OSError as error:
                raise ServerFailed(f"no worker server answers ({error})") from None
        connection.settimeout(_IMPORT_SECONDS)
        return cls(connection)

    def open(self, request: dict[str, Any], descriptors: Sequence[int]) -> Connection:
        """Has the server start a pool process for a data set. Returns the connection to it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._connection.send(request, [theirs.fileno(), *descriptors])
                ours.settimeout(_SILENT_SECONDS)
            except OSError as error:
                ours.close()
                raise ServerFailed(f"the worker server is gone ({error})") from None
            except BaseException:
                ours.close()
                raise
        return Connection(recorder.CALLS.trial, ours)


_SERVER: Server | None = None
# The reason why there is no server, and will be none.
_FAILED: str | None = None
_STARTING = threading.Lock()


def _server() -> Server:
    global _SERVER, _FAILED  # noqa: PLW0603 - there is one, once it is needed
    if recorder.CALLS.trial.is_child:
        raise ServerFailed("this is a child of the process that trains")
    with _STARTING:
        if _FAILED is not None:
            raise ServerFailed(_FAILED)
        if _SERVER is None:
            try:
                _SERVER = Server.start()
            except ServerFailed as error:
                _FAILED = str(error)
                raise
        return _SERVER


def _accept(listener: socket.socket, supervisor: int) -> Connection:
    limit = monotonic() + _START_SECONDS
    while True:
        listener.settimeout(max(0.001, limit - monotonic()))
        connection = Connection(recorder.CALLS.trial, listener.accept()[0])
        pid, user = connection.peer()
        if user == os.getuid() and _parent_of(pid) == supervisor:
            return connection
        # Any process on this machine may connect.
        connection.close()


def _parent_of(pid: int) -> int | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])
    return None


class ServedPool:
    """The worker processes of one pool, which a server starts.

    Args:
        items: whose data set can be sent.
        pool: a `_pedl.Pool`.
        update: the file of the `dataset_state.Update`.

    Raises:
        NOT_SERVED: the workers have to be forked. No other `Exception` is raised.

    Attributes:
        globals: names of the classes and functions that were compared (`SendingPickler.globals`).
        modules: names of the user's modules that were compared.
    """

    def __init__(self, items: Items, pool: Pool, update: int) -> None:
        self._connection: Connection | None = None
        try:
            self._open(items, pool, update)
        except BaseException as error:
            if self._connection is not None:
                self._connection.close()
            if isinstance(error, Exception) and not isinstance(error, NOT_SERVED):
                # There is no current directory, no room for descriptors, or something that cannot be sent to the server.
                raise ServerFailed(f"the worker server cannot be asked ({error})") from None
            raise

    def _open(self, items: Items, pool: Pool, update: int) -> None:
        dataset = items.dataset
        text, pickler = sendable.pickled(dataset)
        libraries, self.modules = definitions.modules_of(pickler.modules)
        ours, around = marks.portable(dataset, self.modules)
        sendable.refuse_shared(pickler.held, around, libraries)
        self.globals = pickler.globals
        set_to = settings.of_packages(libraries)
        memory, shape = pool.memory
        request = {
            "directory": os.getcwd(),
            "environment": dict(os.environ),
            "path": list(sys.path),
            "arguments": list(sys.argv),
            "libraries": sorted(libraries.union(set_to)),
            "modules": sorted(self.modules),
            "dataset": text,
            "key": items.key[1:],
            "roots": items.roots(),
            "workers": items.workers,
            "shape": shape,
        }
        self._connection = _server().open(request, [memory, update])
        found = self._ask()
        if isinstance(found, str):
            raise ServerFailed(found)
        self._compare(ours, {**set_to, **settings.of_process()}, *found)

    @staticmethod
    def _compare(
        ours: Mapping[str, bytes], set_to: Mapping[str, Any], theirs: Mapping[str, bytes], theirs_set_to: Mapping[str, Any]
    ) -> None:
        different = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
        if different:
            what = f"its attribute `{different[0]}` is" if different[0] else "what its class uses is"
            raise ServerFailed(f"{what} not the same in another process")
        for name in sorted(set_to):
            if set_to[name] != theirs_set_to.get(name):
                raise ServerFailed(f"the script has changed a setting (`{name}`)")

    def _ask(self, *question: object) -> Any:
        try:
            if question:
                self._connection.send(question)
            return self._receive()
        except (OSError, EOFError) as error:
            # An answer that comes later would belong to no question.
            self._connection.close()
            raise ServerFailed(f"the process that starts them is gone ({error or type(error).__name__})") from None

    def _receive(self) -> Any:
        limit = monotonic() + _IMPORT_SECONDS
        while True:
            try:
                return self._connection.receive()[0]
            except socket.timeout:
                if monotonic() >= limit:
                    raise
                recorder.CALLS.trial.log(
                    f"waits for the clean process that reads the data set and starts its workers; "
                    f"without an answer in {limit - monotonic():.0f} s they are forked"
                )

    def start(self, number: int) -> ServedProcess:
        """Starts a worker. Returns an object that represents it."""
        return ServedProcess(self._ask, number)

    def close(self) -> None:
        """There will be no more workers."""
        # Children of the script may have the connection too, so closing it is not enough.
        with contextlib.suppress(OSError):
            self._connection.send((None, "close"))
        self._connection.close()


class ServedProcess:
    """One worker process: a `worker_processes.WorkerProcess` in the pool process."""

    def __init__(self, ask: Callable[[int, str], Any], number: int) -> None:
        self._ask = ask
        self._number = number
        self.pid: int = ask(number, "start")
        # Not needed: a kernel without descriptors of processes has no server.
        self.sentinel = -1

    def _tell(self, method: str) -> str | None:
        try:
            return self._ask(self._number, method)
        except ServerFailed:
            return "ended with the process that had started it" if method == "wait" else ""

    def abort(self) -> None:
        """The worker takes too long: has it write its traceback, and end."""
        self._tell("abort")

    def wait(self) -> str:
        """The worker has ended. Returns how, in words."""
        return self._tell("wait")

    def traceback(self) -> str:
        """What the worker wrote when it crashed, to be appended to a sentence."""
        return self._tell("traceback")

    def end(self) -> None:
        """The worker was asked to end: waits until it has, and ends it if that takes long."""
        self._tell("end")

    def forget(self) -> None:
        """The worker has ended, and is not needed any more."""
        self._tell("forget")
