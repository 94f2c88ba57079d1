"""Python generators that a framework takes batches from: run in order, each under a separate random stream.

The batches of a generator exist only if it runs. So it runs in a replay too, from its first batch to the position at which
training continues, and draws the same random numbers: all of its draws come from one stream, whichever thread asks. If the
framework prefetches, a thread runs the generator ahead. Batches that were drawn and not taken are kept for the next consumer
of the generator: a second fit continues at the batch after the last one of the first fit, not at a later one.
"""
from __future__ import annotations

import collections
import queue
import threading
import weakref

from py_hooks.random_numbers.random_streams import PrivateStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from py_hooks.random_numbers.random_streams import Streams

    # None is the end.
    _Asked = queue.Queue[tuple[weakref.ref["GeneratorSource"], "_Drawn"] | None]


class GeneratorSource:
    """The batches of one generator.

    Args:
        reference: returns the generator, or None once it was collected.
        key: of its stream; `Streams.new_key()`.

    Attributes:
        ahead: how many batches `next` may draw before they are requested.
    """

    generator: Iterator[Any]

    def __init__(self, reference: Callable[[], Iterator[Any] | None], key: tuple[Any, ...]) -> None:
        self.ahead = 0
        self._reference = reference
        self._stream = PrivateStream(*(("generator",) + key))
        self._drawn: collections.deque[_Drawn] = collections.deque()
        self._asked: _Asked | None = None

    def __iter__(self) -> GeneratorSource:
        return self

    def __next__(self) -> Any:
        return self.take(self.ahead)

    def take(self, ahead: int) -> Any:
        """The next batch; raises StopIteration if there is none.

        Args:
            ahead: how many may be drawn before they are requested.
        """
        if not ahead and not self._drawn:
            return self._draw()
        while len(self._drawn) < ahead:
            self._drawn.append(self._ask())
        return self._drawn.popleft().get()

    def _draw(self) -> Any:
        generator = self._reference()
        if generator is None:
            raise StopIteration
        with self._stream:
            return next(generator)

    def _ask(self) -> _Drawn:
        if self._asked is None:
            self._asked = queue.Queue()
            # A daemon: the thread may still wait for its generator when the script has ended.
            threading.Thread(target=_serve, args=(self._asked,), name="pedl-generator", daemon=True).start()
            weakref.finalize(self, self._asked.put, None).atexit = False
        drawn = _Drawn()
        self._asked.put((weakref.ref(self), drawn))
        return drawn


class _Drawn:
    """A future batch, or the error that was raised instead of it."""

    _batch: Any
    _error: BaseException | None

    def __init__(self) -> None:
        self._done = threading.Event()
        self._batch = self._error = None

    def draw(self, source: GeneratorSource) -> None:
        """Draws the batch from a source."""
        try:
            self._batch = source._draw()
        except BaseException as error:  # noqa: BLE001  the user's, for whoever takes the batch
            self._error = error
        self._done.set()

    def get(self) -> Any:
        """The batch."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._batch


def _serve(asked: _Asked) -> None:
    for reference, drawn in iter(asked.get, None):
        source = reference()
        if source is not None:
            drawn.draw(source)
        del source, reference, drawn


def _reference_to(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


class GeneratorSources:
    """The sources of a process, one for each generator, as long as the generator exists."""

    def __init__(self) -> None:
        self._sources: dict[int, GeneratorSource] = {}

    def of(self, generator: Iterator[Any], streams: Streams) -> GeneratorSource:
        """The source of a generator."""
        key = id(generator)
        if key not in self._sources:
            self._sources[key] = GeneratorSource(_reference_to(generator), streams.new_key())
            try:
                weakref.finalize(generator, self._sources.pop, key, None).atexit = False
            except TypeError:
                # The end of the generator cannot be observed, so it is kept alive.
                self._sources[key].generator = generator
        return self._sources[key]


SOURCES = GeneratorSources()
