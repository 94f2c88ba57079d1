"""The random generators that a data set can reach; they draw by key, and their states are restored."""
import functools
import importlib
import importlib.util
import random

import pytest

from py_hooks.random_numbers import owned_generators, watched_generators

# Missing on some stacks, where this file is collected but none of its tests runs.
np = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None
pytestmark = pytest.mark.stack("keras")


@pytest.fixture(autouse=True)
def this_is_the_users(monkeypatch):
    """Makes this file, which is among those of pedl, count as a script."""
    monkeypatch.setattr(owned_generators.places, "is_user_file", lambda filename: filename == __file__)


of_the_script = np and np.random.RandomState(1)


def augment(batch):
    """Uses a generator of the module, as functions of scripts do."""
    return batch + of_the_script.normal()


class Noise:
    """Holds a generator."""

    def __init__(self, generator):
        self.generator = generator


class Dataset:
    """Holds its arguments."""

    def __init__(self, **held):
        self.__dict__.update(held)

    def __getitem__(self, index):
        return index


class Augmented(Dataset):
    """Calls a function of the module."""

    def __getitem__(self, index):
        return augment(index)


def find(dataset, *expected):
    """Checks that the generators that are found are the expected ones in their order."""
    found = owned_generators.find(dataset)
    assert [id(one) for one in found] == [id(one) for one in expected]


GENERATORS = {
    "RandomState": lambda: np.random.RandomState(3),
    "Random": lambda: random.Random(3),
}
if hasattr(getattr(np, "random", None), "Generator"):
    GENERATORS["Generator"] = lambda: np.random.default_rng(3)


@pytest.fixture(params=sorted(GENERATORS))
def generator(request):
    """One of each kind."""
    return GENERATORS[request.param]()


def test_in_an_attribute(generator):
    find(Dataset(rng=generator), generator)


def test_in_an_object_of_the_scripts_in_a_list_in_a_dict(generator):
    find(Dataset(steps={"noise": [Noise(generator), Noise(generator)]}), generator)


def test_each_of_a_long_list():
    generators = [np.random.RandomState(number) for number in range(300)]
    assert owned_generators.find(Dataset(samples=["name"] * 1000, generators=generators)) == generators
    assert owned_generators.find(Dataset(noises=[Noise(one) for one in generators])) == generators


def test_in_a_closure_in_a_default_and_in_a_partial_function(generator):
    default = np.random.RandomState(5)

    def draw(default=default):
        return generator

    find(Dataset(draw=draw), generator, default)
    find(Dataset(draw=functools.partial(max, generator)), generator)


def test_in_a_bound_method(generator):
    find(Dataset(draw=Noise(generator).__init__), generator)


def test_in_the_module_through_a_function_that_is_called():
    find(Augmented(), of_the_script)
    find(Dataset())


def test_the_global_ones_are_not_its_own():
    find(Dataset(python=random._inst, numpy=np.random.mtrand._rand))


def test_what_holds_itself_ends():
    dataset = Dataset(rng=np.random.RandomState(1))
    dataset.itself = [dataset, {"again": dataset}]
    find(dataset, dataset.rng)


def draw(generator):
    """Some numbers."""
    return [generator.normal() if hasattr(generator, "normal") else generator.gauss(0, 1) for _ in range(3)]


def test_keyed_it_draws_by_its_seed_and_goes_on_where_it_was(generator):
    twin = type(generator)
    before = draw(generator)
    drawn = []
    for seed in (7, 8, 7):
        with owned_generators.Keyed(owned_generators.Rooted([generator]), (seed,)):
            drawn.append(draw(generator))
    assert drawn[0] == drawn[2] != drawn[1]
    after = draw(generator)
    undisturbed = next(make() for make in GENERATORS.values() if type(make()) is twin)
    assert before + after == draw(undisturbed) + draw(undisturbed)


def make(rows, index):
    """A function of a module, which builds items."""
    return index + rows.shift


class Builder:
    """Has the data set."""

    def __init__(self, owner):
        self.owner = owner

    def make(self, index):
        """The item."""
        return index + self.owner.shift


class ByModule(Dataset):
    """Calls a function of a module."""

    def __getitem__(self, index):
        return this_module.make(self, index)


class ByObject(Dataset):
    """Calls the method of an object."""

    def __getitem__(self, index):
        return self.builder.make(index)


this_module = importlib.import_module(__name__)


def test_names_are_read_by_functions_of_modules_and_by_objects():
    assert "shift" in owned_generators.names_read(ByModule(shift=1))
    dataset = ByObject(shift=1)
    dataset.builder = Builder(dataset)
    assert "shift" in owned_generators.names_read(dataset)
    assert "shift" not in owned_generators.names_read(Dataset(shift=1))


def test_names_that_an_object_of_a_package_reads_cannot_be_told():
    import collections

    dataset = ByObject(shift=1)
    dataset.builder = collections.UserList([dataset])
    assert owned_generators.names_read(dataset) is None


def test_in_a_default_by_name(generator):
    def draw(*, by=generator):
        return by

    find(Dataset(draw=draw), generator)


@pytest.mark.stack("keras3-torch")
def test_torchs_own_generator_is_nobodys():
    import torch

    assert owned_generators.is_global(torch.default_generator)
    assert not owned_generators.is_generator(torch.default_generator)
    assert owned_generators.is_generator(torch.Generator())
    assert owned_generators.find(Dataset(generator=torch.default_generator)) == []


PACKAGED = """
import numpy, random
class Holder:
    def __init__(self): self.generator = numpy.random.RandomState(3)
class Nested:
    shared = random.Random(4)
    def __init__(self): self.inner = Holder()
GLOBAL, PRIVATE, SYSTEM, OF_NUMPY = Holder(), random.Random(2), random.SystemRandom(), numpy.random.mtrand._rand
BY_NAME, NESTED = {"a": [random.Random(5)]}, Nested()
def closed():
    generator = random.Random(6)
    return lambda: generator.random()
draw = closed()
"""


def test_generators_in_variables_of_a_package_that_is_named_are_found(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "drawing"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def draw():\n    from drawing import state\n    return state.GLOBAL\n")
    (package / "state.py").write_text(PACKAGED)
    monkeypatch.syspath_prepend(str(package.parent))
    drawing, state = importlib.import_module("drawing"), importlib.import_module("drawing.state")
    monkeypatch.setitem(globals(), "drawing", drawing)

    class Drawn(Dataset):
        def __getitem__(self, index):
            return drawing.draw()

    others = {
        id(one): one
        for one in [
            state.GLOBAL.generator, state.Nested.shared, state.BY_NAME["a"][0], state.NESTED.inner.generator,
            state.draw.__closure__[0].cell_contents,
        ]
    }

    def found(dataset):
        return {id(one) for one in owned_generators.find(dataset)}

    assert found(Drawn()) == {id(state.PRIVATE), *others}
    assert owned_generators.find(Drawn(rng=state.PRIVATE))[0] is state.PRIVATE
    assert found(Drawn(rng=state.PRIVATE)) == {id(state.PRIVATE), *others}
    assert found(Dataset(draw=drawing.draw)) == {id(state.PRIVATE), *others}
    assert len(owned_generators.find(Drawn())) == 6
    find(Dataset())


def test_watched_they_are_found_anew_once_something_of_the_scripts_is_replaced(monkeypatch):
    monkeypatch.setattr(owned_generators.places, "is_user_module", lambda name: name == __name__)
    first, second, third = map(np.random.RandomState, range(3))
    dataset = Augmented(noise=Dataset(rng=first), several=[second], count=0)
    watched = watched_generators.WatchedGenerators(lambda: [dataset])
    assert watched.look()
    assert {id(one) for one in watched.found} == {id(first), id(second), id(of_the_script)}

    searches = []
    reached = owned_generators.reached
    monkeypatch.setattr(owned_generators, "reached", lambda roots: searches.append(roots) or reached(roots))
    dataset.count, dataset.array = 1, np.zeros(3)
    assert not watched.look()
    assert not searches, "data were replaced"
    for change in (
        lambda: setattr(dataset.noise, "rng", third),
        lambda: dataset.several.append(np.random.RandomState(4)),
        lambda: monkeypatch.setitem(globals(), "of_the_script", np.random.RandomState(5)),
        lambda: setattr(dataset, "made", np.random.RandomState(6)),
    ):
        change()
        assert watched.look()
        assert not watched.look()
    assert len(searches) == 4
    assert id(first) not in map(id, watched.found)
    del dataset.made
    assert not watched.look(), "none that was not there before"
    expected = [third, *dataset.several, of_the_script]
    assert {id(one) for one in watched.found} == {id(one) for one in expected}
    assert owned_generators.find(Dataset(held=watched)) == []
