"""Changes to a data set in the process that trains reach its worker processes, or are detected as not sendable."""

import datetime
import functools
import io
import tempfile
import threading

import pytest

from py_hooks import places
from py_hooks.random_numbers import owned_generators
from py_hooks.workers.transfer import sendable
from py_hooks.workers.transfer.dataset_state import DatasetState, Update

numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")

pytestmark = pytest.mark.stack("keras")

SCALE = 1


class Part:
    """An object of the script."""

    def __init__(self):
        self.level = 1


class Slotted:
    """Has no dictionary."""

    __slots__ = ("level",)

    def __init__(self):
        self.level = 1


class Dataset:
    """Holds one of everything, and reads a global."""

    width = 3

    def __init__(self):
        self.order = numpy.arange(100)
        self.names = [f"file-{number}" for number in range(1000)]
        self.mixed = [numpy.zeros(3), {"a": [1, 2]}, ("x", 2.5)]
        self.part = Part()
        self.slotted = Slotted()
        self.rng = numpy.random.RandomState(1)
        self.lock = threading.Lock()
        self.augment = functools.partial(scaled, factor=2)
        self.me = self
        self.epoch = 0

    def __getitem__(self, index):
        return scaled(self.order[index], self.width)


def scaled(value, factor):
    """A function that a method uses."""
    return value * factor * SCALE


def bump(dataset):
    """Counts an epoch."""
    dataset.epoch += 1


SENT = {
    "a number": bump,
    "an array in place": lambda dataset: dataset.order.__setitem__(5, 7),
    "an array anew": lambda dataset: setattr(dataset, "order", dataset.order[::-1].copy()),
    "a text in a list": lambda dataset: dataset.names.__setitem__(999, "other"),
    "an array in a list": lambda dataset: dataset.mixed[0].__setitem__(0, 1),
    "a list in a dict in a list": lambda dataset: dataset.mixed[1]["a"].append(3),
    "an attribute of an object": lambda dataset: setattr(dataset.part, "level", 2),
    "a slot of an object": lambda dataset: setattr(dataset.slotted, "level", 2),
    "a new attribute": lambda dataset: setattr(dataset, "more", 1),
    "one attribute less": lambda dataset: delattr(dataset, "epoch"),
    "one argument bound": lambda dataset: dataset.augment.keywords.update(factor=3),
    "minus one for minus two": lambda dataset: setattr(dataset, "names", [-2]),
}


@pytest.fixture(autouse=True)
def script(monkeypatch):
    """Makes this file count as the script."""
    monkeypatch.setattr(places, "is_user_file", lambda filename: filename == __file__)


@pytest.fixture
def update():
    with tempfile.TemporaryFile(buffering=0) as file:
        yield Update(file)


@pytest.mark.parametrize("change", SENT.values(), ids=SENT.keys())
def test_attributes_that_change_are_sent(update, change):
    ours, workers = Dataset(), Dataset()
    if change is SENT["minus one for minus two"]:
        ours.names = workers.names = [-1]
    state = DatasetState(ours)
    for step in (change, bump_again):
        step(ours)
        assert update.write(state.changes())
        assert update.read(workers, update.number)
        assert not update.read(workers, update.number)
        assert vars(ours).keys() == vars(workers).keys()
        assert workers.me is workers
        for name in vars(ours):
            if name not in ("lock", "rng", "me"):
                assert text_of(vars(workers)[name]) == text_of(vars(ours)[name]), name


def bump_again(dataset):
    """A second change."""
    dataset.epoch = getattr(dataset, "epoch", 5) + 1


def text_of(value):
    """The contents of such an attribute, to compare."""
    if isinstance(value, functools.partial):
        return value.func, value.keywords
    if isinstance(value, (Part, Slotted)):
        return value.level
    return repr(value)


def test_an_array_that_is_not_contiguous_is_not_sent():
    dataset = Dataset()
    state = DatasetState(dataset)
    dataset.order = dataset.order[::-1]
    assert state.changes() is None


def test_nothing_is_sent_where_nothing_changes(update):
    dataset = Dataset()
    state = DatasetState(dataset)
    for _ in range(3):
        # Generators have a separate state for each item.
        dataset.rng.rand()
        assert update.write(state.changes())
    assert update.number == 0


def test_a_worker_that_was_started_later_may_be_told_again(update):
    ours = Dataset()
    state = DatasetState(ours)
    bump(ours)
    update.write(state.changes())
    late = Dataset()
    bump(late)
    update.read(late, update.number)
    assert late.epoch == ours.epoch == 1


AROUND = {
    "a global": lambda monkeypatch, dataset: monkeypatch.setitem(globals(), "SCALE", 2),
    "an attribute of the class": lambda monkeypatch, dataset: monkeypatch.setattr(Dataset, "width", 4),
    "a method": lambda monkeypatch, dataset: monkeypatch.setattr(Dataset, "__getitem__", lambda self, index: index),
    "what has no pickle": lambda monkeypatch, dataset: setattr(dataset, "augment", lambda value: value),
    "another lock": lambda monkeypatch, dataset: setattr(dataset, "lock", threading.Lock()),
    "more than is copied": lambda monkeypatch, dataset: setattr(dataset, "order", numpy.zeros(9 << 20)),
}


@pytest.mark.parametrize("change", AROUND.values(), ids=AROUND.keys())
def test_workers_are_made_anew_for_what_cannot_be_sent(monkeypatch, change):
    dataset = Dataset()
    state = DatasetState(dataset)
    change(monkeypatch, dataset)
    assert state.changes() is None


def test_workers_are_made_anew_where_a_data_set_cannot_be_looked_into():
    assert DatasetState([1, 2, 3]).changes() is None
    many = Dataset()
    many.parts = [Part() for _ in range(60000)]
    assert DatasetState(many).changes() is None


class Augment:
    """Shares a generator, and more."""

    def __init__(self, rng=None, part=None):
        self.rng, self.part, self.by = rng, part, 1.0

    def __call__(self, value):
        return value + self.by


class WithoutCache(Part):
    """Chooses itself what a copy of it contains."""

    def __getstate__(self):
        return {"level": self.level}

    def __setstate__(self, state):
        self.__dict__.update(state)


class Base:
    """Has a slot."""

    __slots__ = ("level",)


class Derived(Base):
    """Has attributes as well."""


SHARED = {
    "a generator": (lambda dataset: Augment(rng=numpy.random.RandomState(1)), "by"),
    "a generator that another attribute is": (lambda dataset: Augment(rng=dataset.rng), "by"),
    "an object that another attribute is": (lambda dataset: Augment(part=dataset.part), "by"),
    "an array that another attribute is": (lambda dataset: Augment(part=dataset.order), "by"),
    "a part of another array": (lambda dataset: Augment(part=dataset.order[2:4]), "by"),
    "an object that pickles itself": (lambda dataset: WithoutCache(), "level"),
}


@pytest.mark.parametrize(("make", "name"), SHARED.values(), ids=SHARED.keys())
def test_an_update_would_be_more_than_its_copy(make, name):
    dataset = Dataset()
    dataset.held = make(dataset)
    state = DatasetState(dataset)
    setattr(dataset.held, name, 0.5)
    assert state.changes() is None


def test_an_update_of_what_is_not_shared_is_sent(update):
    dataset, worker = Dataset(), Dataset()
    dataset.held = Augment(part=Part())
    state = DatasetState(dataset)
    dataset.held.by = 0.5
    assert update.write(state.changes())
    update.read(worker, update.number)
    assert worker.held.by == 0.5


def test_classes_that_were_never_compared_are_not_sent(monkeypatch):
    monkeypatch.setattr(places, "is_user_file", lambda filename: filename == __file__)
    dataset = Augment()
    _, pickler = sendable.pickled(dataset)
    state = DatasetState(dataset, functools.partial(sendable.SendingPickler, known=pickler.globals))
    dataset.by = 2.0
    assert state.changes() is not None
    dataset.part = Part()
    assert state.changes() is None


SCALARS = ["int64(-1)", "int64(1 << 40)", "str_('cat')", "bytes_(b'x')", "float32(0.5)", "bool_(True)", "datetime64('2020')"]


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_of_numpy_are_looked_at(text):
    dataset = Dataset()
    dataset.scalar = eval(f"numpy.{text}")
    state = DatasetState(dataset)
    assert state.differences() == []
    dataset.scalar = numpy.int64(-2)
    assert state.differences() == ["scalar"]
    dataset.scalar = numpy.zeros(1, [("name", "O"), ("size", "i4")])[0]
    assert DatasetState(dataset).changes() is not None


def test_differences_of_what_is_large_are_told():
    dataset = Dataset()
    dataset.samples = [(f"file-{number}", number) for number in range(100000)]
    state = DatasetState(dataset)
    assert state.differences() == []
    dataset.epoch = 1
    assert state.differences() == ["epoch"]
    dataset.samples[99999] = ("other", 1)
    assert state.differences() == ["epoch", "samples"]
    dataset.samples = [Part() for _ in range(60000)]
    untold = DatasetState(dataset)
    assert untold.differences() == ["samples"]
    assert untold.untold == {"samples"}


def test_differences_in_a_mask_and_in_the_slot_of_a_base_class_are_told():
    dataset = Derived()
    dataset.level = 1
    dataset.masked = numpy.ma.array([1.0, 2.0, 3.0], mask=[0, 0, 0])
    state = DatasetState(dataset)
    dataset.masked[1] = numpy.ma.masked
    assert state.differences() == ["masked"]
    dataset.level = 2
    assert state.differences() == ["level", "masked"]
    assert state.changes() is None


def test_a_container_shows_what_it_holds():
    rows = type("Rows", (list,), {})([1, 2])
    state = DatasetState(rows)
    assert state.differences() == []
    rows.append(3)
    assert state.differences() == [""]


class OddPart:
    """Raises for every attribute."""

    def __getattr__(self, name):
        raise RuntimeError("not connected")


def test_what_raises_when_it_is_asked_ends_nothing():
    dataset = Dataset()
    dataset.odd = OddPart()
    state = DatasetState(dataset)
    assert "odd" not in state.differences()
    owned_generators.find(dataset)


def scalars():
    """Scalars of numpy, by name."""
    record = numpy.dtype([("a", "i4"), ("b", "f8")])
    held = numpy.dtype([("a", "O")])
    return {
        "int64": [numpy.int64(-1), numpy.int64(1 << 62), numpy.int64(7)],
        "float32": [numpy.float32(0.5), numpy.float32(-0.0), numpy.float32(0.0)],
        "str": list(numpy.unique(["cat", "dog"])),
        "bytes": list(numpy.unique([b"cat", b"dog"])),
        "bool": [numpy.bool_(True), numpy.bool_(False)],
        "time": [numpy.datetime64("2026-01-01"), numpy.datetime64("2026-01-02")],
        "record": [numpy.array([(1, 2.0)], record)[0], numpy.array([(1, 3.0)], record)[0]],
        "held": [numpy.array([("x",)], held)[0], numpy.array([("y",)], held)[0]],
        "kinds": [numpy.int8(1), numpy.uint8(1), bytearray(b"1")],
    }


@pytest.mark.parametrize("name", ["int64", "float32", "str", "bytes", "bool", "time", "record", "held", "kinds"])
def test_scalars_of_numpy_are_told_apart(name):
    dataset = Dataset()
    for number, value in enumerate(scalars()[name]):
        if number:
            state = DatasetState(dataset)
        dataset.label = value
        if number:
            assert state.differences() == ["label"]


class Strong:
    """Reads a global that the data set's class does not."""

    def __call__(self, value):
        return value * STRENGTH


STRENGTH = 1.0


class Holder:
    """A data set whose code names no attribute."""

    def __init__(self, **held):
        self.__dict__.update(held)

    def __getitem__(self, index):
        return index


def test_workers_are_made_anew_where_what_an_attribute_uses_changes(monkeypatch):
    dataset = Holder(augment=Strong(), epoch=0)
    state = DatasetState(dataset)
    dataset.epoch = 1
    assert state.changes() is not None
    monkeypatch.setitem(globals(), "STRENGTH", 2.0)
    assert state.changes() is None, "the global would stay behind"


def test_an_object_with_code_that_is_new_is_not_sent():
    dataset = Holder(augment=None)
    state = DatasetState(dataset)
    dataset.augment = Strong()
    assert state.changes() is None, "what its class reads may have changed since the workers started"


def test_what_two_attributes_share_counts():
    rng = numpy.random.RandomState(1)
    dataset = Holder(rng=rng, part=Holder(rng=rng), epoch=0)
    state = DatasetState(dataset)
    # Afterwards there are two generators, the second of which has another number.
    dataset.rng = numpy.random.RandomState(2)
    dataset.epoch = 1
    assert state.changes() is None
    state = DatasetState(dataset)
    dataset.part.rng = dataset.rng
    assert state.changes() is None
    dataset = Holder(first=[1, [2]], second=[1, [2]])
    state = DatasetState(dataset)
    dataset.second = dataset.first
    assert state.changes() is None


def test_what_a_python_generator_holds_is_not_sent():
    buffer = numpy.zeros(3)
    dataset = Holder(buffer=buffer, batches=(value for value in [buffer]), epoch=0)
    state = DatasetState(dataset)
    dataset.epoch = 1
    assert state.changes() is not None
    dataset.buffer[0] = 1
    assert state.changes() is None


class Unbound:
    """A proxy for an object that does not exist."""

    @property
    def __class__(self):
        raise RuntimeError("unbound")


def test_what_stands_for_nothing_ends_nothing():
    dataset = Holder(proxy=Unbound(), rng=numpy.random.RandomState(1))
    assert DatasetState(dataset).changes() is None
    assert len(owned_generators.find(dataset)) == 1


class Rate(float):
    """A number with an attribute."""


class Day(datetime.date):
    """Has attributes, like the dates of some libraries."""


@pytest.mark.parametrize(
    ("before", "after"),
    [(Rate(1), Rate(2)), (Day(2020, 1, 1), Day(2020, 1, 2)), (io.BytesIO(b"a"), io.BytesIO(b"b"))],
    ids=["number", "date", "buffer"],
)
def test_what_an_object_is_by_itself_counts_as_much_as_its_attributes(before, after):
    dataset = Dataset()
    dataset.it = before
    state = DatasetState(dataset)
    assert state.differences() == []
    dataset.it = after
    assert "it" in state.differences()
    dataset.it = Rate(1)
    dataset.it.unit = "day"
    state = DatasetState(dataset)
    dataset.it = Rate(2)
    dataset.it.unit = "day"
    assert state.differences() == ["it"]
