"""Keeps track of the random generators that some objects of the script can reach, while the script may replace them.

A search for them takes milliseconds (`owned_generators.py`), which is too much for every batch. So the search notes what
it passes: the attributes of objects of the script, the globals that its functions name, and the containers that hold a
generator. The search is repeated once one of these holds something else, and checking that takes microseconds.
Numbers, texts and arrays do not count: they hold no generator.
"""
from __future__ import annotations

import itertools
import operator
import types

from py_hooks import places
from py_hooks.random_numbers import owned_generators

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Kinds(dict):
    """By class: whether its objects hold no generator."""

    def __missing__(self, kind: type) -> bool:
        is_array = kind.__module__.partition(".")[0] in ("numpy", "torch") and hasattr(kind, "__array__")
        self[kind] = is_data = kind in owned_generators.PLAIN or is_array
        return is_data


_IS_DATA = _Kinds()

_CONTAINERS = (dict, list, tuple, set, frozenset)


class WatchedGenerators:
    """The generators that roots can reach.

    It has slots, so that an object which reaches this one, such as a model, reaches nothing through it: it may hold
    generators that the script does not use any more.

    Args:
        find_roots: returns the roots, a list, as they are now.

    Attributes:
        found: the generators of the last search; each once, in an order that is the same in every process.
    """

    __slots__ = ("found", "_find_roots", "_attributes", "_globals", "_held")

    found: list[Any]
    _attributes: list[Any]
    _globals: list[tuple[dict[str, Any], list[str]]]
    _held: list[Any] | None

    def __init__(self, find_roots: Callable[[], list[Any]]) -> None:
        self._find_roots = find_roots
        self.found, self._attributes, self._globals, self._held = [], [], [], None

    def look(self) -> bool:
        """Searches again if something has changed. Returns whether there are generators that were not found before."""
        now = self._holds()
        if self._held is not None:
            if _are_same(now, self._held):
                return False
            held, self._held = self._held, now
            if _are_same(_without_data(now), _without_data(held)):
                return False
        # Kept alive meanwhile, so that no other generator gets the same id.
        before = self.found
        known = set(map(id, before))
        self._find()
        return not known.issuperset(map(id, self.found))

    def _find(self) -> None:
        self.found, reached = owned_generators.reached(self._find_roots())
        generators = set(map(id, self.found))
        named: dict[int, tuple[dict[str, Any], set[str]]]
        self._attributes, named = [], {}
        for value in reached:
            kind = type(value)
            if kind is types.FunctionType:
                if places.is_user_file(value.__code__.co_filename):
                    _, names = named.setdefault(id(value.__globals__), (value.__globals__, set()))
                    names.update(owned_generators.names_in(value.__code__))
            elif issubclass(kind, _CONTAINERS):
                if not generators.isdisjoint(map(id, _elements_of(value))):
                    self._attributes.append(value)
            elif places.is_user_module(kind.__module__):
                self._attributes.append(places.attributes_of(value) or {})
        self._globals = [(variables, sorted(names)) for variables, names in named.values()]
        self._held = self._holds()

    def _holds(self) -> list[Any]:
        """The values in the watched containers and variables now."""
        held = list(itertools.chain.from_iterable(map(_elements_of, self._attributes)))
        for variables, names in self._globals:
            held.extend(map(variables.get, names))
        return held


def _are_same(values: list[Any], others: list[Any]) -> bool:
    return len(values) == len(others) and all(map(operator.is_, values, others))


def _without_data(values: list[Any]) -> list[Any]:
    return [one for one in values if not _IS_DATA[type(one)]]


def _elements_of(container: Any) -> list[Any]:
    # Copied in one step, because a thread may change it meanwhile.
    return list(container.values() if isinstance(container, dict) else container)
