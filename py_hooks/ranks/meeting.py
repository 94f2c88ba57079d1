"""Connects ranks that no framework connects before they train: every other rank has a connection to rank 0.

Rank 0 listens at its address until all others have connected. After that every exchange is a line of JSON from each of them
to rank 0, and one line with all of them back. If a connection ends, its rank is lost. A thread waits for that and reports it,
because a process in the middle of a computation with the lost rank may wait for ever.

    rank 0                            rank N
    listens at the address            connects, again and again, until it succeeds
                                 <--  {"rank": N, "size": SIZE}
    has all of them, and stops
    listening                    -->  []         the others begin
                                 <--  the message of N
    has the lines of all         -->  [the message of rank 0, ..., of N, ...]

A rank that dies before all have connected may connect again. Forked children close the connections, so that these end with
the process.
"""
from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import socket
import threading
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    _Message = TypeVar("_Message")

# How long a rank waits until all have connected, in seconds: ranks may be started in turn, and import a framework first.
PATIENCE_SECONDS = 300

# How long another process, the earlier rank 0 that was killed, may still hold the address, in seconds.
_HELD_SECONDS = 30

# Between two attempts to connect, or to listen, in seconds.
_PAUSE_SECONDS = 0.1

# How long a process that connects may take to send its rank, in seconds. Anybody may connect.
_GREETING_SECONDS = 5

# Maximum size of the line that a rank sends first, in bytes.
_GREETING_BYTES = 100

# How long a rank whose peer is lost may continue, in seconds. If the same error, such as a mistake in the model definition,
# ends it too, that error says more.
_GRACE_SECONDS = 1

# The loss of a machine that closes no connection is noticed after 10 + 3 * 5 seconds.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))

_BYTES = 1 << 16

# In place of the message of a rank that is lost.
_GONE = object()


class Lost(Exception):
    """Another rank is lost, or has not connected."""


class Meeting:
    """The connections of one rank. The constructor returns when all ranks have connected.

    Args:
        rank: of this process.
        size: the number of ranks.
        address: `(host, port)` of rank 0.
        lost: called with a text, in a thread, when another rank is lost; not within `undisturbed` or after `close`.

    Raises:
        Lost: some have not connected.
        OSError: the address is invalid, or another program has it.
    """

    def __init__(self, rank: int, size: int, address: tuple[str, int], lost: Callable[[str], object]) -> None:
        self._rank, self._size = rank, size
        self._lost = lost
        self._told: dict[int, queue.Queue[Any]] = {}
        self._patience = 0
        self._gone: str | None = None
        self._lock = threading.Lock()
        self._peers = self._received(address) if rank == 0 else {0: self._connected(address)}
        for other, connection in self._peers.items():
            self._told[other] = queue.Queue()
            _keep_alive(connection)
        os.register_at_fork(after_in_child=self._close)
        threading.Thread(target=self._listen, name="pedl-ranks", daemon=True).start()
        if rank == 0:
            self._send([])
        else:
            self._take(0)

    # -- connecting ----------------------------------------------------------------------------------------------------

    def _received(self, address: tuple[str, int]) -> dict[int, socket.socket]:
        peers: dict[int, socket.socket] = {}
        with contextlib.closing(_listening(address)) as listener:
            until = monotonic() + PATIENCE_SECONDS
            while len(peers) < self._size - 1:
                missing = sorted(set(range(1, self._size)) - set(peers))
                listener.settimeout(max(until - monotonic(), _PAUSE_SECONDS))
                try:
                    connection, _ = listener.accept()
                except socket.timeout:
                    raise Lost("these have not come: {}".format(", ".join(map(str, missing)))) from None
                other = self._greeted(connection)
                if other is None:
                    connection.close()
                    continue
                if other in peers:
                    # The rank had connected before, has died, and was started again.
                    peers[other].close()
                peers[other] = connection
        return peers

    def _greeted(self, connection: socket.socket) -> int | None:
        """The rank of the process that connects; None if it is no rank of this trial."""
        connection.settimeout(_GREETING_SECONDS)
        try:
            line = b""
            while not line.endswith(b"\n"):
                more = connection.recv(_GREETING_BYTES)
                if not more or len(line) > _GREETING_BYTES:
                    return None
                line += more
            told = json.loads(line.decode())
            is_one = isinstance(told, dict) and told.get("size") == self._size and told.get("rank") in range(1, self._size)
        except (OSError, ValueError):
            return None
        connection.settimeout(None)
        return told["rank"] if is_one else None

    def _connected(self, address: tuple[str, int]) -> socket.socket:
        """The connection to rank 0, once rank 0 has answered, which it does when all have connected."""
        until, problem = monotonic() + PATIENCE_SECONDS, ""
        while monotonic() < until:
            try:
                connection = socket.create_connection(address, timeout=_GREETING_SECONDS)
                connection.settimeout(max(until - monotonic(), _PAUSE_SECONDS))
                connection.sendall(_line({"rank": self._rank, "size": self._size}))
                # Only a peek: the thread that listens reads the line.
                if connection.recv(1, socket.MSG_PEEK) == b"[":
                    connection.settimeout(None)
                    return connection
                connection.close()
                problem = "it is no rank 0 of theirs that listens there"
            except OSError as error:
                problem = str(error)
            sleep(_PAUSE_SECONDS)
        raise Lost("rank 0 is not there, at {}:{}: {}".format(*address, problem))

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def gather(self, own: _Message) -> list[_Message]:
        """The messages of all ranks, by rank: any value that JSON can represent.

        Raises:
            Lost: one of them is lost.
        """
        if self._rank:
            self._send(own)
            return self._take(0)
        everyone = [own, *(self._take(other) for other in range(1, self._size))]
        self._send(everyone)
        return everyone

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Within it, the loss of a rank is reported only to a caller that waits for the rank, and at the end of the block.

        Raises:
            Lost: one was lost meanwhile.
        """
        with self._lock:
            self._patience += 1
        try:
            yield
        finally:
            with self._lock:
                self._patience -= 1
        if self._gone is not None and not self._patience:
            raise Lost(self._gone)

    def wait_for_loss(self, seconds: float) -> None:
        """Waits, so that the loss of another rank can be noticed, and reported by `lost`."""
        until = monotonic() + seconds
        while monotonic() < until:
            sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """There are no more exchanges: a rank that closes its connection now is not lost."""
        with self._lock:
            self._patience += 1
        self._gone = None
        for connection in self._peers.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def _send(self, message: object) -> None:
        try:
            for connection in self._peers.values():
                connection.sendall(_line(message))
        except OSError as error:
            raise Lost(f"a connection has ended: {error}") from error

    def _take(self, other: int) -> Any:
        message = self._told[other].get()
        if message is _GONE:
            raise Lost(self._gone or f"the connection to rank {other} has ended")
        return message

    # -- the thread that listens ---------------------------------------------------------------------------------------

    def _listen(self) -> None:
        unread = dict.fromkeys(self._peers, b"")
        with selectors.DefaultSelector() as selector:
            for other, connection in self._peers.items():
                selector.register(connection, selectors.EVENT_READ, other)
            while unread:
                for key, _ in selector.select():
                    other = key.data
                    received = _received_by(key.fileobj)
                    *lines, unread[other] = (unread[other] + received).split(b"\n")
                    for line in lines:
                        self._told[other].put(json.loads(line.decode()))
                    if not received:
                        selector.unregister(key.fileobj)
                        del unread[other]
                        self._notice(other)

    def _notice(self, other: int) -> None:
        """A rank is lost."""
        with self._lock:
            self._gone = self._gone or f"the connection to rank {other} has ended"
            is_told = not self._patience
        self._told[other].put(_GONE)
        if is_told:
            sleep(_GRACE_SECONDS)
            self._lost(self._gone)

    def _close(self) -> None:
        for connection in self._peers.values():
            connection.close()


def _received_by(connection: Any) -> bytes:
    try:
        return connection.recv(_BYTES)
    except OSError:
        return b""


def _line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _listening(address: tuple[str, int]) -> socket.socket:
    """A socket that listens at the port of an address, on all interfaces, as the server of a framework will."""
    family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
    until = monotonic() + _HELD_SECONDS
    while True:
        listener = socket.socket(family, socket.SOCK_STREAM)
        # The framework uses the port alone once all have connected.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", address[1]))
            listener.listen()
            return listener
        except OSError:
            listener.close()
            if monotonic() > until:
                raise
        sleep(_PAUSE_SECONDS)


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
