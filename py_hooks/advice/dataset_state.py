"""What a data set is made of, so that worker processes see what happens to it in the process that trains.

Worker processes are copies of the trainer of the moment when they started. Afterwards the trainer's data set may change:
`on_epoch_end` shuffles indices, a callback sets an attribute, or a global that `__getitem__` reads. `DatasetState` is a
mark of everything that a data set can reach, as `owned_generators.py` reaches generators: attributes, containers,
objects, classes and functions of the script's own, and the names that these use. Attributes that changed are sent
(`Update`); where anything else changed, or cannot be seen, the workers have to be new copies.

Not seen is what only C code holds, and changes of single elements in arrays of more than 64 MiB, of which evenly spaced
blocks are read (`fingerprint.checksum`).
"""
import functools
import hashlib
import io
import marshal
import os
import pickle
import types

from py_hooks.advice import fingerprint, owned_generators, places

# Of objects that are looked at. More take longer than new copies of the trainer do.
_MAX_OBJECTS = 50000

# Of what is sent. To copy more takes longer than new copies of the trainer do.
_MAX_BYTES = 64 << 20

# What a class has by itself; `__slotnames__` it has once one of its objects was pickled.
_OF_PYTHON = ("__dict__", "__weakref__", "__doc__", "__module__", "__slotnames__")

_PLAIN = {type(None), bool, int, float, complex, str, bytes}


class DatasetState:
    """A data set as it is now, and what has changed since."""

    def __init__(self, dataset):
        self._dataset = dataset
        self._marks = _marks(dataset)
        self._changed = set()

    def changes(self):
        """Pickled values of all attributes that have changed since the beginning; None where that is not all."""
        marks = _marks(self._dataset)
        before, self._marks = self._marks, marks
        if marks is None or before is None or marks[_AROUND] != before[_AROUND]:
            return None
        self._changed |= {name for name in marks.keys() | before.keys() if marks.get(name) != before.get(name)}
        attributes = vars(self._dataset)
        file = io.BytesIO()
        try:
            _Pickler(file, self._dataset).dump(
                (
                    {name: attributes[name] for name in self._changed if name in attributes},
                    [name for name in self._changed if name not in attributes],
                )
            )
        except Exception:  # noqa: BLE001 - whatever objects of the script do when they are pickled
            return None
        return file.getvalue() if file.tell() <= _MAX_BYTES else None


class Update:
    """What has changed in the data set since its workers started.

    Args:
        file: in memory, and shared with the workers.

    Attributes:
        number: which of the updates it is; 0 where nothing has changed.
    """

    def __init__(self, file):
        self._file = file
        self._last = pickle.dumps(({}, []), pickle.HIGHEST_PROTOCOL)
        self._applied = 0
        self.number = 0

    def write(self, changes):
        """In the trainer: `DatasetState.changes`. No worker reads meanwhile. Returns False for None."""
        if changes is not None and changes != self._last:
            os.ftruncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), changes, 0)
            self._last = changes
            self.number += 1
        return changes is not None

    def read(self, dataset, number):
        """In a worker: makes the data set what it is in the trainer. Returns whether anything had changed."""
        if number == self._applied:
            return False
        self._applied = number
        size = os.fstat(self._file.fileno()).st_size
        text = io.BytesIO(os.pread(self._file.fileno(), size, 0))
        values, removed = _Unpickler(text, dataset).load()
        attributes = vars(dataset)
        attributes.update(values)
        for name in removed:
            attributes.pop(name, None)
        return True


class _Pickler(pickle.Pickler):
    """The data set stands for itself."""

    def __init__(self, file, dataset):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._dataset = dataset

    def persistent_id(self, value):
        return 0 if value is self._dataset else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, dataset):
        super().__init__(file)
        self._dataset = dataset

    def persistent_load(self, _):
        return self._dataset


# -- marks -------------------------------------------------------------------------------------------------------------

# What is no attribute: the data set's class, and what its methods use.
_AROUND = object()


def _marks(dataset):
    """A mark of each attribute, and of what is around; None where there is too much, or it cannot be told."""
    try:
        attributes = dict(vars(dataset))
    except TypeError:
        return None
    budget = [_MAX_OBJECTS]
    if hasattr(type(dataset), "__slots__") and isinstance(dataset, (list, tuple, dict, set)):
        return None
    marks = {name: _mark([value], dataset, budget) for name, value in attributes.items()}
    marks[_AROUND] = _mark([type(dataset)], dataset, budget)
    return marks if budget[0] > 0 else None


def _mark(values, dataset, budget):
    """16 bytes: equal as long as nothing that these values reach has changed, in this process."""
    digest = hashlib.blake2b(digest_size=16)
    # With the values, so that what is made for this look alone does not give its place to another.
    waiting, seen = list(values), {id(dataset): (0, dataset)}
    while waiting and budget[0] > 0:
        budget[0] -= 1
        value = waiting.pop()
        kind = type(value)
        if kind in _PLAIN:
            digest.update(marshal.dumps(value, 2))
            continue
        if id(value) in seen:
            digest.update(b"seen%d" % seen[id(value)][0])
            continue
        seen[id(value)] = len(seen), value
        digest.update(b"%d" % id(kind))
        _look_into(value, kind, digest, waiting)
    return digest.digest()


def _look_into(value, kind, digest, waiting):
    import numpy

    for kinds, look in (
        ((type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType), _look_into_code),
        (numpy.ndarray, _look_into_array),
        ((bytearray, numpy.generic), lambda value, digest, waiting: digest.update(bytes(value))),
        (types.MethodType, lambda value, digest, waiting: waiting.extend((value.__self__, value.__func__))),
        (functools.partial, lambda value, digest, waiting: waiting.extend((value.func, value.args, value.keywords))),
    ):
        if isinstance(value, kinds):
            look(value, digest, waiting)
            return
    if kind is dict:
        _look_into_dict(value, digest, waiting)
    elif kind in (list, tuple, set, frozenset):
        _look_into_list(value, digest, waiting)
    # A generator has a state of its own for each item.
    elif not owned_generators.is_generator(value):
        _look_into_object(value, kind, digest, waiting)


def _look_into_code(value, digest, waiting):
    digest.update(b"%d" % id(value))
    if isinstance(value, type):
        waiting.extend(_of_class(value))
    elif isinstance(value, types.FunctionType) and places.is_user_file(value.__code__.co_filename):
        waiting.extend(_of_function(value))


def _look_into_array(value, digest, waiting):
    digest.update(f"{value.dtype.str}{value.shape}".encode())
    if value.dtype.hasobject:
        waiting.extend(value.ravel().tolist())
    else:
        digest.update(b"%d" % fingerprint.checksum(value))


def _look_into_list(value, digest, waiting):
    digest.update(b"%d" % len(value))
    if _PLAIN.issuperset(map(type, value)):
        digest.update(marshal.dumps(list(value), 2))
    else:
        waiting.extend(value)


def _look_into_dict(value, digest, waiting):
    digest.update(b"%d" % len(value))
    if _PLAIN.issuperset(map(type, value)) and _PLAIN.issuperset(map(type, value.values())):
        digest.update(marshal.dumps(value, 2))
    else:
        for pair in list(value.items()):
            waiting.extend(pair)


def _look_into_object(value, kind, digest, waiting):
    import numpy

    attributes = getattr(value, "__dict__", None)
    if fingerprint.is_tensor_like(value):
        waiting.append(numpy.asarray(value))
    elif isinstance(value, (list, tuple, set, frozenset)):
        waiting.extend(value)
    elif isinstance(value, dict):
        for pair in list(value.items()):
            waiting.extend(pair)
    elif attributes is None:
        slots = [name for base in kind.__mro__ for name in _names(getattr(base, "__slots__", ()))]
        if slots:
            waiting.extend(getattr(value, name) for name in slots if hasattr(value, name))
        else:
            _look_into_pickle(value, digest)
    if attributes is not None:
        _look_into_dict(dict(attributes), digest, waiting)
        waiting.append(kind)


def _look_into_pickle(value, digest):
    """An object of C code shows what it is by its pickle; one that has none is taken for what it is by itself."""
    try:
        digest.update(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
    except Exception:  # noqa: BLE001 - a lock, an open file, a data set of HDF5
        digest.update(b"%d" % id(value))


def _names(slots):
    return (slots,) if isinstance(slots, str) else slots


def _of_class(cls):
    """What is bound in a class of the script's own, and in its bases that are."""
    for base in cls.__mro__:
        functions = [getattr(value, "__func__", value) for value in vars(base).values()]
        if any(isinstance(one, types.FunctionType) and places.is_user_file(one.__code__.co_filename) for one in functions):
            for name, value in vars(base).items():
                if name not in _OF_PYTHON and not name.startswith("_abc_"):
                    yield getattr(value, "__func__", value) if not isinstance(value, property) else value.fget


def _of_function(function):
    """What a function can reach by name, also through modules of the script's own."""
    yield id(function.__code__)
    names = set(owned_generators.names_in(function.__code__))
    for value in owned_generators.used_by(function):
        yield value
        if isinstance(value, types.ModuleType) and places.is_user_file(getattr(value, "__file__", None) or ""):
            yield from (vars(value)[name] for name in sorted(names & vars(value).keys()))
