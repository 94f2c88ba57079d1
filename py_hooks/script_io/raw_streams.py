"""Puts raw layers below Python's text and buffer layers of stdout and stderr before the script runs.

They behave as the files that they replace. When a framework is imported, `output.py` gives them another class, which does
more. That is one assignment, so a thread that prints meanwhile uses either the old class or the new one. A layer is put in
only while there is no other thread, because this initialises the layers above again.

This module imports only what Python has imported before any script.
"""
from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The layers that were put in, by the stream's name. Do not keep references to the layers above them: these would be in a
# cycle with the class of the raw layers, which Python clears in any order at the end of the process, losing buffered output.
PUT: dict[str, RawStream] = {}


class RawStream(io.FileIO):
    """A raw layer that takes the place of `replaced`, which keeps the descriptor open."""

    def __init__(self, replaced: io.FileIO) -> None:
        io.FileIO.__init__(self, replaced.fileno(), "w", closefd=False)
        self.name = replaced.name
        self.replaced = replaced
        self.leads_to = leads_to(self.fileno())


def leads_to(descriptor: int) -> tuple[int, int, int]:
    """Identifies the file that a descriptor refers to: equal for descriptors of the same file."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_rdev


def put_below_own() -> None:
    """Puts layers below `sys.stdout` and `sys.stderr`, if these are Python's original streams."""
    for descriptor, name in enumerate(("stdout", "stderr"), 1):
        text = getattr(sys, name)
        if is_plain(text, descriptor):
            PUT[name] = put_below(text)


def is_plain(text: Any, descriptor: int) -> bool:
    """Whether a stream is Python's text layer, with only Python's layers below it, that writes to this descriptor."""
    try:
        if type(text) is not io.TextIOWrapper or type(text.buffer) not in (io.BufferedWriter, io.FileIO):
            return False
        return type(_raw(text)) is io.FileIO and text.fileno() == descriptor
    except (ValueError, OSError):
        # It was detached, or closed.
        return False


def put_below(text: io.TextIOWrapper) -> RawStream:
    """Puts a raw layer below a text layer and its buffer, and returns it. These stay the same objects, initialised again.

    A newline that `reconfigure` has set cannot be read, and is lost.
    """
    text.flush()
    buffer: Any
    raw = buffer = RawStream(_raw(text))
    if type(text.buffer) is io.BufferedWriter:
        buffer = text.buffer
        io.BufferedWriter.__init__(buffer, raw)
    io.TextIOWrapper.__init__(
        text,
        buffer,
        encoding=text.encoding,
        errors=text.errors,
        newline="\n",
        line_buffering=text.line_buffering,
        write_through=getattr(text, "write_through", False),
    )
    return raw


def _raw(text: io.TextIOWrapper) -> Any:
    """The lowest layer below a text layer."""
    return getattr(text.buffer, "raw", text.buffer)
