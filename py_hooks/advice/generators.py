"""Python generators that a framework takes batches from: drawn from in order, under a stream of their own.

What a generator yields can only be had by running it. So it runs in a replay too, from its first batch to the position
where training goes on, and draws the same random numbers there: all of its draws come from one stream, whatever thread
asks. Where the framework looks ahead, a thread does it here, and what it has drawn and nobody taken is kept for whoever
takes from the generator next: a second fit goes on where the first one ended, not somewhere behind it.
"""
import collections
import queue
import threading
import weakref

from py_hooks.advice.random_streams import PrivateStream


class GeneratorSource:
    """What one generator yields.

    Args:
        reference: gives the generator, or None once it is gone.
        key: of its stream; `Streams.new_key()`.

    Attributes:
        ahead: how many batches `next` may draw before they are asked for.
    """

    def __init__(self, reference, key):
        self.ahead = 0
        self._reference = reference
        self._stream = PrivateStream(*(("generator",) + key))
        self._drawn = collections.deque()
        self._asked = None

    def __iter__(self):
        return self

    def __next__(self):
        return self.take(self.ahead)

    def take(self, ahead):
        """The next batch; raises StopIteration where there is none.

        Args:
            ahead: how many may be drawn before they are asked for.
        """
        if not ahead and not self._drawn:
            return self._draw()
        while len(self._drawn) < ahead:
            self._drawn.append(self._ask())
        return self._drawn.popleft().get()

    def _draw(self):
        generator = self._reference()
        if generator is None:
            raise StopIteration
        with self._stream:
            return next(generator)

    def _ask(self):
        if self._asked is None:
            self._asked = queue.Queue()
            # It may wait for its generator when the script has ended.
            threading.Thread(target=_serve, args=(self._asked,), name="pedl-generator", daemon=True).start()
            weakref.finalize(self, self._asked.put, None).atexit = False
        drawn = _Drawn()
        self._asked.put((weakref.ref(self), drawn))
        return drawn


class _Drawn:
    """A batch to come, or what came instead of it."""

    def __init__(self):
        self._done = threading.Event()
        self._batch = self._error = None

    def draw(self, source):
        """Draws it from a source."""
        try:
            self._batch = source._draw()
        except BaseException as error:  # noqa: BLE001  the user's, for whoever takes the batch
            self._error = error
        self._done.set()

    def get(self):
        """The batch."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._batch


def _serve(asked):
    for reference, drawn in iter(asked.get, None):
        source = reference()
        if source is not None:
            drawn.draw(source)
        del source, reference, drawn


def _reference_to(value):
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


class GeneratorSources:
    """The sources of a process, one for each generator, for as long as the generator is there."""

    def __init__(self):
        self._sources = {}

    def of(self, generator, streams):
        """The source of a generator."""
        key = id(generator)
        if key not in self._sources:
            self._sources[key] = GeneratorSource(_reference_to(generator), streams.new_key())
            try:
                weakref.finalize(generator, self._sources.pop, key, None).atexit = False
            except TypeError:
                # It cannot be told when it goes: it stays.
                self._sources[key].generator = generator
        return self._sources[key]


SOURCES = GeneratorSources()
