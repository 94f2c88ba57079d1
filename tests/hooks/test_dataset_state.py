"""What happens to a data set in the process that trains reaches its worker processes, or is seen not to."""

import functools
import tempfile
import threading

import pytest

from py_hooks.advice import places
from py_hooks.advice.dataset_state import DatasetState, Update

numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")

pytestmark = pytest.mark.stack("keras")

SCALE = 1


class Part:
    """An object of the script's own."""

    def __init__(self):
        self.level = 1


class Slotted:
    """Without a dictionary."""

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
    """What a method uses."""
    return value * factor * SCALE


def bump(dataset):
    """Counts an epoch."""
    dataset.epoch += 1


SENT = {
    "a number": bump,
    "an array in place": lambda dataset: dataset.order.__setitem__(5, 7),
    "an array anew": lambda dataset: setattr(dataset, "order", dataset.order[::-1]),
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
    """This file is the script."""
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
    """Everything that these attributes are."""
    if isinstance(value, functools.partial):
        return value.func, value.keywords
    if isinstance(value, (Part, Slotted)):
        return value.level
    return repr(value)


def test_nothing_is_sent_where_nothing_changes(update):
    dataset = Dataset()
    state = DatasetState(dataset)
    for _ in range(3):
        # Generators have states of their own for each item.
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
