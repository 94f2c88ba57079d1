"""Each stream follows only from the state of its generator."""

import importlib
import importlib.util
import random

import pytest

from py_hooks.random_numbers import owned_generators
from py_hooks.random_numbers.random_streams import OtherScheme, PrivateStream, Streams, seed_of

# Missing on some stacks, where this file is collected but none of its tests runs.
np = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None
pytestmark = pytest.mark.stack("keras")


def seed_python(number):
    random._inst.seed(number)


def seed_numpy(number):
    np.random.mtrand._rand.seed(number)


@pytest.fixture(autouse=True)
def put_back():
    """Restores the global generators."""
    states = random._inst.getstate(), np.random.mtrand._rand.get_state()
    yield
    random._inst.setstate(states[0])
    np.random.mtrand._rand.set_state(states[1])


def drawn(python, numpy, trial=5):
    """What an item draws from each generator, in a script that has seeded them with these numbers."""
    seed_python(python)
    seed_numpy(numpy)
    stream = PrivateStream("items", *Streams(trial).new_key(), 0, 3)
    return stream.python.random(), stream.numpy.random_sample(), stream.entropy.getrandbits(64)


def test_each_generators_stream_follows_from_its_own_state():
    python, numpy, entropy = drawn(1, 2)
    assert drawn(1, 2) == (python, numpy, entropy)
    other_python = drawn(9, 2)
    assert other_python[0] != python
    assert other_python[1:] == (numpy, entropy)
    other_numpy = drawn(1, 9)
    assert other_numpy[1] != numpy
    assert other_numpy[0::2] == (python, entropy)


def test_generators_without_a_seed_are_those_of_the_trial():
    assert drawn(1, 2, trial=5)[:2] == drawn(1, 2, trial=6)[:2]
    assert drawn(1, 2, trial=5)[2] != drawn(1, 2, trial=6)[2]


def test_a_stream_of_seeds_follows_from_the_generator_that_is_named():
    key = Streams(5).new_key()
    seed_numpy(77)
    assert seed_of("torch", key) == seed_of("torch", Streams(5).new_key())
    assert seed_of("torch", key) != seed_of("torch", Streams(6).new_key()), "torch is not imported, and seeded by the trial"


def _of_an_owned(make, seed_of_owned, number):
    generator = make(seed_of_owned)
    owned = owned_generators.Rooted([generator])
    generator.random()
    seed_numpy(number)
    with owned_generators.Keyed(owned_generators.Rooted([generator], owned), ("items", *Streams(number).new_key(), 0, 3)):
        return generator.random()


KINDS = {"Random": random.Random, "RandomState": np and np.random.RandomState}
if hasattr(getattr(np, "random", None), "Generator"):
    KINDS["Generator"] = np.random.default_rng
    KINDS["Generator of MT19937"] = lambda seed: np.random.Generator(np.random.MT19937(seed))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_generator_of_the_data_sets_own_follows_from_the_state_in_which_it_was_met(kind):
    """It does not depend on what it draws later outside of items, or on the trial."""
    make = KINDS[kind]
    if kind == "RandomState":
        make = _with_random(make)
    assert _of_an_owned(make, 1, 5) == _of_an_owned(make, 1, 6)
    assert _of_an_owned(make, 1, 5) != _of_an_owned(make, 2, 5)


def _with_random(make):
    def made(seed):
        generator = make(seed)
        if not hasattr(generator, "random"):
            pytest.skip("before numpy 1.17 it has no such method")
        return generator

    return made


@pytest.mark.stack("keras3-torch")
def test_torchs_stream_follows_from_torchs_generator():
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    before = seed_of("torch", Streams(5).new_key())
    seed_numpy(1)
    assert seed_of("torch", Streams(6).new_key()) == before
    torch.manual_seed(4)
    assert seed_of("torch", Streams(6).new_key()) != before


def test_a_checkpoint_of_other_streams_is_refused():
    streams = Streams(5)
    tensors, state = streams.capture()
    streams.restore(dict(tensors), state)
    del state["scheme"]
    # Nothing was drawn from any of them.
    streams.restore(dict(tensors), state)
    streams.new_key()
    with pytest.raises(OtherScheme):
        streams.restore(dict(tensors), state)
