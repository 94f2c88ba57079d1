"""Decides whether a data set can be sent to a process that is no copy of the training process, and be the same there.

It is pickled, and a pickle refers to classes and functions by their modules. The receiver imports these modules again,
without what the script has changed since it imported them. A data set is sent only if this makes no difference:

- nothing in it is from the script itself (`__main__`), which is not imported again;
- user modules that its classes need only define things (`definitions.py`). A module that loads data, prints
  or sets something must do so only once;
- nothing in it is also held by these modules, or by those of libraries: it would be another object there (`sharing.py`);
- everything that it reaches, and everything that is bound in these modules, has the same marks there (`marks.portable`);
- the packages that it uses, and the process, have the same settings (`settings.py`).

Source of what a pickle holds: cpython 3.13, Lib/pickle.py, `_Pickler.save`.
"""
from __future__ import annotations

import io
import sys
import types

from py_hooks import places
from py_hooks.workers.transfer import settings
from py_hooks.workers.transfer.dataset_state import Pickler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from py_hooks.workers.transfer.sharing import Held

# A larger data set is not sent: forked processes share it without a copy.
_MAX_BYTES = 64 << 20


# Used instead of a data set if the data set itself is pickled.
_NOT_THERE = object()


class NotSendable(Exception):
    """A data set cannot be sent; the text says why."""


class SendingPickler(Pickler):
    """Pickles a value that refers to nothing of the script itself, and is not too large.

    Args:
        known: `globals` of the pickle that was compared in the other process; no others are allowed. None allows any.

    Attributes:
        modules: names of the modules that the pickle refers to.
        globals: the module name and the qualified name of each class and function that the pickle refers to.
    """

    def __init__(self, file: io.BytesIO, dataset: Any = _NOT_THERE, known: Collection[tuple[str, str]] | None = None) -> None:
        super().__init__(file, dataset)
        self.modules: set[str] = set()
        self.globals: set[tuple[str, str]] = set()
        self._known = known
        self._bytes = 0

    def persistent_id(self, value: object) -> int | None:
        """Checks each value of the pickle before it is copied."""
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


def pickled(dataset: Any) -> tuple[bytes, SendingPickler]:
    """A data set's pickle, and the `SendingPickler` that made it.

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
    framework = places.FRAMEWORKS.intersection(name.partition(".")[0] for name in pickler.modules)
    if framework:
        # Reading it would start the threads of the framework in the process that forks workers.
        raise NotSendable(f"it holds what is of `{min(framework)}`")
    if file.tell() > _MAX_BYTES:
        raise NotSendable(f"it has more than {_MAX_BYTES >> 20} MiB")
    return file.getvalue(), pickler


def cause_in(dataset: Any, dumps: Callable[[Any], object] | None = None) -> str | None:
    """Which attribute of a data set cannot be pickled, and why; None if each of them can.

    Args:
        dataset: its `__dict__` is searched.
        dumps: pickles a value; by default, as for a worker server.
    """
    dumps = dumps or (lambda value: SendingPickler(io.BytesIO(), dataset).dump(value))
    for name, value in sorted(getattr(dataset, "__dict__", {}).items()):
        try:
            dumps(value)
        except Exception as error:  # noqa: BLE001 - whatever the class of the script's does
            return f"its attribute `{name}` cannot be pickled ({error})"
    return None


def refuse_shared(held: Held, around: Iterable[Any], libraries: Iterable[str]) -> None:
    """Raises `NotSendable` if a module also holds something that is sent: there it would be another object.

    Args:
        held: the `sharing.Held` of the pickle.
        around: values that the user's modules hold.
        libraries: names of modules of packages.
    """
    packages = settings.packages_of(libraries)
    bound = [
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in packages
        for value in list(places.names_of(module).values())
    ]
    if held.is_shared_with([*around, *bound]):
        raise NotSendable("it holds what a module holds, too, or a part of it")
