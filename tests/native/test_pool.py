"""Batches through the shared memory of a pool: the trainer receives what a worker sends (issue 6).

Worker and trainer are one process here. Worker processes are tested in tests/data/test_worker_processes.py.
"""

import collections
import contextlib
import gc
import os
import random
import struct
import sys
import threading

import pytest
import support

from py_hooks.workers import worker_processes

numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")

WINDOW, LEASES = 4, 3

Pair = collections.namedtuple("Pair", "left right")


class Masked(numpy.ndarray):
    """An array class of the script."""


class Line:
    """A pool and one worker of it."""

    def __init__(self, native):
        self.pool = native.Trial.pool(WINDOW, LEASES, 1, worker_processes.dumps, worker_processes.loads)
        self.worker = self.pool.worker(0, os.getppid())
        self.task = 0

    def send(self, value):
        """Sends a value; returns what is received."""
        return self.build(lambda: value)

    def build(self, make):
        """Sends the result of `make`; returns what is received."""
        assert self.pool.publish(3, [self.task], 5) == (self.task, self.task + 1)
        assert self.worker.claim() == (3, self.task, 5)
        self.worker.begin()
        self.worker.write(make())
        self.worker.finish()
        self.task += 1
        return self.pool.take(self.task - 1, None)


@pytest.fixture
def line(native):
    return Line(native)


def large(first=0):
    return numpy.arange(first, first + 50000, dtype="float64")


def same(left, right):
    """Checks that values have the same type, and the same properties of arrays."""
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
        # As many as may be kept are views; the others were copied.
        assert array.flags.owndata == (number >= LEASES - 1)
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


def pools():
    """Descriptors of all pools that this process has in memory."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "pedl-pool" in os.readlink("/proc/self/fd/" + name):
                found.add(int(name))
    return found


def shared_memory():
    """Bytes of all pools that this process has in memory."""
    return sum(os.fstat(descriptor).st_blocks * 512 for descriptor in pools())


def test_a_forked_child_changes_nothing(line):
    assert line.pool.publish(3, [0], 5) == (0, 1)
    held = line.pool
    child = os.fork()
    if child == 0:
        os._exit(0 if held.withdraw(0) and not held.is_under_way(0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert held.is_under_way(0)
    assert line.worker.claim() == (3, 0, 5)
    line.worker.write("built")
    line.worker.finish()
    assert held.take(0, None) == "built"
    assert not held.is_under_way(0)


def test_what_cannot_be_sent_is_an_error_and_something_else_can_be_sent(line):
    assert line.pool.publish(0, [0], 0) == (0, 1)
    line.worker.claim()
    with pytest.raises((TypeError, AttributeError)):
        line.worker.write((large(), sys._getframe()))
    line.worker.write("something else")
    line.worker.finish()
    assert line.pool.take(0, None) == "something else"


# -- a pass that continues by itself -----------------------------------------------------------------------------------


ODD_NUMBERS = [0, 1, 2, 7, 255, 1 << 20, 1 << 40, (1 << 63) - 1, (1 << 64) - 8, (1 << 64) - 1]


class Scribbled(Line):
    """A line whose messages are changed before they are read. No pickle is loaded, because it could run any code."""

    def __init__(self, native, seed):
        before = pools()
        self.pool = native.Trial.pool(WINDOW, LEASES, 1, worker_processes.dumps, lambda pickle, arrays: arrays)
        (self.memory,) = pools() - before
        self.worker = self.pool.worker(0, os.getppid())
        self.task = 0
        self.draw = random.Random(seed).randrange

    def scribble(self):
        """Changes some bytes of each slot's message: a word of its header, or its structure."""
        for slot in range(1, WINDOW + LEASES + 1):
            begin = slot << 40
            at, length, _ = struct.unpack("<3Q", os.pread(self.memory, 24, begin).ljust(24, b"\0"))
            for _ in range(1 + self.draw(4) if length else 0):
                place = begin + (8 * self.draw(3) if self.draw(10) == 0 else at + self.draw(length))
                changed = bytes([self.draw(15) if self.draw(2) else self.draw(256)])
                if self.draw(3) == 0:
                    changed = ODD_NUMBERS[self.draw(len(ODD_NUMBERS))].to_bytes(8, "little")
                os.pwrite(self.memory, changed, place)


def nested(depth):
    value = numpy.arange(2)
    for _ in range(depth):
        value = [value]
    return value


# How many messages of each kind are changed; `POOL_MESSAGES_SEED` selects other changes.
SCRIBBLES = int(os.environ.get("POOL_MESSAGES", "400"))
SEED = int(os.environ.get("POOL_MESSAGES_SEED", "0"))
SCRIBBLED = [
    [None, True, 7, 0.5, "text", b"bytes", (1, [2]), {"a": 1, (2,): [3]}],
    (numpy.zeros((4, 3), "float32"), {"y": numpy.arange(6).reshape(2, 3).T, "again": numpy.float32(2)}, ["x"] * 3),
    [numpy.arange(20000, dtype="int64"), numpy.zeros((0, 5)), "end"],
    [numpy.zeros(3, [("a", "i4"), ("b", "f8")]), numpy.array(["2026-01-01"], "M8[D]"), 1 << 80],
    nested(49),
]


@pytest.mark.parametrize("number", range(len(SCRIBBLED)))
def test_whatever_a_message_holds_is_a_value_or_an_error(native, number):
    line = Scribbled(native, 10 * SEED + number)
    errors = 0
    for _ in range(SCRIBBLES):
        assert line.pool.publish(3, [line.task], 5) == (line.task, line.task + 1)
        assert line.worker.claim() == (3, line.task, 5)
        line.worker.begin()
        line.worker.write(SCRIBBLED[number])
        line.worker.finish()
        line.scribble()
        line.task += 1
        try:
            repr(line.pool.take(line.task - 1, None))
        except Exception:  # noqa: BLE001 - also from numpy, for names that are not dtypes
            errors += 1
    assert 0 < errors < SCRIBBLES


def test_a_message_without_an_end_of_its_depth_is_an_error(native):
    line = Scribbled(native, 0)
    line.pool.publish(3, [0], 5)
    line.worker.claim()
    line.worker.begin()
    line.worker.write([b"." * 9 * 200000])
    line.worker.finish()
    for slot in range(1, WINDOW + LEASES + 1):
        at, length, _ = struct.unpack("<3Q", os.pread(line.memory, 24, slot << 40).ljust(24, b"\0"))
        # Each list holds one list.
        os.pwrite(line.memory, (b"\x07" + (1).to_bytes(8, "little")) * (length // 9), (slot << 40) + at)
    with pytest.raises(native.Error, match="sent something that is no batch"):
        line.pool.take(0, None)


class Pass:
    """Continues by itself, over a pool whose one worker is a thread, which builds the items that the test allows."""

    FEWEST, MOST = 2, 4

    def __init__(self, native, line, directory, count):
        self.pool = line.pool
        self.ahead = native.Trial(support.launch_message(directory)).ahead(1)
        self.building = collections.deque()
        self.asked, self.sent, self.built = 0, [], []
        self.items = self.ahead.items(self.ask, self.open)
        self.let = threading.Semaphore(0)
        self.begin(iter(range(count)))
        self.thread = threading.Thread(
            target=line.worker.serve, args=(lambda state: None, self.build, repr), daemon=True
        )
        self.thread.start()

    def begin(self, order):
        self.ahead.begin(self.pool, order, 3, 0, self.building, self.FEWEST, self.MOST, None)

    def ask(self):
        self.asked += 1
        raise StopIteration

    def open(self, sent):
        self.sent.append(sent)
        return sent[0]

    def build(self, epoch, index):
        assert self.let.acquire(timeout=30)
        self.built.append((epoch, index))
        if index == 5:
            raise ValueError("item 5")
        return index * 10, "counter" if index == 7 else None

    def allow(self, count):
        """Lets this many items be built."""
        for _ in range(count):
            self.let.release()

    def close(self):
        self.pool.close()
        self.allow(100)
        self.thread.join(30)


@pytest.fixture
def pass_of(native, line, tmp_path):
    """A function that begins a pass over this many items."""
    made = []

    def begin(count):
        made.append(Pass(native, line, tmp_path / "trial", count))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_a_pass_goes_on_without_being_asked(pass_of):
    items_pass = pass_of(12)
    items_pass.allow(12)
    assert list(items_pass.items) == [0, 10, 20, 30, 40, None, 60, 70, 80, 90, 100, 110]
    assert items_pass.asked == 1, "at its end"
    assert items_pass.built == [(3, index) for index in range(12)]
    assert items_pass.sent == [(None, None, "ValueError('item 5')" + "," * (sys.version_info < (3, 7))), (70, "counter", None)]


def test_no_more_are_under_way_than_may_be(pass_of):
    items_pass = pass_of(12)
    items_pass.allow(12)
    seen = []
    for _ in items_pass.items:
        seen.append(len(items_pass.building))
    # When at most two are left, two others are published before one is taken.
    assert seen == [3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 1, 0]


def test_who_waits_for_an_item_stops_when_the_pass_does(pass_of):
    items_pass = pass_of(12)
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(next(items_pass.items, "asked")))
    waiting.start()
    while not items_pass.building:
        pass
    items_pass.ahead.end()
    waiting.join(30)
    assert ended == ["asked"]
    assert len(items_pass.building) == 4, "nothing was taken"


def test_items_that_a_pass_has_no_place_for_are_not_lost(pass_of):
    items_pass = pass_of(2)
    items_pass.allow(2)
    items = items_pass.items
    assert [next(items), next(items)] == [0, 10]
    # Two of four places belong to tasks that nobody takes.
    assert items_pass.pool.publish(3, [8, 9], 0) == (2, 4)
    order = iter([1, 2, 3])
    items_pass.begin(order)
    items_pass.allow(4)
    assert [next(items), next(items)] == [10, 20]
    assert list(order) == [3], "there was no place for it"


def test_who_finds_another_thread_waiting_asks_the_pass(pass_of):
    items_pass = pass_of(40)
    taken = []

    def take():
        while len(taken) < 40:
            taken.extend(items_pass.items)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    items_pass.allow(40)
    for thread in threads:
        thread.join(30)
    assert sorted(item for item in taken if item is not None) == [index * 10 for index in range(40) if index != 5]


# -- building in place -------------------------------------------------------------------------------------------------

builds_in_place = pytest.mark.skipif(
    tuple(map(int, numpy.__version__.split(".")[:2])) < (1, 22),
    reason="numpy before 1.22 cannot be told where arrays have their memory",
)


def is_shared(array):
    """Whether an array has its memory in a pool."""
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if begin <= address < end:
                return "pedl-pool" in line
    return False


class Maker:
    """Builds an item from an array filled with its number, and notes whether that was built in the pool."""

    def __init__(self, build=lambda array: array, size=50000):
        self.size = size
        self._build = build
        self.number = 0
        self.shared = []

    def __call__(self):
        self.number += 1
        array = numpy.full(self.size, self.number, "float32")
        self.shared.append(is_shared(array))
        return self._build(array)


@builds_in_place
def test_items_that_are_built_alike_are_built_where_they_are_sent_from(line):
    make = Maker(lambda array: (array, [array[:10], "text"]))
    for number in range(1, 20):
        array, (part, text) = line.build(make)
        assert is_shared(array)
        assert (array == number).all()
        assert (part == number).all()
        assert text == "text"
        # Two arrays that are received share no memory, as if they were copied.
        part[:] = 0
        assert (array == number).all()
        del array, part
    assert make.shared == [False] + [True] * 18


@builds_in_place
def test_what_an_item_keeps_is_not_what_was_sent(line):
    kept = []
    make = Maker(lambda array: kept.append(array) or array)
    for number in range(1, 12):
        received = line.build(make)
        received[0] = -1
        assert (received[1:] == number).all()
        del received
    assert all((array == number + 1).all() for number, array in enumerate(kept))
    # The slot of the first array that was kept remains with it, and there is no other slot to build in.
    assert make.shared == [False, True] + [False] * 9


@builds_in_place
def test_what_was_kept_for_a_while_is_built_in_place_later_but_not_for_ever(line):
    kept = []
    make = Maker(lambda array: kept.append(array) or array)
    for _ in range(40):
        line.build(make)
        if len(kept) == 3:
            kept.clear()
    assert sum(make.shared) == 3


@builds_in_place
def test_only_what_is_delivered_lies_in_the_pool(line):
    sizes = []

    def build(array):
        between = [array * 2 for _ in range(20)]
        sizes.append([is_shared(one) for one in between])
        return between[7]

    make = Maker(build, size=1000000)
    for number in range(1, 6):
        assert (line.build(make) == 2 * number).all()
        gc.collect()
    assert sizes[1:] == [[number == 7 for number in range(20)]] * 4
    assert shared_memory() < 2 * (WINDOW + LEASES + 1) * 4 * make.size


@builds_in_place
def test_zeros_are_zeros_where_something_was_before(line):
    shared = []

    def build(make):
        array = make()
        shared.append(is_shared(array))
        return array

    makers = [lambda: numpy.full(50000, 7.0), lambda: numpy.zeros(50000)]
    for turn in range(20):
        array = line.build(lambda turn=turn: build(makers[turn % 2]))
        assert (array == (0 if turn % 2 else 7)).all()
        del array
    assert shared == [False] + [True] * 19


@builds_in_place
def test_arrays_may_change_their_size_while_they_are_built(line):
    def build(array):
        if make.number > 1:
            array.resize(2 * len(array), refcheck=False)
        return array

    make = Maker(build)
    line.build(make)
    for number in range(2, 6):
        array = line.build(make)
        assert (array[:50000] == number).all()
        assert not array[50000:].any()
    # An array that is resized moves out of the slot, and is not expected there again.
    assert make.shared == [False, True, False, False, False]


@builds_in_place
@pytest.mark.parametrize(
    ("sizes", "in_place"),
    # An array that is larger than all before has no room in a slot.
    [(range(10000, 400000, 30011), 0), (range(400000, 10000, -30011), 12), ([50000, 300000] * 6, 10)],
)
def test_items_of_different_sizes(line, sizes, in_place):
    make = Maker()
    for number, size in enumerate(sizes, 1):
        make.size = size
        array = line.build(make)
        assert array.shape == (size,)
        assert (array == number).all()
        del array
    assert sum(make.shared) == in_place


@builds_in_place
def test_the_order_of_elements_is_kept_in_place_too(line):
    orders = {"F": lambda array: array.reshape(500, 100).copy("F"), "gaps": lambda array: array[::2]}
    for order in orders.values():
        shared = []

        def build(array, order=order, shared=shared):
            array = order(array)
            shared.append(is_shared(array))
            return array

        make = Maker(build)
        for number in range(1, 5):
            expected = order(numpy.full(50000, number, "float32"))
            same(expected, line.build(make))
        # An array with gaps is not sent from its memory as it is.
        assert shared == [False] + [order is orders["F"]] * 3


@builds_in_place
def test_a_cached_array_is_sent_as_it_is(line):
    cache = {}

    def build(array):
        return cache.setdefault(0, array)

    make = Maker(build)
    for _ in range(6):
        assert (line.build(make) == 1).all()


@builds_in_place
def test_what_fails_while_it_is_built_in_place_leaves_the_pool_usable(line):
    make = Maker()
    for _ in range(4):
        # A failed item delivers nothing, so the next one is expected to deliver nothing either.
        for _ in range(2):
            assert (line.build(make) == make.number).all()
        assert line.pool.publish(3, [line.task], 5) == (line.task, line.task + 1)
        line.worker.claim()
        line.worker.begin()
        try:
            array = numpy.ones(50000, "float32")
            raise ValueError(array)
        except ValueError as error:
            line.worker.write(repr(error)[:10])
        line.worker.finish()
        del array
        assert line.pool.take(line.task, None) == "ValueError"
        line.task += 1
    # Each time the array outlived the value that was sent.
    assert make.shared == [False, True] * 3 + [False, False]
