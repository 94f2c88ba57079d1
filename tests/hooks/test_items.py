"""Passes over the items of a data set end with their epoch, even if a framework's thread continues to ask for items."""

import threading
import types

import pytest

from py_hooks.datasets.item_passes import SequencePass
from py_hooks.datasets.items import Items
from py_hooks.recording import recorder

pytestmark = pytest.mark.stack("keras")


class Dataset:
    """Builds an item when the test allows it, and counts epochs as image iterators count batches."""

    def __init__(self):
        self.total_batches_seen = 0
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.built = []

    def __len__(self):
        return 6

    def __getitem__(self, index):
        before = self.total_batches_seen
        self.begun.release()
        assert self.let.acquire(timeout=30)
        self.built.append((index, before, self.total_batches_seen))
        return index


@pytest.fixture
def causes(monkeypatch, native):
    """The causes why a training is not exact; `CALLS` is that of a live training."""
    found = []
    calls = types.SimpleNamespace(
        trial=types.SimpleNamespace(
            exact=False, waited=lambda seconds, workers: None, thread_tasks=native.Trial.thread_tasks
        ),
        skips_data=False,
        exactness=types.SimpleNamespace(refuse=found.append, looked=lambda: None),
        position=lambda: 0,
        depth=0,
        recordable=lambda: True,
        streams=types.SimpleNamespace(drawn_elsewhere=0),
    )
    monkeypatch.setattr(recorder, "CALLS", calls)
    return found


@pytest.fixture(params=[0, 2])
def items(request, monkeypatch, causes):
    """Items that are built by the thread that asks, or by two workers."""
    monkeypatch.setattr("py_hooks.datasets.items.PrivateStream", _NoStream)
    return Items(Dataset(), (1,), workers=request.param, probes=False)


class _NoStream:
    def __init__(self, *key):
        self.key = key

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass


def test_what_a_thread_still_builds_is_done_before_an_epoch_ends(items, causes):
    dataset, taken = items.dataset, []
    items_pass = SequencePass(items, 0, range(6), ahead=2)
    asking = threading.Thread(target=lambda: taken.extend(items_pass), daemon=True)
    asking.start()
    dataset.let.release()
    for _ in range(2):
        assert dataset.begun.acquire(timeout=30)
    ending = threading.Thread(target=items.end_epoch, args=(6,), daemon=True)
    ending.start()
    ending.join(0.2)
    assert ending.is_alive()
    for _ in range(3):
        dataset.let.release()
    ending.join(30)
    asking.join(30)
    assert not ending.is_alive()
    assert not asking.is_alive()
    assert dataset.total_batches_seen == 6
    assert all(before == after == 0 for _, before, after in dataset.built)
    assert len(taken) < 6
    assert causes == []


def test_a_pass_that_goes_on_builds_what_was_ahead_anew(items, causes):
    dataset = items.dataset
    for _ in range(20):
        dataset.let.release()
    items_pass = SequencePass(items, 0, range(6), ahead=3)
    first = [next(items_pass) for _ in range(2)]
    items.end_epoch(2, goes_on=True)
    built_before = len(dataset.built)
    assert first + list(items_pass) == [0, 1, 2, 3, 4, 5]
    # Items that were taken after the end of the epoch were built after it.
    assert {index for index, _, after in dataset.built[built_before:] if after == 2} == {2, 3, 4, 5}
    assert causes == []


def test_a_pass_that_has_not_begun_stays_for_the_next_epoch(items, causes):
    for _ in range(20):
        items.dataset.let.release()
    items_pass = SequencePass(items, 0, range(6), ahead=2)
    items.end_epoch(6)
    assert list(items_pass) == [0, 1, 2, 3, 4, 5]
    assert causes == []


def test_what_a_dropped_pass_still_builds_is_done_before_an_epoch_ends(monkeypatch, causes):
    monkeypatch.setattr("py_hooks.datasets.items.PrivateStream", _NoStream)
    dataset = Dataset()
    items = Items(dataset, (1,), workers=2, probes=False)
    items_pass = SequencePass(items, 0, range(6), ahead=2)
    for _ in range(2):
        dataset.let.release()
    assert next(items_pass) == 0
    for _ in range(2):
        assert dataset.begun.acquire(timeout=30)
    while len(dataset.built) < 2:
        # Item 1 must be first, because item 2 could take its permission.
        assert threading.active_count() > 1
    assert next(items_pass) == 1
    assert dataset.begun.acquire(timeout=30)
    # Keras 3 drops the pass that built the model, and reports the end of an epoch.
    del items_pass
    ending = threading.Thread(target=items.end_epoch, args=(2,), daemon=True)
    ending.start()
    ending.join(0.2)
    assert ending.is_alive(), "item 2 is being built"
    dataset.let.release()
    ending.join(30)
    assert dataset.built[-1] == (2, 0, 0)
    assert dataset.total_batches_seen == 2
    assert causes == []


class Counting:
    """Its items depend on more than their index, like those of image iterators."""

    def __init__(self):
        self.count = 0
        self.built = []

    def __getitem__(self, index):
        self.count += 1
        self.built.append(index)
        return index


@pytest.mark.parametrize("taken", range(1, 9))
def test_a_replay_builds_as_many_ahead_as_were(monkeypatch, causes, taken):
    monkeypatch.setattr("py_hooks.datasets.items.PrivateStream", _NoStream)
    built = []
    for replaying in (False, True):
        monkeypatch.setattr(recorder.CALLS, "skips_data", replaying)
        items = Items(Counting(), (1,), workers=1, probes=False)
        items_pass = SequencePass(items, 0, range(20), ahead=4)
        for _ in range(taken):
            items_pass.skip() if replaying else next(items_pass)
        # The item at which training continues is asked for.
        monkeypatch.setattr(recorder.CALLS, "skips_data", False)
        next(items_pass)
        items_pass.close()
        built.append(items.dataset.built)
    assert built[0] == built[1] == list(range(taken + 4))
    assert causes == []


class Exhausted:
    """Its items come from an iterator that is exhausted."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return next(iter(()))


def test_an_iterator_that_ends_within_an_item_does_not_end_the_epoch(causes):
    items = Items(Exhausted(), (1,))
    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        items.build(0, 0)
