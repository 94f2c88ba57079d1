"""Items of a Python generator: in order, drawn from a separate stream, and kept if they were drawn too early."""
import random
import threading

import pytest

from py_hooks.datasets import generators
from py_hooks.random_numbers.random_streams import Streams

pytestmark = pytest.mark.stack("keras")


@pytest.fixture
def streams():
    """Streams of a trial; afterwards the global functions are restored."""
    return Streams(1)


def count(stop=None):
    """Yields numbers, and the name of the thread that asked."""
    number = 0
    while number != stop:
        yield number, threading.current_thread().name
        number += 1


def test_what_was_drawn_ahead_is_what_the_next_one_gets(streams):
    sources, generator = generators.GeneratorSources(), count()
    first = sources.of(generator, streams)
    assert [first.take(4)[0] for _ in range(3)] == [0, 1, 2]
    second = sources.of(generator, streams)
    assert second is first
    assert [second.take(0)[0] for _ in range(5)] == [3, 4, 5, 6, 7]


def test_one_thread_draws_ahead_and_without_looking_ahead_the_caller(streams):
    sources = generators.GeneratorSources()
    first, second = count(), count()
    assert sources.of(first, streams).take(2) == (0, "pedl-generator")
    assert next(sources.of(second, streams)) == (0, threading.current_thread().name)


def test_its_end_and_its_errors_come_where_they_belong(streams):
    def fail():
        yield 1
        raise KeyError("the user's")

    sources, short, failing = generators.GeneratorSources(), count(2), fail()
    source = sources.of(short, streams)
    assert [number for number, _ in source] == [0, 1]
    assert list(source) == []
    source = sources.of(failing, streams)
    source.ahead = 3
    assert next(source) == 1
    with pytest.raises(KeyError, match="the user's"):
        next(source)


def test_a_source_goes_with_its_generator(streams):
    sources, generator = generators.GeneratorSources(), count()
    sources.of(generator, streams)
    assert sources._sources
    del generator
    assert not sources._sources


def test_what_it_draws_does_not_touch_the_global_generators(streams):
    streams.install()
    try:
        drawn = []
        for ahead in (0, 3):
            random.seed(5)

            def draw():
                while True:
                    yield random.random()

            generator = draw()
            source = generators.GeneratorSource(lambda generator=generator: generator, ("key",))
            drawn.append([source.take(ahead) for _ in range(5)])
            assert random.random() == random.Random(5).random()
        assert drawn[0] == drawn[1]
    finally:
        uninstall(streams)


def uninstall(streams):
    """Removes the dispatchers from the two modules."""
    import numpy

    for module in (random, numpy.random, numpy.random.mtrand):
        for name, value in list(vars(module).items()):
            if hasattr(value, "__wrapped__") and getattr(value, "__qualname__", "") == value.__name__:
                setattr(module, name, value.__wrapped__)
