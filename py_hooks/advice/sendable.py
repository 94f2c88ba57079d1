"""Whether a data set can be sent to a process that is no copy of the one that trains, and be the same there.

It is pickled, which refers to classes and functions by their modules. So these are imported again where it is read, and
what the script has done since it imported them is not there. A data set is sent only where nothing of that shows:

- nothing in it is of the script itself (`__main__`), which is not imported again;
- modules of the user's that its classes need do nothing but define (`definitions.py`). A module that loads data, prints
  or sets something does so once only;
- nothing in it is also held by these modules, or by those of libraries: it would be another object there (`sharing.py`);
- everything that it reaches, and everything that is bound in these modules, has the same marks there (`marks.portable`);
- the modules of libraries that it uses have the same settings (`settings`): flags, numbers, texts, and containers of
  such up to some size; and so has the process (`process_settings`).

Not seen are objects of other kinds that libraries hold, such as one whose attribute the script has set.

Source of what a pickle holds: cpython 3.13, Lib/pickle.py, `_Pickler.save`.
"""
import hashlib
import io
import os
import sys
import types

from py_hooks.advice import marks, places
from py_hooks.advice.dataset_state import Pickler

# What is larger stays where it is: forked processes share it without a copy.
_MAX_BYTES = 64 << 20


# Stands for no data set, where the data set itself is pickled.
_NOT_THERE = object()


class NotSendable(Exception):
    """A data set has to stay where it is; the text says why."""


class SendingPickler(Pickler):
    """Pickles what refers to nothing of the script itself, and is not too large.

    Args:
        known: `globals` of the pickle that was compared in the other process; no others may come. None for any.

    Attributes:
        modules: names of those that it refers to.
        globals: the module's and the own name of each class and function that it refers to.
    """

    def __init__(self, file, dataset=_NOT_THERE, known=None):
        super().__init__(file, dataset)
        self.modules = set()
        self.globals = set()
        self._known = known
        self._bytes = 0

    def persistent_id(self, value):
        """Asked for everything in the pickle, before it is copied into it."""
        size = len(value) if isinstance(value, (bytes, bytearray, str)) else getattr(value, "nbytes", 0)
        self._bytes += size if type(size) is int else 0
        if self._bytes > _MAX_BYTES:
            raise NotSendable(f"it has more than {_MAX_BYTES >> 20} MiB")
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
            module = getattr(value, "__module__", None)
            if module == "__main__":
                raise NotSendable(f"`{value.__qualname__}` is defined in the script itself")
            if module is not None:
                self.modules.add(module)
            name = module, value.__qualname__
            if self._known is not None and name not in self._known:
                raise NotSendable(f"`{value.__qualname__}` was not compared in the other process")
            self.globals.add(name)
        return super().persistent_id(value)


def pickled(dataset):
    """A data set's pickle, and the `SendingPickler` that has made it.

    Raises:
        NotSendable: it cannot be pickled, or is too large; the text names the attribute.
    """
    if type(dataset).__module__ == "__main__":
        # The usual case, which costs nothing.
        raise NotSendable(f"`{type(dataset).__qualname__}` is defined in the script itself")
    file = io.BytesIO()
    pickler = SendingPickler(file)
    try:
        pickler.dump(dataset)
        pickler.held.refuse_overlap()
    except Exception as error:  # noqa: BLE001 - whatever the class of the script's does
        raise NotSendable(cause_in(dataset) or f"it cannot be pickled ({error})") from None
    framework = marks.FRAMEWORKS.intersection(name.partition(".")[0] for name in pickler.modules)
    if framework:
        # To read it would start the threads of the framework where workers are forked.
        raise NotSendable(f"it holds what is of `{min(framework)}`")
    if file.tell() > _MAX_BYTES:
        raise NotSendable(f"it has more than {_MAX_BYTES >> 20} MiB")
    return file.getvalue(), pickler


def cause_in(dataset, dumps=None):
    """Which attribute of a data set cannot be pickled, and why; None where each of them can.

    Args:
        dataset: its `__dict__` is looked through.
        dumps: pickles a value; without it, as what is sent to a worker server is.
    """
    dumps = dumps or (lambda value: SendingPickler(io.BytesIO(), dataset).dump(value))
    for name, value in sorted(getattr(dataset, "__dict__", {}).items()):
        try:
            dumps(value)
        except Exception as error:  # noqa: BLE001 - whatever the class of the script's does
            return f"its attribute `{name}` cannot be pickled ({error})"
    return None


# -- settings of libraries ---------------------------------------------------------------------------------------------

# A name in the modules of frameworks that have the settings of Keras.
_OF_KERAS = "_FLOATX"

# Containers of more are data, not settings. What a cache holds counts as long as it is smaller: the script has filled it.
_MAX_ELEMENTS = 1000
_MAX_DEPTH = 4
_CONTAINERS = (list, tuple, set, frozenset, dict)


def settings(libraries):
    """A mark of the settings in each module of the packages that these modules belong to, by the module's name."""
    packages = _packages_of(libraries)
    found = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType):
            continue
        names = places.names_of(module)
        if name.partition(".")[0] in packages or _OF_KERAS in names:
            values = repr(_plain_values(names)).encode("utf-8", "replace")
            found[name] = hashlib.blake2b(values, digest_size=8).digest()
    return found


def refuse_shared(held, around, libraries):
    """Raises `NotSendable` where what is sent is also held by a module, in which it would be another object.

    Args:
        held: the `sharing.Held` of the pickle.
        around: values that the user's modules hold.
        libraries: names of modules of packages.
    """
    packages = _packages_of(libraries)
    bound = [
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in packages
        for value in list(places.names_of(module).values())
    ]
    if held.is_shared_with([*around, *bound]):
        raise NotSendable("it holds what a module holds, too, or a part of it")


def _packages_of(libraries):
    return {name.partition(".")[0] for name in libraries} - marks.COUNTING - _of_python()


def process_settings():
    """What a script may set in its process or thread, by what it is called."""
    import decimal
    import locale
    import logging
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
        "warnings": [(action, str(text), category.__name__) for action, text, category, _, _ in warnings.filters],
        "torch.set_default_dtype": str(torch.get_default_dtype()) if hasattr(torch, "get_default_dtype") else None,
        "torch.set_num_threads": torch.get_num_threads() if hasattr(torch, "get_num_threads") else None,
        "sys.stdout": sys.stdout is sys.__stdout__,
        "time.tzset": (time.tzname, time.localtime(0)[:6]),
        "PYTHONHASHSEED": hash("x"),
        "denormal numbers": _denormals(),
    }


def _denormals():
    """Whether this thread computes denormal numbers, and whether it reads them."""
    import numpy

    with numpy.errstate(all="ignore"):
        made = numpy.array([1e-38], "float32") * numpy.array([0.1], "float32")
        read = numpy.array([1], "uint32").view("float32") * numpy.array([1e30], "float32")
    return bool(made.view("uint32")[0]), bool(read.view("uint32")[0])


def _of_python():
    """The names of the modules of Python's own library."""
    known = getattr(sys, "stdlib_module_names", None)
    if known is not None:
        return known
    return {
        name
        for name, module in list(sys.modules.items())
        if not any(folder in (places.file_of(module) or "") for folder in ("site-packages", "dist-packages"))
        and not places.is_user_file(places.file_of(module) or __file__)
    }


def _plain_values(names):
    # Containers of Keras are of what it has made so far.
    depth = _MAX_DEPTH if _OF_KERAS in names else 0
    found = ((name, value) for name, value in list(names.items()) if not name.startswith("__"))
    return sorted((name, repr(value)) for name, value in found if _is_plain(value, depth))


def _is_plain(value, depth):
    if type(value) in marks.PLAIN:
        return True
    if type(value) not in _CONTAINERS or depth == _MAX_DEPTH or len(value) > _MAX_ELEMENTS:
        return False
    elements = [*value, *value.values()] if type(value) is dict else list(value)
    return all(_is_plain(one, depth + 1) for one in elements)
