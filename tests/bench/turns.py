"""Turns of two processes that are measured together, of which only one computes at a time."""
import os
import select

# More than a part of the other process may take, with its start and its tracing.
TURN_LIMIT_S = 600


class Turns:
    """Turns of two processes: only one of them computes at a time."""

    def __init__(self, mine, other):
        # For both reading and writing, so that opening a pipe does not block.
        self._mine, self._other = (os.open(path, os.O_RDWR) for path in (mine, other))

    def take(self):
        ready, _, _ = select.select([self._mine], [], [], TURN_LIMIT_S)
        if not ready:
            raise SystemExit(f"the other process has not given its turn for {TURN_LIMIT_S} s")
        os.read(self._mine, 1)

    def give(self):
        os.write(self._other, b".")


class Alone:
    """No other process is measured."""

    def take(self):
        pass

    def give(self):
        pass
