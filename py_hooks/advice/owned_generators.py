"""Random generators that a data set draws from by itself, besides the global ones: `self.rng`, or a `rng` of the script.

An item that only an answered call would have seen is not built in a replay, and so does not draw. For the items after
it to be the same, the generators are keyed for each item: set to a state of the item's key before it is built, and back
to where they were afterwards. So they are where they would be if items drew nothing, whichever items were built.

Found are generators of python's and numpy's that can be reached from the data set: through attributes, containers and
objects of the script's own classes, and through the names that the methods of these classes, and the functions of the
script that they call, use (globals and closures). Not found are those that only C code holds.
"""
import contextlib
import functools
import types

from py_hooks.advice import places

# Of objects that are looked at. A data set that holds a million objects of the script's own keeps its generator above
# them.
_MAX_OBJECTS = 20000
# Of one container. A generator does not stand in the middle of a list of file names.
_MAX_ELEMENTS = 100

_LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, types.ModuleType)


def is_generator(value):
    """Whether a value is a random generator of python's or numpy's."""
    import random

    import numpy

    kinds = (random.Random, numpy.random.RandomState, getattr(numpy.random, "Generator", random.Random))
    if isinstance(value, random.SystemRandom):
        # It has no state; what it draws nobody can draw again.
        return False
    return isinstance(value, kinds) and value is not random._inst and value is not numpy.random.mtrand._rand


def find(dataset):
    """The generators that a data set can reach, each once, in an order that is the same in every process."""
    found, seen, waiting = [], set(), [dataset]
    # Breadth first, so that what is near is found whatever lies behind it.
    for value in waiting:
        if id(value) in seen or isinstance(value, _LEAVES):
            continue
        seen.add(id(value))
        if is_generator(value):
            found.append(value)
        elif len(seen) <= _MAX_OBJECTS:
            waiting.extend(_reached_from(value))
    return found


def _reached_from(value):
    if isinstance(value, dict):
        return list(value.values())[:_MAX_ELEMENTS]
    if isinstance(value, (list, tuple, set, frozenset)):
        # The order of a set is that of its hashes, which the trial fixes.
        return list(value)[:_MAX_ELEMENTS]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        return list(used_by(value)) if places.is_user_file(value.__code__.co_filename) else []
    if isinstance(value, type):
        return _methods_of(value)
    held = (value.func, value.args) if isinstance(value, functools.partial) else ()
    # In one step: workers may bind attributes meanwhile.
    attributes = dict(getattr(value, "__dict__", ()))
    return [*attributes.values(), *held, *_methods_of(type(value))]


def _methods_of(cls):
    """The functions in a class of the script's own, and in its bases."""
    functions = (getattr(value, "__func__", value) for base in cls.__mro__ for value in vars(base).values())
    return [function for function in functions if isinstance(function, types.FunctionType)]


def used_by(function):
    """What a function can reach by name: globals, and the variables of the functions around it."""
    names = function.__globals__
    for name in names_in(function.__code__):
        if name in names:
            yield names[name]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it has no value yet
            yield cell.cell_contents
    yield from function.__defaults__ or ()


def names_in(code):
    """The names that code uses, and the functions within it: of globals, and of attributes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


class Keyed:
    """`with Keyed(generators, seed_of)`: each generator draws from a state of its own seed, and is then as it was.

    Args:
        generators: what `find` returned.
        seed_of: gives the seed of a generator by its number.
    """

    def __init__(self, generators, seed_of):
        self._generators = generators
        self._seed_of = seed_of
        self._states = []

    def __enter__(self):
        self._states = [_state(generator) for generator in self._generators]
        for number, generator in enumerate(self._generators):
            _seed(generator, self._seed_of(number))

    def __exit__(self, *exception):
        for generator, state in zip(self._generators, self._states):
            _set_state(generator, state)


def _seed(generator, seed):
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        bits.state = type(bits)(seed).state
    else:
        generator.seed(seed % (1 << 32))


def _state(generator):
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        return bits.state
    return generator.get_state() if hasattr(generator, "get_state") else generator.getstate()


def _set_state(generator, state):
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        bits.state = state
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.setstate(state)
