"""Finds the random generators that a data set draws from besides the global ones: `self.rng`, or a `rng` of the script.

A replay does not build an item that only an answered call would have used, so that item does not draw. To keep later items
the same, the generators are keyed for each item: set to a state derived from the item's key before it is built, and set back
afterwards. So their state is as if items drew nothing, whichever items were built. What an item draws from a generator
depends on the state that this generator had when it was found first, and on no other generator.

The search finds generators of Python, numpy and torch that can be reached from the data set: through attributes, containers
and objects of classes of the script, and through the names that methods of these classes, and the functions of the script that
they call, use (globals and closures). It also finds generators in modules of installed packages that these name: in
variables, containers, classes and objects of the package, and closures. It does not find generators that only C code
holds.
"""
from __future__ import annotations

import contextlib
import functools
import marshal
import sys
import types

from py_hooks import places
from py_hooks.random_numbers.random_streams import hash_of, mix, without_roots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import CodeType, FunctionType
    from typing import Any

# The most objects that are searched. A data set that holds a million objects of the script keeps its generator above
# them.
_MAX_OBJECTS = 20000
# The most elements of one container that begins with data: a list of file names has no generator in its middle.
_MAX_ELEMENTS = 100
# The deepest nesting of containers in what a decorator holds.
_MAX_DEPTH = 3

# The most objects of packages that are searched.
_MAX_OF_PACKAGES = 500_000
# The modules that classes of generators are in: for most objects that decides it.
_OF_GENERATORS = frozenset(
    ["random", "torch", "torch._C", "numpy.random.mtrand", "mtrand", "numpy.random._generator", "numpy.random.generator"]
)

PLAIN = frozenset([type(None), bool, int, float, complex, str, bytes, bytearray])

_LEAVES = (*PLAIN, types.ModuleType)


def is_generator(value: Any) -> bool:
    """Whether a value is a random generator of Python, numpy or torch, and none of their global ones."""
    import random

    import numpy

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return not is_global(value)
    kinds = (random.Random, numpy.random.RandomState, getattr(numpy.random, "Generator", random.Random))
    if isinstance(value, random.SystemRandom):
        # It has no state, so its draws cannot be repeated.
        return False
    return isinstance(value, kinds) and not is_global(value)


def is_global(value: object) -> bool:
    """Whether it is the global generator of Python, numpy or torch, which streams handle."""
    import random

    import numpy

    torch = sys.modules.get("torch")
    of_torch = getattr(torch, "default_generator", None)
    return value is random._inst or value is numpy.random.mtrand._rand or (of_torch is not None and value is of_torch)


def find(dataset: Any) -> list[Any]:
    """The generators that a data set can reach, each once, in an order that is the same in every process."""
    return reached([dataset])[0]


def reached(roots: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """What some objects can reach.

    Returns:
        The generators, each once, in an order that is the same in every process; and all objects that were searched.
    """
    found: list[Any]
    seen: dict[int, Any]
    named: set[str]
    found, seen, waiting, named = [], {}, list(roots), set()
    # Breadth first, so that near objects are found however many are behind them.
    for value in waiting:
        # A proxy without an object raises on every access.
        with contextlib.suppress(Exception):
            if id(value) in seen or type(value) in PLAIN:
                continue
            named.add(module_of(value))
            if isinstance(value, _LEAVES):
                continue
            seen[id(value)] = value
            if is_generator(value):
                found.append(value)
            elif len(seen) <= _MAX_OBJECTS:
                waiting.extend(_reached_from(value))
    found.extend(one for one in _held_by_packages(filter(places.is_installed, named)) if id(one) not in seen)
    return found, list(seen.values())


def _held_by_packages(names: Iterable[str]) -> list[Any]:
    """The generators that modules of packages hold, each once, ordered by the modules' names."""
    packages = {name.partition(".")[0] for name in names} - places.COUNTING
    if not packages:
        return []
    modules = sorted(name for name in list(sys.modules) if name.partition(".")[0] in packages)
    waiting = [value for name in modules for value in list(places.names_of(sys.modules[name]).values())]
    seen: dict[int, Any]
    found: list[Any]
    seen, found = {}, []
    for value in waiting:
        kind = type(value)
        if kind in PLAIN or id(value) in seen or len(seen) > _MAX_OF_PACKAGES:
            continue
        # Keeps the value alive, so that no other value gets its id.
        seen[id(value)] = value
        with contextlib.suppress(Exception):
            if kind.__module__ in _OF_GENERATORS and is_generator(value):
                found.append(value)
            else:
                waiting.extend(_held_in_package(value, kind, packages))
    return found


def _held_in_package(value: Any, kind: type, packages: set[str]) -> list[Any]:
    """What an object of a package holds."""
    if issubclass(kind, dict):
        return list(dict.values(value))
    if issubclass(kind, (list, tuple, set, frozenset)):
        return list(value)
    if kind is types.FunctionType:
        held = [*(value.__defaults__ or ()), *vars(value).values()]
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # it has no value yet
                held.append(cell.cell_contents)
        return held
    own = value if issubclass(kind, type) else kind
    if not isinstance(own.__module__, str) or own.__module__.partition(".")[0] not in packages:
        return []
    if own is value:
        return [getattr(one, "__func__", one) for one in vars(value).values()]
    return list((places.attributes_of(value) or {}).values())


def _reached_from(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return _elements(list(value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        # A set is ordered by its hashes, which the trial fixes.
        return _elements(list(value))
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        if places.is_user_file(value.__code__.co_filename):
            return [*used_by(value), *vars(value).values()]
        return list(wrapped_by(value))
    if isinstance(value, type):
        return _methods_of(value)
    held = (value.func, value.args) if isinstance(value, functools.partial) else ()
    # Copied in one step, because workers may bind attributes meanwhile.
    attributes = dict(getattr(value, "__dict__", ()))
    return [*attributes.values(), *held, *_methods_of(type(value))]


def module_of(value: object) -> str | None:
    """The name of a module; for a function, a class or an object, the name of the module that defines it or its class."""
    if isinstance(value, types.ModuleType):
        return places.names_of(value).get("__name__")
    is_code = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
    return getattr(value if is_code else type(value), "__module__", None)


def _elements(values: list[Any]) -> list[Any]:
    first = values[:_MAX_ELEMENTS]
    return first if all(map(_is_data, first)) else values[:_MAX_OBJECTS]


def _is_data(value: object) -> bool:
    return isinstance(value, _LEAVES) or hasattr(value, "__array__")


def _methods_of(cls: type) -> list[FunctionType]:
    """The functions in a class of the script, and in its bases."""
    found = []
    for base in cls.__mro__:
        functions = [getattr(value, "__func__", value) for value in vars(base).values()]
        functions = [function for function in functions if isinstance(function, types.FunctionType)]
        if str(base.__module__).partition(".")[0] in places.COUNTING:
            # A tensor has hundreds of methods.
            functions = [function for function in functions if _leads_on(function, base)]
        found.extend(functions)
    return found


def _leads_on(function: FunctionType, owner: type) -> object:
    """Whether a function in a class of a framework may reach anything: it is from elsewhere, or holds something."""
    is_of_owner = function.__module__ == owner.__module__ and not places.is_user_file(function.__code__.co_filename)
    return not is_of_owner or function.__closure__ or function.__defaults__ or vars(function)


def used_by(function: FunctionType) -> Iterator[Any]:
    """What a function can reach by name: globals, and the variables of the functions around it."""
    names = function.__globals__
    for name in names_in(function.__code__):
        if name in names:
            yield names[name]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it has no value yet
            yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def wrapped_by(function: FunctionType) -> list[Any]:
    """What a function of a package holds of user code: what it decorates, and what it was made with."""
    held = [value for value in vars(function).values() if isinstance(value, types.FunctionType)]
    held.extend(function.__defaults__ or ())
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it has no value yet
            held.append(cell.cell_contents)
    return list(_of_user(held, depth=0))


def _of_user(values: Iterable[Any], depth: int) -> Iterator[Any]:
    for value in values:
        kind = type(value)
        if isinstance(value, types.FunctionType) or kind in _LEAVES[:-1]:
            yield value
        elif kind in (list, tuple, set, frozenset, dict) and depth < _MAX_DEPTH and len(value) <= _MAX_ELEMENTS:
            yield from _of_user(value.values() if kind is dict else value, depth + 1)
        else:
            module = sys.modules.get((value if isinstance(value, type) else kind).__module__)
            file = places.file_of(module)
            if file is not None and places.is_user_file(file):
                yield value


def names_in(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes that code uses, with those of the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def names_read(dataset: Any) -> set[str] | None:
    """The names that building an item may use: those in `__getitem__`, and in the functions that it reaches by them.

    It reaches methods of the data set and of objects that are its attributes, and functions of the user's modules.

    None if it may use any name: by `__dict__`, `vars`, `getattr`, or because it reaches something that is no Python
    function, or an object of a package that holds the data set.
    """
    names: set[str]
    seen: list[FunctionType]
    names, seen = set(), []
    waiting = _named(dataset, "__getitem__")
    held = [dataset]
    while waiting:
        value = waiting.pop()
        value = getattr(value, "fget", getattr(value, "__func__", value))
        if isinstance(value, functools.partial):
            waiting.extend([value.func, *value.args, *value.keywords.values()])
        elif isinstance(value, types.FunctionType) and value not in seen:
            seen.append(value)
            found = set(names_in(value.__code__)) - names
            names |= found
            around = [*used_by(value), *(sys.modules[name] for name in found if name in sys.modules)]
            waiting.extend(around)
            modules = [one for one in around if isinstance(one, types.ModuleType) and places.is_user_module(one.__name__)]
            held.extend(one for one in modules if one not in held)
            # Everything with such a name, in objects that were found before or now.
            waiting.extend(one for owner in held for name in sorted(names) for one in _named(owner, name))
        elif _may_have_methods(value) and not any(value is one for one in held):
            if not places.is_user_module(type(value).__module__):
                if _has(value, dataset):
                    return None
                continue
            held.append(value)
            called = _named(value, "__call__") + _named(value, "__getitem__")
            waiting.extend([*called, *(one for name in sorted(names) for one in _named(value, name))])
    return None if not seen or names & {"__dict__", "vars", "getattr", "attrgetter"} else names


def _may_have_methods(value: object) -> bool:
    return not isinstance(value, (*_LEAVES, type, types.FunctionType, types.BuiltinFunctionType))


def _has(value: Any, dataset: Any) -> bool:
    """Whether an object of a package can reach the data set."""
    seen: set[int]
    seen, waiting = set(), [value]
    for one in waiting:
        if one is dataset:
            return True
        if id(one) not in seen and not isinstance(one, _LEAVES) and len(seen) < _MAX_OBJECTS:
            seen.add(id(one))
            waiting.extend(_reached_from(one))
    return False


def _named(owner: Any, name: str) -> list[Any]:
    """The values that a name has in an object, its class, and its bases; or in a module."""
    owners = (owner,) if isinstance(owner, types.ModuleType) else (owner, *type(owner).__mro__)
    return [vars(place)[name] for place in owners if name in getattr(place, "__dict__", ())]


class Rooted:
    """Generators, and the roots of their streams: for each a hash of the state that it had when it was found first.

    It has slots, so that an object which reaches this one does not reach the generators through it.

    Args:
        generators: what `find` returned.
        before: the `Rooted` of the previous search; None without.

    Attributes:
        generators: as they were given.
        roots: a number of 64 bits for each.
    """

    __slots__ = ("generators", "roots")

    generators: Sequence[Any]
    roots: list[int]

    def __init__(self, generators: Sequence[Any], before: Rooted | None = None) -> None:
        known = {} if before is None else dict(zip(map(id, before.generators), before.roots))
        self.generators = generators
        self.roots = [known[id(one)] if id(one) in known else _root(one) for one in generators]

    def __bool__(self) -> bool:
        return bool(self.generators)

    def adopt(self, roots: Sequence[int]) -> None:
        """Takes the roots from another process, which found the generators first, in the same order."""
        if len(roots) == len(self.roots):
            self.roots = list(roots)


class Keyed:
    """`with Keyed(owned, key)`: each generator draws from a state derived from its root and the key, and is then set back.

    Args:
        owned: the `Rooted`.
        key: a tuple, as of `mix`.
    """

    __slots__ = ("_owned", "_key", "_states")

    def __init__(self, owned: Rooted, key: tuple[Any, ...]) -> None:
        self._owned = owned
        self._key = key
        self._states: list[Any] = []

    def __enter__(self) -> None:
        owned, key = self._owned, without_roots(self._key)
        self._states = [_state(generator) for generator in owned.generators]
        for number, generator in enumerate(owned.generators):
            seed(generator, mix("owned", number, owned.roots[number], *key))

    def __exit__(self, *exception: object) -> None:
        for generator, state in zip(self._owned.generators, self._states):
            _set_state(generator, state)


def _root(generator: Any) -> int:
    """A 64-bit hash of a generator's state."""
    try:
        state = _state(generator)
    except Exception:  # noqa: BLE001 - a class of the script's own; whoever draws by a key is told
        return 0
    if hasattr(state, "numpy"):
        # A torch tensor.
        return hash_of(state.numpy().tobytes())
    # Version 2 of the format does not depend on who else holds a value.
    return hash_of(marshal.dumps(_plain(state), 2))


def _plain(part: Any) -> Any:
    """A state, or a part of it, without numpy types."""
    if isinstance(part, dict):
        return [(name, _plain(value)) for name, value in part.items()]
    if isinstance(part, tuple):
        # The words of Python's generators are plain.
        return tuple([one if type(one) in PLAIN or type(one) is tuple else _plain(one) for one in part])
    if hasattr(part, "tobytes"):
        return part.tobytes()
    return part if type(part) in PLAIN else repr(part)


def seed(generator: Any, number: int) -> None:
    """Sets a generator to the state of a seed, a number of 64 bits."""
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        bits.state = type(bits)(number).state
    elif hasattr(generator, "manual_seed"):
        generator.manual_seed(number >> 1)
    else:
        generator.seed(number % (1 << 32))


def _state(generator: Any) -> Any:
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        return bits.state
    return generator.get_state() if hasattr(generator, "get_state") else generator.getstate()


def _set_state(generator: Any, state: Any) -> None:
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        bits.state = state
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.setstate(state)
