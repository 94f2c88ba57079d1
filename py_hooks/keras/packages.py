"""The packages of Keras 2: `keras`, and within TensorFlow 1 `tensorflow.python.keras`.

Both have the same modules under the same names, as far as they are used here. The package of a model decides in which
of them a module is looked up, because a script may import both.
"""
from __future__ import annotations

import importlib

from py_hooks.facts.keras import GraphFacts, KerasFacts, graph_facts, keras_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_CLASS_MODULE = ".engine.training"

PACKAGES = ("keras", "tensorflow.python.keras")

_packages: dict[type, str] = {}
_libraries: dict[type, str] = {}


def of(model: Any) -> str:
    """The package of a model: one of `PACKAGES`."""
    kind = type(model)
    found = _packages.get(kind)
    if found is None:
        modules = [base.__module__ for base in kind.__mro__ if base.__module__.endswith(_CLASS_MODULE)]
        found = _packages[kind] = modules[-1][: -len(_CLASS_MODULE)]
    return found


def module(model: Any, name: str) -> ModuleType:
    """A module of a model's package, such as `engine.training_utils`."""
    return importlib.import_module(f"{of(model)}.{name}")


def library_of(kind: type) -> str:
    """The library of a class of Keras, or of a class that is derived from one: `keras`, or `tensorflow.keras`."""
    found = _libraries.get(kind)
    if found is None:
        packages = [package for base in kind.__mro__ for package in PACKAGES if base.__module__.startswith(package + ".")]
        found = _libraries[kind] = "keras" if packages[0] == "keras" else "tensorflow.keras"
    return found


def facts_of(held: Any) -> KerasFacts:
    """The facts of the Keras whose object this is."""
    return keras_facts(library_of(type(held)))


def graph_facts_of(held: Any) -> GraphFacts:
    """The facts of the Keras on TensorFlow 1 whose object this is."""
    return graph_facts(library_of(type(held)))


def is_frameworks(module_name: str) -> bool:
    """Whether a module belongs to a framework, and not to the script."""
    return module_name.partition(".")[0] in ("keras", "tensorflow", "tensorflow_core", "builtins")
