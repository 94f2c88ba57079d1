"""The state of a data set, so that worker processes see the changes to it in the process that trains.

Worker processes are copies of the trainer at the moment when they started. Afterwards the trainer's data set may change:
`on_epoch_end` shuffles indices, a callback sets an attribute, or a global that `__getitem__` reads. `DatasetState` is a
mark of everything that a data set can reach (`marks.py`), and of the settings of the packages that its code uses, of
the process and of its environment (`settings.py`). Attributes that changed are sent (`Update`), if a copy of them
is equivalent: nothing in them is also held by what is not sent (`sharing.py`), draws random numbers, or defines how it is
pickled. If anything else changed, or cannot be seen, the workers have to be new copies.
"""
from __future__ import annotations

import io
import os
import pickle

from py_hooks import places
from py_hooks.own_account import on_own_account
from py_hooks.random_numbers import owned_generators
from py_hooks.workers.transfer import marks, settings
from py_hooks.workers.transfer.sharing import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

# The size of what is sent. Copying more takes longer than making new copies of the trainer.
_MAX_BYTES = 64 << 20

# The methods by which a class defines what a copy is made of.
_OF_PICKLES = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


class DatasetState:
    """A data set as it is now, and what has changed since.

    Args:
        dataset: the data set of the script.
        pickler: makes a `Pickler` from a file and the data set, for what has changed.
        modules: names of the user's modules that it may use, in which each name counts.

    Attributes:
        untold: those of the last `differences` that may be none, because they cannot be compared.
    """

    def __init__(
        self, dataset: Any, pickler: Callable[[io.BytesIO, Any], Pickler] | None = None, modules: Iterable[str] = ()
    ) -> None:
        self._dataset = dataset
        self._pickler = pickler or Pickler
        self._modules = modules
        look = self._look()
        self._marks, self._set_to = look.marks, _set_to(look)
        self._changed: set[Any] = set()
        self.untold: frozenset[str] = frozenset()

    @on_own_account
    def _look(self) -> marks.Look:
        return marks.Look(self._dataset, modules=self._modules)

    def differences(self) -> list[str]:
        """The names of attributes that differ from the last call of `changes`, or from the creation of this object.

        An empty name is among them if something else differs. What cannot be compared counts as different.
        """
        now = self._look().marks
        self.untold = frozenset(_shown(name) for name, mark in now.items() if mark is None)
        return sorted(_shown(name) for name in self._different(now))

    def _different(self, now: Mapping[Any, bytes | None]) -> set[Any]:
        before = self._marks
        names = now.keys() | before.keys()
        return {name for name in names if now.get(name) != before.get(name) or now.get(name, b"") is None}

    def changes(self) -> bytes | None:
        """Pickled values of all attributes that have changed since the beginning; None if these are not all changes."""
        look = self._look()
        changed = self._different(look.marks)
        before, self._marks = self._marks, look.marks
        set_before, self._set_to = self._set_to, _set_to(look)
        if self._set_to is None or self._set_to != set_before:
            return None
        if None in look.marks.values() or marks.AROUND in changed or changed & look.slots:
            return None
        if any(_code_of(look.marks.get(name)) != _code_of(before.get(name)) for name in changed & look.marks.keys()):
            # The names that classes and functions use are not sent with them.
            return None
        self._changed |= changed
        attributes = getattr(self._dataset, "__dict__", None)
        if attributes is None:
            return None
        file = io.BytesIO()
        try:
            pickler = self._pickler(file, self._dataset)
            pickler.dump(
                (
                    {name: attributes[name] for name in self._changed if name in attributes},
                    [name for name in self._changed if name not in attributes],
                )
            )
            pickler.held.refuse_overlap()
            kept = [value for name, values in look.reached.items() if name not in self._changed for value in values]
            if any(map(_is_more_than_its_copy, pickler.held.values.values())) or pickler.held.is_shared_with(kept):
                return None
        except Exception:  # noqa: BLE001 - whatever objects of the script do when they are pickled, or asked
            return None
        if not look.is_closed and len(pickler.held.values) > _OF_AN_UPDATE:
            return None
        return file.getvalue() if file.tell() <= _MAX_BYTES else None


def _set_to(look: marks.Look) -> tuple[dict[str, str], dict[str, Any], dict[str, bytes]] | None:
    """The settings around the data set; None if they cannot be read."""
    try:
        return dict(os.environ), settings.of_process(), settings.of_packages(look.libraries)
    except (OSError, settings.TooMuch):
        return None


def _shown(name: Any) -> str:
    return "" if name is marks.AROUND else name


# The objects in an update: a dict of values, and a list of names.
_OF_AN_UPDATE = 2


def _code_of(mark: bytes | None) -> bytes:
    """The half of a mark that covers code; the one for no code if there is no mark."""
    return marks.NO_CODE if mark is None else mark[16:]


def _is_more_than_its_copy(value: object) -> bool:
    """Whether a worker that gets a copy could draw other random numbers, or have less than a forked worker."""
    if owned_generators.is_generator(value):
        return True
    own = (base for base in type(value).__mro__ if places.is_user_module(base.__module__))
    return any(name in vars(base) for base in own for name in _OF_PICKLES)


class Update:
    """What has changed in the data set since its workers started.

    Args:
        file: a file in memory that the workers share.

    Attributes:
        number: the number of the update; 0 if nothing has changed.
    """

    def __init__(self, file: io.FileIO) -> None:
        self._file = file
        self._last = pickle.dumps(({}, []), pickle.HIGHEST_PROTOCOL)
        self._applied = 0
        self.number = 0

    @property
    def descriptor(self) -> int:
        """The descriptor of the file."""
        return self._file.fileno()

    def write(self, changes: bytes | None) -> bool:
        """In the trainer: writes `DatasetState.changes`. No worker reads meanwhile. Returns False for None."""
        if changes is not None and changes != self._last:
            os.ftruncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), changes, 0)
            self._last = changes
            self.number += 1
        return changes is not None

    def read(self, dataset: Any, number: int) -> bool:
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


class Pickler(pickle.Pickler):
    """A pickler that refers to the data set and does not copy it.

    Attributes:
        held: the values that the pickle has copies of.
    """

    def __init__(self, file: io.BytesIO, dataset: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._dataset = dataset
        self.held = Held()

    def persistent_id(self, value: object) -> int | None:
        """The id that replaces the pickle of a value, or None."""
        if type(value) in marks.PLAIN:
            return None
        if value is self._dataset:
            return 0
        self.held.add(value)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, dataset: Any) -> None:
        super().__init__(file)
        self._dataset = dataset

    def persistent_load(self, _: object) -> Any:
        return self._dataset
