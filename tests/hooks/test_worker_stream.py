"""The random numbers that items draw in a worker process come from their keys, in whatever way they draw."""

import multiprocessing
import types

import pytest

from py_hooks.datasets.items import _PROBE, Items
from py_hooks.random_numbers.random_streams import mix
from py_hooks.random_numbers.worker_streams import WorkerStream
from py_hooks.recording import recorder

numpy = pytest.importorskip("numpy")

KEY = (1, 2)


class Draws:
    """Item `index` is what `draw(index)` draws; `builds` has the items that were built."""

    def __init__(self, draw):
        self.draw = draw
        self.builds = []

    def __getitem__(self, index):
        self.builds.append(index)
        return self.draw(index)


def past_the_dispatchers(index):
    """Draws like scipy and scikit-learn; only some items."""
    return numpy.random.mtrand._rand.random_sample(2).tolist() if index in (3, 5) else None


def words_of_one_turn(index):
    """Draws as many as the generator makes at once, so that its position is the same as before."""
    return numpy.random.mtrand._rand.random_sample(312).tolist() if index == 3 else None


def draws_and_fails(index):
    """The first item that draws fails because of it."""
    if index == 3:
        raise ValueError(numpy.random.mtrand._rand.random_sample())


def past_them_and_then_by_them(index):
    """The second draw hides the first if nobody checks in between."""
    from py_hooks.random_numbers import random_streams

    if index < 2:
        return None
    return [numpy.random.mtrand._rand.random_sample(), random_streams.THREAD.stream.numpy.random_sample()]


def one_gaussian(index):
    """Draws a gaussian. The generator makes two at a time, and keeps one."""
    return numpy.random.mtrand._rand.standard_normal() if index != 1 else None


def by_the_stream(_index):
    """Draws like the dispatchers, which use the stream of the thread."""
    from py_hooks.random_numbers import random_streams

    return random_streams.THREAD.stream.numpy.random_sample(2).tolist()


def one_more_each_time(index, log=[]):  # noqa: B006 - a worker remembers what it built
    """An item depends on those that the process built before."""
    log.append(index)
    return len(log)


def _work(draw, is_seen, epoch, indices, connection):
    numpy.random.mtrand._rand.seed(99)
    # The generator keeps a second gaussian.
    numpy.random.mtrand._rand.standard_normal()
    if not is_seen:
        WorkerStream._is_known = True
    recorder.CALLS = types.SimpleNamespace(streams=types.SimpleNamespace(drawn_elsewhere=0))
    items = Items.__new__(Items)
    items.key, items.dataset = ("items",) + KEY, Draws(draw)
    items._rank, items._ranks = 0, 1
    items._stream_of_worker = items._met = None
    items.forget_dataset()
    built = []
    for index in indices:
        try:
            built.append(items.build_in_worker(epoch, index)[0])
        except (ValueError, RuntimeError) as error:
            built.append(error.args)
    connection.send((built, items.dataset.builds))


def built_by_a_worker(draw, indices, is_seen=True, epoch=0):
    """The items, and the indices of those that were built, in their order.

    Args:
        draw: makes an item of its index.
        indices: of the items, in the order in which they are asked for.
        is_seen: whether the place of the global generator is known.
        epoch: of the items.
    """
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=_work, args=(draw, is_seen, epoch, indices, there))
    worker.start()
    there.close()
    answer = here.recv()
    worker.join()
    return answer


def generator_of(index):
    """A generator that draws the same as the item's stream."""
    return numpy.random.RandomState(mix("numpy", "items", *KEY, 0, index) % (1 << 32))


@pytest.mark.stack("keras")
@pytest.mark.parametrize("is_seen", [True, False])
def test_what_goes_past_the_dispatchers_draws_from_the_key(is_seen):
    built, builds = built_by_a_worker(past_the_dispatchers, range(7), is_seen)
    expected = [generator_of(index).random_sample(2).tolist() if index in (3, 5) else None for index in range(7)]
    assert built == expected
    # Once it is known that items draw in this way, none is built twice.
    assert builds == ([0, 1, 2, 3, 3, 4, 5, 6] if is_seen else list(range(7)))


@pytest.mark.stack("keras")
def test_an_item_that_draws_a_whole_turn_is_noticed():
    built, builds = built_by_a_worker(words_of_one_turn, [1, 3])
    assert built == [None, generator_of(3).random_sample(312).tolist()]
    assert builds == [1, 3, 3]


@pytest.mark.stack("keras")
def test_an_item_that_draws_and_fails_is_built_again():
    built, builds = built_by_a_worker(draws_and_fails, [1, 3, 4])
    assert built == [None, (generator_of(3).random_sample(),), None]
    assert builds == [1, 3, 3, 4]


@pytest.mark.stack("keras")
def test_an_iterator_that_ends_within_an_item_does_not_end_the_epoch():
    built, _ = built_by_a_worker(lambda index: next(iter(())), range(1))
    assert built == [("generator raised StopIteration",)]


@pytest.mark.stack("keras")
def test_what_goes_past_the_dispatchers_first_is_not_hidden_by_them():
    built, builds = built_by_a_worker(past_them_and_then_by_them, range(5))
    assert built == [None, None] + [generator_of(index).random_sample(2).tolist() for index in (2, 3, 4)]
    assert builds == [0, 1, 2, 2, 3, 4]


@pytest.mark.stack("keras")
@pytest.mark.parametrize("first", [0, 1])
def test_a_gaussian_that_was_kept_is_nobodys(first):
    built, _ = built_by_a_worker(one_gaussian, range(first, 5))
    assert built == [generator_of(index).standard_normal() if index != 1 else None for index in range(first, 5)]


@pytest.mark.stack("keras")
def test_a_data_set_that_draws_from_its_first_item_on_builds_none_twice():
    built, builds = built_by_a_worker(one_gaussian, [0, 2, 3])
    assert built == [generator_of(index).standard_normal() for index in (0, 2, 3)]
    assert builds == [0, 2, 3]


@pytest.mark.stack("keras")
def test_what_the_dispatchers_draw_needs_no_second_time():
    built, builds = built_by_a_worker(by_the_stream, range(3))
    assert built == [generator_of(index).random_sample(2).tolist() for index in range(3)]
    assert builds == [0, 1, 2]


def of_torch(index):
    """Draws from torch's global generator."""
    import torch

    return torch.rand(2).tolist() if index != 1 else None


@pytest.mark.stack("keras3-torch")
def test_what_torch_draws_is_of_the_items_key():
    import torch

    built, _ = built_by_a_worker(of_torch, [3, 1, 0])
    again, _ = built_by_a_worker(of_torch, [1, 0, 3])
    assert built == [again[2], again[0], again[1]]
    assert built[0] != built[2]
    assert torch.rand(2).tolist() not in built


@pytest.mark.stack("keras")
@pytest.mark.parametrize(("draw", "different"), [(by_the_stream, 1), (one_gaussian, 1), (one_more_each_time, 2)])
def test_the_worker_that_probes_an_item_builds_it_twice_itself(draw, different):
    (texts,), builds = built_by_a_worker(draw, [0], epoch=_PROBE)
    assert builds == [0, 1, 0]
    assert len(texts) == 2
    assert len(set(texts)) == different
