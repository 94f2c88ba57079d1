"""The raw layers of stdout and stderr, put below python's own text and buffer layers before the script runs.

Nothing is another behaviour than before: they are files as those in whose place they are. When a framework is imported,
`output.py` makes more of them by another class. That is one assignment, so a thread that prints meanwhile prints as before
or as after; to put a layer in, which makes the layers above anew, is only done while there is no other thread.

Imports nothing that python has not imported before any script.
"""
import io
import os
import sys

# Those that were put, by the stream's name. Whoever holds layers above them for good holds them in a cycle, since these have
# a class: at the end of the process the cycle is taken apart in any order, and what is left in the layers above is lost.
PUT = {}


class RawStream(io.FileIO):
    """A raw layer in the place of `replaced`, which keeps the descriptor open."""

    def __init__(self, replaced):
        io.FileIO.__init__(self, replaced.fileno(), "w", closefd=False)
        self.name = replaced.name
        self.replaced = replaced
        self.leads_to = leads_to(self.fileno())


def leads_to(descriptor):
    """What a descriptor leads to: two that lead to the same have the same numbers."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_rdev


def put_below_own():
    """Puts layers below `sys.stdout` and `sys.stderr`, as far as they are python's own."""
    for descriptor, name in enumerate(("stdout", "stderr"), 1):
        text = getattr(sys, name)
        if is_plain(text, descriptor):
            PUT[name] = put_below(text)


def is_plain(text, descriptor):
    """Whether a stream is a text layer of python's, with nothing of anybody's below it, that writes to this descriptor."""
    try:
        if type(text) is not io.TextIOWrapper or type(text.buffer) not in (io.BufferedWriter, io.FileIO):
            return False
        return type(_raw(text)) is io.FileIO and text.fileno() == descriptor
    except (ValueError, OSError):
        # It was detached, or closed.
        return False


def put_below(text):
    """Puts a raw layer below a text layer and its buffer, and returns it; these are made anew, as the objects they are.

    A newline that `reconfigure` was given cannot be asked for, and is lost.
    """
    text.flush()
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


def _raw(text):
    """The lowest layer below a text layer."""
    return getattr(text.buffer, "raw", text.buffer)
