"""Marks of a data set: checksums that are equal as long as nothing that the data set reaches has changed.

A data set reaches attributes, containers, objects, classes and functions of the script, and the names that these use. The
contents of packages are not examined, except functions of the script that packages wrap, or that the script has put there.

A mark has two halves, because data can be sent to another process, but the values that code uses cannot. A mark also shows
which objects belong to other attributes. If two attributes come to share a random generator, there is one generator less, and
the numbers of the others change.

State that only C code holds is not seen. Within one process, arrays of more than 64 MiB are read in evenly spaced blocks
(`fingerprint.checksum`), so changes of single elements may be missed.
"""
from __future__ import annotations

import collections
import contextlib
import functools
import gc
import hashlib
import io
import logging
import marshal
import pickle
import sys
import types

from py_hooks import places
from py_hooks.random_numbers import owned_generators
from py_hooks.recording import fingerprint
from py_hooks.workers.transfer import sharing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Any

    import numpy

# Maximum number of objects that are examined for one attribute. More take longer than new copies of the trainer do.
_MAX_OBJECTS = 50000

# Names that Python defines in a class; `__slotnames__` once one of its objects was pickled.
_OF_PYTHON = ("__dict__", "__weakref__", "__doc__", "__module__", "__slotnames__", "__annotations_cache__")

# Names that an import defines in a module.
_OF_IMPORT = (
    "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__package__", "__path__", "__spec__",
    "__warningregistry__",
)

PLAIN = {type(None), bool, int, float, complex, str, bytes}

# Everything but attributes: the class of the data set, what its methods use, and its items if it is a container.
AROUND = object()


# Bit of `__flags__`: a `class` statement, or its equivalent, made the type (cpython, Include/object.h, Py_TPFLAGS_HEAPTYPE).
_HEAP_TYPE = 1 << 9


def _is_of_c(kind: type) -> bool:
    """Whether objects of a type have state that is neither in an attribute nor in a slot."""
    return any(
        base is not object and (not base.__flags__ & _HEAP_TYPE or base.__module__ in sys.builtin_module_names)
        for base in kind.__mro__
    )


class Unnamed(Exception):
    """A data set reaches a value that another process cannot have, because the value has no name there."""


def portable(dataset: Any, modules: Iterable[str] = ()) -> tuple[dict[str, bytes], list[Any]]:
    """A mark of each attribute, and, under "", of `AROUND`. The marks are equal in a process in which everything is the same.

    Args:
        dataset: of the script.
        modules: names of the user's modules that it may use. All names bound in them belong to `AROUND`.

    Returns:
        The marks, and the values that were examined for `AROUND`.

    Raises:
        Unnamed: a value has no name by which another process could have the same value.
    """
    look = Look(dataset, _name, modules, _packages_of(dataset))
    for name, mark in look.marks.items():
        if mark is None:
            what = "what it uses" if name is AROUND else f"its attribute `{name}`"
            raise Unnamed(f"{what} cannot be compared, or is more than can be")
    found = dict(look.marks)
    found[""] = found.pop(AROUND)
    return found, look.reached[AROUND]


def identity(value: object) -> bytes:
    """Bytes that identify a class, function, module or builtin function in this process."""
    return b"%d" % id(value)


def _name(value: Any) -> bytes:
    """The name of a class, function, module or builtin function; of code, its instructions, names and constants."""
    if isinstance(value, types.CodeType):
        constants = [_name(one) if isinstance(one, types.CodeType) else one for one in value.co_consts]
        parts = value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_argcount, constants
        return repr(parts).encode("utf-8", "surrogatepass")
    if isinstance(value, types.ModuleType):
        return value.__name__.encode()
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if not isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) or name is None:
        raise Unnamed(f"it uses a `{type(value).__name__}`, which another process could not have the same")
    return f"{module}.{name}".encode()


# The second half of a mark, if the data has no code.
NO_CODE = bytes(16)


class _TooMuch(Exception):
    """There are more objects than are examined."""


class Look:
    """One examination of a data set.

    Args:
        dataset: of the script.
        identify: returns the bytes that identify a class, function, module or builtin function.
        modules: names of the user's modules; all names bound in them belong to `AROUND`.
        packages: names of installed packages that are examined like the user's modules.

    Attributes:
        marks: for each attribute, and for `AROUND`, 16 bytes of the data in it and 16 of the code that it reaches; None if
            that cannot be determined, or is too much.
        reached: the values that were examined for each.
        slots: names of the attributes that are in no dictionary.
        libraries: names of modules of installed packages that code reaches by name.
        is_closed: whether no object was found that may hold hidden state, such as a Python generator with its iterable.
    """

    marks: dict[Any, bytes | None]
    reached: dict[Any, list[Any]]

    def __init__(
        self,
        dataset: Any,
        identify: Callable[[Any], bytes] = identity,
        modules: Iterable[str] = (),
        packages: frozenset[str] = frozenset(),
    ) -> None:
        self._dataset = dataset
        self._identify = identify
        self._packages = packages
        attributes, slots = dict(places.attributes_of(dataset) or ()), dict(slots_of(dataset))
        self.slots = set(slots)
        self.marks, self.reached = {}, {}
        self.libraries = set(_packages_of(dataset))
        self.is_closed = True
        # The first attribute that has an object, by the object's id: two attributes may begin, or cease, to share one.
        self._owners: dict[int, Any] = {}
        for name, value in {**attributes, **slots}.items():
            self._mark(name, [value])
        bound = {
            f"{name}.{key}": value
            for name in sorted(modules)
            for key, value in sorted(places.names_of(sys.modules.get(name)).items())
            if key not in _OF_IMPORT and not _is_submodule(value, name, key)
        }
        self._mark(AROUND, [type(dataset), bound, *_contents_of(dataset)])

    def _mark(self, name: Any, values: list[Any]) -> None:
        self._name = name
        self._budget = _MAX_OBJECTS
        self._kept: list[Any] = []
        # Classes and functions that the data reaches; they are examined after the data.
        self._code: dict[int, Any] = {}
        self.reached[name] = []
        try:
            mark = self._walk(values, is_code=name is AROUND)
            code = sorted(self._code.values(), key=self._identify)
            mark += self._walk(code, is_code=True) if code else NO_CODE
        except Unnamed:
            raise
        except Exception:  # noqa: BLE001 - whatever objects of the script do when they are asked, or `_TooMuch`
            mark = None
        self.marks[name] = mark
        self.reached[name].extend(self._kept)

    def _walk(self, values: Iterable[Any], is_code: bool) -> bytes:
        """16 bytes of what these values reach. In data, code is only named."""
        digest = self._digest = hashlib.blake2b(digest_size=16)
        waiting = self._waiting = list(values)
        self._is_code = is_code
        # Holds the values too, so that the id of a value that exists only for this look is not used for another.
        seen = {id(self._dataset): (0, self._dataset)}
        try:
            self._walk_through(digest, waiting, seen)
        finally:
            self.reached[self._name].extend([value for _, value in seen.values()][1:])
        return digest.digest()

    def _walk_through(self, digest: hashlib.blake2b, waiting: list[Any], seen: dict[int, tuple[int, Any]]) -> None:
        while waiting:
            self._budget -= 1
            if self._budget < 0:
                raise _TooMuch
            value = waiting.pop()
            kind = type(value)
            if kind in PLAIN:
                digest.update(marshal.dumps(value, 2))
                continue
            if id(value) in seen:
                digest.update(b"seen%d" % seen[id(value)][0])
                continue
            seen[id(value)] = len(seen), value
            digest.update(self._identify(kind))
            if sharing.has_identity(value):
                owner = self._owners.setdefault(id(value), self._name)
                if owner is not self._name:
                    digest.update(f"also in {owner}".encode("utf-8", "surrogatepass"))
            self._look_into(value, kind)

    def _look_into(self, value: Any, kind: type) -> None:
        import numpy

        digest = self._digest
        if isinstance(value, _CODE):
            digest.update(self._identify(value))
            if self._is_code:
                self._look_into_code(value, kind)
            else:
                self._code[id(value)] = value
        elif isinstance(value, numpy.ndarray):
            self._look_into_array(value, kind)
        elif isinstance(value, numpy.generic):
            self._look_into_scalar(value)
        elif kind is dict or kind is types.MappingProxyType:
            self._look_into_dict(dict(value))
        elif kind in (list, tuple, set, frozenset):
            self._look_into_list(value)
        else:
            self._look_into_other(value, kind)

    def _look_into_other(self, value: Any, kind: type) -> None:
        digest, waiting = self._digest, self._waiting
        if isinstance(value, logging.Logger):
            handlers = [(type(handler).__name__, handler.level) for handler in value.handlers]
            digest.update(repr((value.name, value.level, value.propagate, value.disabled, handlers)).encode())
        elif kind is bytearray:
            digest.update(bytes(value))
        elif isinstance(value, types.MethodType):
            waiting.extend((value.__self__, value.__func__))
        elif isinstance(value, functools.partial):
            waiting.extend((value.func, value.args, value.keywords, dict(vars(value))))
        elif kind.__module__ == "typing":
            digest.update(repr(value).encode("utf-8", "replace"))
        # Not into a generator: for each item it is set to another state.
        elif not owned_generators.is_generator(value) and not owned_generators.is_global(value):
            self._look_into_object(value, kind)

    def _look_into_scalar(self, value: numpy.generic) -> None:
        self._digest.update(_text_of(value.dtype))
        if value.dtype.hasobject:
            self._waiting.append(value.item())
        else:
            self._digest.update(value.tobytes())

    def _look_into_code(self, value: Any, kind: type) -> None:
        if isinstance(value, type):
            if kind is not type and self._is_own(kind.__module__):
                self._waiting.append(kind)
            self._waiting.extend(self._of_class(value))
        elif isinstance(value, types.FunctionType):
            if self._is_own_function(value):
                self._waiting.extend(self._of_function(value))
            else:
                self._waiting.extend(owned_generators.wrapped_by(value))
        elif isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, (types.ModuleType, type(None))):
            self._waiting.append(value.__self__)

    def _look_into_array(self, value: numpy.ndarray, kind: type) -> None:
        import numpy

        self._digest.update(_text_of(value.dtype) + repr(value.shape).encode())
        if self._identify is _name:
            if value.nbytes > fingerprint.WHOLE_BYTES:
                raise Unnamed("it uses an array that is too large to be compared")
            self._digest.update(f"{value.strides}{value.flags.writeable}".encode())
        if value.dtype.hasobject:
            self._waiting.extend(value.ravel().tolist())
        else:
            self._digest.update(b"%d" % fingerprint.checksum(value))
        if kind is not numpy.ndarray:
            self._waiting.append(kind)
            self._look_into_dict(dict(places.attributes_of(value) or ()))

    def _look_into_list(self, value: Collection[Any]) -> None:
        """Elements that are plain, or tuples of plain ones, are added to the digest at once."""
        self._digest.update(b"%d" % len(value))
        if PLAIN.issuperset(map(type, value)):
            self._digest.update(marshal.dumps(list(value), 2))
            return
        flat = [one if _is_flat(one) else [] for one in value]
        self._digest.update(marshal.dumps(flat, 2))
        self._waiting.extend(one for one in value if not _is_flat(one))

    def _look_into_dict(self, value: dict[Any, Any]) -> None:
        self._look_into_list(list(value))
        self._look_into_list(list(value.values()))

    def _look_into_object(self, value: Any, kind: type) -> None:
        import numpy

        try:
            is_tensor = fingerprint.is_tensor_like(value)
            array = numpy.asarray(value) if is_tensor else None
        except Exception:  # noqa: BLE001 - a tensor of JAX that was given away, or an object that answers nothing
            self._digest.update(self._identify(value))
            return
        attributes, slots = places.attributes_of(value), dict(slots_of(value))
        contents = _contents_of(value)
        if is_tensor:
            self._waiting.append(array)
        elif contents is not None and contents is not _NOTHING:
            self._waiting.extend(contents)
        elif not slots and (attributes is None or (not attributes and _is_of_c(kind))):
            self._look_into_pickle(value)
        elif _is_of_c(kind):
            self._look_into_plain_base(value, kind)
        if attributes is not None or slots:
            self._look_into_dict({**(attributes or {}), **slots})
        self._waiting.append(kind)

    def _look_into_plain_base(self, value: Any, kind: type) -> None:
        """The number or text of an object whose class derives from a plain type, in addition to its attributes."""
        for base in kind.__mro__:
            if base in PLAIN and hasattr(base, "__getnewargs__"):
                self._digest.update(marshal.dumps(base.__getnewargs__(value), 2))

    def _look_into_pickle(self, value: Any) -> None:
        """Uses the pickle of an object of C code as its state; an object that cannot be pickled counts by its identity."""
        file = io.BytesIO()
        pickler = _Collecting(file)
        try:
            pickler.dump(value)
        except Exception:  # noqa: BLE001 - a lock, an open file, a data set of HDF5
            self._digest.update(self._identify(value))
            held = () if type(value).__module__ == "_io" else gc.get_referents(value)
            self.is_closed &= all(type(one) in PLAIN or isinstance(one, type) for one in held)
            return
        self._digest.update(file.getvalue())
        self._kept.extend(pickler.values)
        self._waiting.extend(one for one in pickler.values if isinstance(one, (type, types.FunctionType)))

    def _of_class(self, cls: type) -> Iterator[Any]:
        """The values in a class of the script, and in its bases of the script; and functions that the script put into others."""
        for base in cls.__mro__:
            is_own = self._is_own(base.__module__)
            for name, value in list(vars(base).items()):
                if not is_own and not (isinstance(value, types.FunctionType) and self._is_own_function(value)):
                    continue
                if is_of_python(name):
                    continue
                if isinstance(value, property):
                    yield from (value.fget, value.fset, value.fdel)
                else:
                    yield getattr(value, "__func__", value)

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        """The values that a function can reach by name, also through modules.

        Of other modules only the functions of the script, which have replaced functions of these modules.
        """
        yield function.__code__
        yield dict(vars(function))
        names = set(owned_generators.names_in(function.__code__))
        used = list(owned_generators.used_by(function))
        yield from used
        # A module that the function itself imports is in `sys.modules` after the first import.
        waiting = used + [sys.modules[name] for name in sorted(names) if name in sys.modules]
        seen = set()
        for module in waiting:
            if not isinstance(module, types.ModuleType) or id(module) in seen:
                continue
            seen.add(id(module))
            bound = places.names_of(module)
            is_own = self._is_own(bound.get("__name__"))
            for name in sorted(names & bound.keys()):
                value = bound[name]
                waiting.append(value)
                if is_own or (isinstance(value, types.FunctionType) and self._is_own_function(value)):
                    yield value
        self.libraries.update(name for name in map(owned_generators.module_of, waiting) if places.is_installed(name))

    def _is_own(self, name: object) -> bool:
        """Whether a module is the user's, or is examined like one."""
        return places.is_user_module(name) or (isinstance(name, str) and name.partition(".")[0] in self._packages)

    def _is_own_function(self, function: types.FunctionType) -> bool:
        if places.is_user_file(function.__code__.co_filename):
            return True
        name = function.__globals__.get("__name__")
        return isinstance(name, str) and name.partition(".")[0] in self._packages


_CODE = type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType, types.CodeType


class _Collecting(pickle.Pickler):
    """Notes the values in the pickle, except plain ones."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.values: list[Any] = []

    def persistent_id(self, value: object) -> None:
        """Called for every value in the pickle."""
        if type(value) not in PLAIN:
            self.values.append(value)


def is_of_python(name: str) -> bool:
    """Whether Python defines this name in a class."""
    return name in _OF_PYTHON or name.startswith("_abc_")


def _text_of(dtype: numpy.dtype) -> bytes:
    return (dtype.str if dtype.names is None else repr(dtype)).encode()


def _is_flat(value: object) -> bool:
    return type(value) in PLAIN or (type(value) is tuple and PLAIN.issuperset(map(type, value)))


def _is_submodule(value: object, module: str, name: str) -> bool:
    return isinstance(value, types.ModuleType) and places.names_of(value).get("__name__") == f"{module}.{name}"


def slots_of(value: object) -> Iterator[tuple[str, Any]]:
    """Pairs of names and values of the slots of an object, from `__slots__` of its classes."""
    for base in type(value).__mro__:
        if "__slots__" in vars(base):
            for name, slot in sorted(vars(base).items()):
                if isinstance(slot, types.MemberDescriptorType):
                    # A slot without a value raises.
                    with contextlib.suppress(AttributeError):
                        yield name, slot.__get__(value, type(value))


_NOTHING = ()


def _contents_of(value: Any) -> Sequence[Any]:
    """The contents from which a container is made; nothing for an object that is no container."""
    import numpy

    if isinstance(value, dict):
        return [getattr(value, "default_factory", None), list(value), list(value.values())]
    if isinstance(value, collections.deque):
        return [value.maxlen, list(value)]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [list(value)]
    if isinstance(value, numpy.ndarray):
        return [numpy.asarray(value)]
    return _NOTHING


def _packages_of(dataset: Any) -> frozenset[str]:
    """The names of the installed packages that define the class of a data set or its bases, except frameworks."""
    names = {base.__module__ for base in type(dataset).__mro__ if isinstance(base.__module__, str)}
    packages = {name.partition(".")[0] for name in names if places.is_installed(name)}
    return frozenset(packages) - places.COUNTING
