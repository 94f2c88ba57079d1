"""Batches through the shared memory of a pool: what a worker sends is what the trainer gets (issue 6).

Worker and trainer are one process here. What becomes of worker processes is in tests/test_worker_processes.py.
"""

import collections
import gc
import os
import sys

import pytest
from test_native import native  # noqa: F401 - a fixture

from py_hooks.advice import worker_processes

numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")

WINDOW, LEASES = 4, 3

Pair = collections.namedtuple("Pair", "left right")


class Masked(numpy.ndarray):
    """An array of the script's own kind."""


class Line:
    """A pool, and one worker of it."""

    def __init__(self, native):  # noqa: F811
        self.pool = native.Trial.pool(WINDOW, LEASES, worker_processes._dumps, worker_processes._loads)
        self.worker = self.pool.worker(0, os.getppid())
        self.task = 0

    def send(self, value):
        """Sends a value; returns what comes."""
        assert self.pool.publish(self.task, 3, self.task, 5)
        assert self.worker.claim() == (3, self.task, 5)
        self.worker.finish(value)
        self.task += 1
        return self.pool.take(self.task - 1, None)


@pytest.fixture
def line(native):  # noqa: F811
    return Line(native)


def large(first=0):
    return numpy.arange(first, first + 50000, dtype="float64")


def same(left, right):
    """Equal in type, and in everything that numpy tells of arrays."""
    assert type(left) is type(right)
    if isinstance(left, numpy.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes() or left.dtype.hasobject
        # Gaps between elements are not sent.
        dense = left.copy(order="K")
        assert dense.strides == right.strides
        assert dense.flags.c_contiguous == right.flags.c_contiguous
        assert dense.flags.f_contiguous == right.flags.f_contiguous
        assert right.flags.writeable
        assert left.dtype.hasobject is False or left.tolist() == right.tolist()
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right):
            same(one, other)
    elif isinstance(left, dict):
        same(list(left.items()), list(right.items()))
    elif isinstance(left, numpy.generic):
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes()
    else:
        assert left == right or left != left
    return True


VALUES = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 10**40, 0.5, float("nan"), -0.0, 1 + 2j, "", "text", "\udc80",
    b"", b"bytes", (), [], {}, set(), frozenset([1]), range(3), Pair(1, [2]), collections.OrderedDict(a=1),
    {"x": [1, (2, None)], 3: {"y": ()}}, slice(1, 2), Ellipsis,
    numpy.float32(1.5), numpy.float64(2.5), numpy.int8(-3), numpy.bool_(True), numpy.datetime64("2020-01-01"), numpy.str_("s"),
    numpy.zeros(()), numpy.zeros(0), numpy.zeros((3, 0, 2)), numpy.zeros((2, 3), "uint8"), numpy.arange(6.0),
    numpy.arange(6, dtype=">i4"), numpy.array(["a", "bcd"]), numpy.array([b"a"]), numpy.array([1, "two", None], dtype=object),
    numpy.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]), numpy.zeros(3, "datetime64[ns]"), numpy.ones(4, "float16"),
    numpy.ones(3, "complex64"), numpy.array([True, False]),
    large(), large().reshape(500, 100).T, large().reshape(10, 50, 100).transpose(2, 0, 1), large()[::7], large()[::-1],
    numpy.broadcast_to(numpy.arange(3.0), (200, 3)), numpy.asfortranarray(numpy.ones((300, 400))),
    (large(), {"image": large(1), "mask": None}, [large(2)], 3.5),
    [numpy.arange(3), Pair(large(), numpy.ones(2))], numpy.ma.masked_array([1, 2, 3], [0, 1, 0]).data,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {repr(value)[:30]}")
def test_a_value_comes_as_it_was_sent(line, value):
    assert same(value, line.send(value))


def test_the_order_of_elements_in_memory_is_kept(line):
    array = numpy.arange(24000.0).reshape(20, 30, 40).transpose(2, 0, 1)
    assert line.send(array).strides == array.strides
    assert line.send(array[::2]).strides == array[::2].copy(order="K").strides


def test_what_is_deeper_than_our_own_format_goes_is_pickled(line):
    value = numpy.arange(3)
    for _ in range(200):
        value = [value]
    got = line.send(value)
    for _ in range(200):
        (got,) = got
    assert got.tolist() == [0, 1, 2]


def test_an_array_that_occurs_twice_is_one_array_again(line):
    array = large()
    one, (two, three), pair = line.send((array, [array, array.copy()], Pair(array, array)))
    assert one is two
    assert pair.left is pair.right is one
    assert three is not one


def test_a_subclass_of_arrays_stays_one(line):
    got = line.send(large().view(Masked))
    assert type(got) is Masked
    assert got.tobytes() == large().tobytes()


def test_arrays_are_views_that_keep_their_values_as_long_as_they_are_held(line):
    held = [line.send((large(number), number)) for number in range(5 * (WINDOW + LEASES))]
    for number, (array, label) in enumerate(held):
        assert label == number
        assert array.tobytes() == large(number).tobytes()
        assert not array.flags.owndata
        assert array.ctypes.data % 16 == 0
    part = held[1][0][100:200]
    del held, array
    gc.collect()
    for number in range(20):
        line.send(large(-number))
    assert part.tolist() == list(range(101, 201))


def test_views_may_be_written_to(line):
    got = line.send(large())
    got += 1
    assert line.send(large())[0] == 0
    assert got[0] == 1


def test_nobody_holds_more_memory_than_there_are_slots(line):
    sizes = set()
    for number in range(200):
        got = line.send(large(number))
        if number > 20:
            sizes.add(shared_memory())
    del got
    assert len(sizes) == 1


def shared_memory():
    """Bytes of all pools that this process has in memory."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if "pedl-pool" in os.readlink("/proc/self/fd/" + name):
                total += os.stat("/proc/self/fd/" + name).st_blocks * 512
        except OSError:
            pass
    return total


def test_a_forked_child_changes_nothing(line):
    assert line.pool.publish(0, 3, 0, 5)
    held = line.pool
    child = os.fork()
    if child == 0:
        os._exit(0 if held.withdraw(0) and not held.is_under_way(0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert held.is_under_way(0)
    assert line.worker.claim() == (3, 0, 5)
    line.worker.finish("built")
    assert held.take(0, None) == "built"
    assert not held.is_under_way(0)


def test_what_cannot_be_sent_is_an_error_and_something_else_can_be_sent(line):
    assert line.pool.publish(0, 0, 0, 0)
    line.worker.claim()
    with pytest.raises((TypeError, AttributeError)):
        line.worker.finish((large(), sys._getframe()))
    line.worker.finish("something else")
    assert line.pool.take(0, None) == "something else"
