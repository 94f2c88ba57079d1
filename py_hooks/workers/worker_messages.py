"""Messages between the training process and a worker server, and the address at which they connect.

A message is a value and file descriptors. The value is sent in a file in memory, whose descriptor is the first one, so that
it may have any size.
"""
from __future__ import annotations

import array
import os
import pickle
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _pedl import Trial

# The most descriptors in one message, besides that of the value.
_MOST_DESCRIPTORS = 4


class Connection:
    """One end of a socket between two processes.

    Args:
        trial: the `_pedl.Trial` of this process.
        end: the socket, which this object owns from now on.
    """

    def __init__(self, trial: Trial, end: socket.socket) -> None:
        self._memory_file = trial.memory_file
        self._end = end

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._end.fileno()

    def settimeout(self, seconds: float | None) -> None:
        """Sets the seconds that sending, and waiting for a message, may take; None for no limit."""
        self._end.settimeout(seconds)

    def close(self) -> None:
        """Closes the socket."""
        self._end.close()

    def peer(self) -> tuple[int, int]:
        """The process on the other side, and its user."""
        return struct.unpack("3i", self._end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[:2]

    def send(self, message: object, descriptors: Sequence[int] = ()) -> None:
        """Sends a value, and file descriptors.

        Args:
            message: a value that can be pickled.
            descriptors: numbers of open files, which stay open here.

        Raises:
            OSError: the other side is gone or takes too long, or there is no room for the message.
            Exception: whatever the value raises when it is pickled. Nothing was sent then.
        """
        with os.fdopen(self._memory_file(), "wb") as file:
            pickle.dump(message, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
            sent = array.array("i", [file.fileno(), *descriptors])
            self._end.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])

    def receive(self) -> tuple[Any, list[int]]:
        """Receives a value, and a list of file descriptors.

        Raises:
            EOFError: the other side is gone, or there is no room for file descriptors.
            OSError: the other side takes too long.
            Exception: whatever the value raises when it is read.
        """
        received = array.array("i")
        space = socket.CMSG_SPACE((1 + _MOST_DESCRIPTORS) * received.itemsize)
        text, ancillary, flags, _ = self._end.recvmsg(1, space, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        if not text or flags & socket.MSG_CTRUNC:
            # The other side is gone, or there is no room for file descriptors.
            raise EOFError
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
        with os.fdopen(received[0], "rb") as file:
            file.seek(0)
            message = pickle.load(file)
        return message, list(received[1:])


def address(trainer: int) -> str:
    """The name of the socket at which a trial process waits; it is in no file system."""
    return f"\0pedl-workers-{trainer}-{os.readlink('/proc/self/ns/pid')}"
