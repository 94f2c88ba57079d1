"""Computes marks of the settings that a script can change in installed packages and in its process: equal if these are.

Worker processes are compared with the training process by these marks: those of the server before anything is built
(`served_workers.py`), and forked ones at the beginning of each pass (`dataset_state.py`). If a mark differs, workers are
forked again, which is always correct; so a package that counts or caches something costs only the time of that.

A package is searched from the names of its modules: values, containers, the attributes of its classes and of
objects, and which functions and classes are bound. For objects from elsewhere (Python's library, the script), the mark has
only the name, or the `repr`. Frameworks and numpy are not searched, because they count what they do
(`places.COUNTING`); the marks include the three settings of Keras.
"""
from __future__ import annotations

import collections
import contextvars
import functools
import hashlib
import logging
import marshal
import os
import re
import sys
import threading
import types

from py_hooks import own_account, places
from py_hooks.recording import fingerprint
from py_hooks.workers.transfer import marks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

# The settings of Keras, in the module that has them (keras 2.3.1, keras/backend/common.py; 3.0, keras/src/backend/config.py).
_OF_KERAS = "_FLOATX", "_EPSILON", "_IMAGE_DATA_FORMAT"

# Searching more objects than this takes longer than forking the process.
_MAX_OBJECTS = 500_000

_CONTAINERS = list, tuple, set, frozenset, collections.OrderedDict, dict, collections.deque

# The attributes that hold the parts of these objects.
_PARTS = {
    classmethod: ["__func__"],
    functools.partial: ["func", "args", "keywords"],
    property: ["fget", "fset", "fdel"],
    staticmethod: ["__func__"],
    types.MethodType: ["__self__", "__func__"],
}

# The address of an object, which differs in each process.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class TooMuch(Exception):
    """A package has too many objects to compare; the text says which."""


def of_packages(libraries: Iterable[str]) -> dict[str, bytes]:
    """A mark of each module of the packages that these modules belong to, and of Keras, by the module's name.

    Args:
        libraries: names of modules.

    Raises:
        TooMuch: they have more than half a million objects.
    """
    packages = packages_of(libraries)
    look = _Look(packages)
    found = {}
    for name, module in sorted(_modules()):
        names = places.names_of(module)
        if name.partition(".")[0] in packages:
            found[name] = look.mark(name, {key: value for key, value in names.items() if not key.startswith("__")})
        elif _OF_KERAS[0] in names:
            found[name] = look.mark(name, {key: names.get(key) for key in _OF_KERAS})
    return found


def packages_of(libraries: Iterable[str]) -> set[str]:
    """The names of the packages that modules belong to, except those of Python itself and those that count what they do."""
    return {name.partition(".")[0] for name in libraries} - places.COUNTING - _of_python()


def _modules() -> list[tuple[str, types.ModuleType]]:
    return [(name, module) for name, module in list(sys.modules.items()) if isinstance(module, types.ModuleType)]


def _of_python() -> set[str] | frozenset[str]:
    """The names of the modules of Python's standard library."""
    known = getattr(sys, "stdlib_module_names", None)
    if known is not None:
        return known
    return {
        name
        for name, module in list(sys.modules.items())
        if not any(folder in (places.file_of(module) or "") for folder in ("site-packages", "dist-packages"))
        and not places.is_user_file(places.file_of(module) or __file__)
    }


class _Look:
    """One search of the modules of packages. Each object is searched once.

    Args:
        packages: their names.
    """

    _digest: hashlib.blake2b | None
    _waiting: list[Any] | None

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages
        # Packages whose objects' attributes are not searched, and packages whose objects are marked by their `repr`.
        self._named_only = places.COUNTING | _of_python()
        self._shown = self._named_only - places.COUNTING | {"numpy"}
        self._digest = self._waiting = None
        # Keeps the values alive, so that no other value gets the same id.
        self._seen: dict[int, tuple[int, Any]] = {}

    def mark(self, module: str, names: dict[str, Any]) -> bytes:
        """A mark of the values of these names in a module."""
        self._digest = hashlib.blake2b(digest_size=8)
        self._waiting = [dict(sorted(names.items()))]
        while self._waiting:
            value = self._waiting.pop()
            try:
                self._look_at(value)
            except Exception:  # noqa: BLE001 - what an object of a package raises when it is asked ends no training
                self._note("raises")
            if len(self._seen) > _MAX_OBJECTS:
                raise TooMuch(f"`{module}`, or what it uses, has more than {_MAX_OBJECTS} objects")
        return self._digest.digest()

    def _note(self, text: str) -> None:
        self._digest.update(text.encode("utf-8", "surrogatepass"))

    def _look_at(self, value: Any) -> None:
        kind = type(value)
        if kind in marks.PLAIN:
            self._digest.update(marshal.dumps(value, 2))
            return
        if id(value) in self._seen:
            self._note(f"seen {self._seen[id(value)][0]}")
            return
        self._seen[id(value)] = len(self._seen), value
        # By its type, because `__class__` of an object may be false, or slow to get.
        self._note(_name_of(kind))
        if issubclass(kind, type):
            self._look_at_class(value)
        elif kind is types.FunctionType:
            self._note(f"{_name_of(value)} {value.__code__.co_filename}:{value.__code__.co_firstlineno}")
            self._waiting.extend((value.__defaults__, value.__kwdefaults__, vars(value), _cells_of(value)))
        elif issubclass(kind, types.ModuleType):
            self._note(str(places.names_of(value).get("__name__")))
        elif kind in _PARTS:
            self._waiting.extend(getattr(value, name) for name in _PARTS[kind])
        else:
            self._look_at_object(value, kind)

    def _look_at_class(self, cls: type) -> None:
        self._note(_name_of(cls))
        if _top(cls) in self._packages:
            bound = {name: value for name, value in vars(cls).items() if not marks.is_of_python(name)}
            self._waiting.append(bound)

    def _look_at_object(self, value: Any, kind: type) -> None:
        import numpy

        base = next((one for one in _CONTAINERS if issubclass(kind, one)), None)
        if issubclass(kind, numpy.ndarray) and not value.dtype.hasobject:
            self._note(f"{value.dtype} {value.shape}")
            self._digest.update(b"%d" % fingerprint.checksum(numpy.asarray(value)))
        elif base is not None:
            self._look_at_container(value, base)
        elif _top(kind) in self._shown:
            # A path, a pattern, a numpy number; a logger with its level.
            self._note(_ADDRESS.sub("", repr(value)))
            self._waiting.append(_held_by(value, kind))
        if _top(kind) not in self._named_only:
            self._waiting.extend((places.attributes_of(value) or {}, dict(marks.slots_of(value))))

    def _look_at_container(self, value: Any, base: Any) -> None:
        elements = list(base.__iter__(value))
        if base in (set, frozenset):
            elements.sort(key=_text_of)
        if issubclass(base, dict):
            elements.extend(base.values(value))
        self._digest.update(marshal.dumps([one if type(one) in marks.PLAIN else () for one in elements], 2))
        self._waiting.extend(one for one in elements if type(one) not in marks.PLAIN)


def _cells_of(function: types.FunctionType) -> list[Any]:
    """The variables around a function; None for those without a value."""
    return [getattr(cell, "cell_contents", None) for cell in function.__closure__ or ()]


def _held_by(value: Any, kind: type) -> Any:
    """What an object of Python's library holds for the package, besides what its `repr` shows."""
    if issubclass(kind, logging.Logger):
        # Its attributes lead to all other loggers, and include a cache.
        return [value.propagate, value.disabled, [type(handler).__name__ for handler in value.handlers]]
    if kind is contextvars.ContextVar:
        return value.get(None)
    # Only a `threading.local` itself can return the attributes of this thread.
    return vars(value) if issubclass(kind, threading.local) else places.attributes_of(value)


def _text_of(element: object) -> str:
    """The sort key of an element of a set, if its kind has an order."""
    kind = type(element)
    if kind in marks.PLAIN or issubclass(kind, tuple):
        return _ADDRESS.sub("", repr(element))
    return _name_of(element if hasattr(element, "__qualname__") else kind)


def _top(kind: type) -> str:
    module = kind.__module__
    return module.partition(".")[0] if isinstance(module, str) else ""


def _name_of(named: Any) -> str:
    return f"{named.__module__}.{named.__qualname__}"


# -- the process -------------------------------------------------------------------------------------------------------


def of_process() -> dict[str, Any]:
    """The settings that a script may change in its process or thread, by name."""
    import decimal
    import locale
    import socket
    import time
    import warnings

    import numpy

    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        umask = [line for line in status if line.startswith("Umask")]
    with open("/proc/self/limits", encoding="ascii", errors="replace") as file:
        limits = file.read()
    handlers = [type(handler).__name__ for handler in logging.root.handlers]
    torch = sys.modules.get("torch")
    return {
        "umask": umask,
        "limits": limits,
        "processors": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "numpy.seterr": numpy.geterr(),
        "numpy.set_printoptions": repr(numpy.get_printoptions()),
        "locale": locale.setlocale(locale.LC_ALL),
        "socket.setdefaulttimeout": socket.getdefaulttimeout(),
        "sys.setrecursionlimit": sys.getrecursionlimit(),
        "decimal": repr(decimal.getcontext()),
        "logging": (logging.root.level, logging.root.manager.disable, handlers),
        "warnings": [
            (entry[0], str(entry[1]), _names_of(entry[2]))
            for entry in warnings.filters
            if not own_account.is_ours(entry)
        ],
        "torch.set_default_dtype": str(torch.get_default_dtype()) if hasattr(torch, "get_default_dtype") else None,
        "torch.set_num_threads": torch.get_num_threads() if hasattr(torch, "get_num_threads") else None,
        "sys.stdout": sys.stdout is sys.__stdout__,
        "time.tzset": (time.tzname, time.localtime(0)[:6]),
        "PYTHONHASHSEED": hash("x"),
        "denormal numbers": _denormals(),
    }


def _denormals() -> tuple[bool, bool]:
    """Whether this thread computes denormal numbers, and whether it reads them."""
    import numpy

    with numpy.errstate(all="ignore"):
        made = numpy.array([1e-38], "float32") * numpy.array([0.1], "float32")
        read = numpy.array([1], "uint32").view("float32") * numpy.array([1e30], "float32")
    return bool(made.view("uint32")[0]), bool(read.view("uint32")[0])


def _names_of(category: type[Warning] | tuple[type[Warning], ...]) -> str:
    """The category of a filter of warnings: a class, or several."""
    return ", ".join(kind.__name__ for kind in category) if isinstance(category, tuple) else category.__name__
