"""Checks whether a pickle copies an object, or the memory of an array, that something outside the pickle also holds.

The copy does not see later changes by the other holder. So the objects of a pickle are noted, and compared with
all others.
"""
from __future__ import annotations

import array
import datetime
import decimal
import enum
import fractions
import logging
import mmap
import pathlib
import pickle
import re
import sys
import types
import uuid

from py_hooks.random_numbers import owned_generators

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import numpy

# Types whose objects never change, or are pickled as a name.
_EXACTLY = frozenset([type(None), bool, int, float, complex, str, bytes, tuple, frozenset, range, slice])
_WITHOUT_IDENTITY = (
    type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.CodeType, enum.Enum,
    logging.Logger, pathlib.PurePath, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    fractions.Fraction, uuid.UUID, type(re.compile("")),
)
_SETS = set, frozenset
_MEMORY = bytearray, array.array


def has_identity(value: object) -> bool:
    """Whether an object differs from an equal one by its identity."""
    if type(value) in _EXACTLY or isinstance(value, _WITHOUT_IDENTITY):
        return False
    numpy = sys.modules["numpy"]
    return isinstance(value, numpy.void) or not isinstance(value, (numpy.generic, numpy.dtype))


class Held:
    """The objects that a pickle copies.

    Attributes:
        values: those that have an identity, by their ids. This object keeps them alive, so that the ids stay theirs.
    """

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def add(self, value: Any) -> None:
        """Notes a value.

        Raises:
            pickle.PicklingError: a copy cannot be the same.
        """
        if type(value) in _SETS:
            _check_order(value)
        if id(value) in self.values or not has_identity(value):
            return
        if owned_generators.is_global(value):
            raise pickle.PicklingError("it holds the global random generator")
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.ndarray):
            _check_array(value)
        elif isinstance(value, numpy.void) and value.base is not None:
            raise pickle.PicklingError("a row of an array that is not a copy")
        self.values[id(value)] = value

    def refuse_overlap(self) -> None:
        """Raises `pickle.PicklingError` if two of the values share memory."""
        end = 0
        for begin, next_end in sorted(filter(None, map(_memory_of, self.values.values()))):
            if begin < end:
                raise pickle.PicklingError("two arrays that have the same memory")
            end = max(end, next_end)

    def is_shared_with(self, others: Iterable[Any]) -> bool:
        """Whether any of these values, or its memory, is shared with one of the others."""
        others = [value for value in others if has_identity(value)]
        if any(id(value) in self.values for value in others):
            return True
        ours = ((memory, True) for memory in map(_memory_of, self.values.values()) if memory)
        theirs = ((memory, False) for memory in map(_memory_of, others) if memory)
        ends = {True: 0, False: 0}
        for (begin, end), is_ours in sorted([*ours, *theirs]):
            if begin < ends[not is_ours]:
                return True
            ends[is_ours] = max(ends[is_ours], end)
        return False


def _check_array(value: numpy.ndarray) -> None:
    if not (value.flags.c_contiguous or value.flags.f_contiguous):
        # The copy would have another order of elements in memory, so its sums would have other bits.
        raise pickle.PicklingError("an array that is not contiguous")
    numpy = sys.modules["numpy"]
    owner = value.base
    while owner is not None:
        if isinstance(owner, memoryview):
            owner = owner.obj
        elif isinstance(owner, numpy.ndarray) and not isinstance(owner, numpy.memmap):
            owner = owner.base
        else:
            break
    if isinstance(owner, (numpy.memmap, mmap.mmap)) or not (owner is None or isinstance(owner, (bytes, *_MEMORY))):
        raise pickle.PicklingError(f"an array in the memory of a `{type(owner).__name__}`")


def _check_order(value: set[Any] | frozenset[Any]) -> None:
    """Refuses a set whose copy has another order of elements: the order may depend on how a set was filled."""
    if len(value) > 1 and list(type(value)(list(value))) != list(value):
        raise pickle.PicklingError("a set whose copy would have its elements in another order")


def _memory_of(value: Any) -> tuple[int, int] | None:
    """The addresses of the first byte of a value's memory, and of the byte after the last; None if it has no memory."""
    numpy = sys.modules["numpy"]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        try:
            value = value.detach().numpy()  # type: ignore[union-attr]  # it is a tensor
        except (TypeError, RuntimeError):
            return None
    elif isinstance(value, _MEMORY):
        value = numpy.frombuffer(value, "uint8") if len(value) else numpy.zeros(0)
    if not isinstance(value, numpy.ndarray) or not value.size:
        return None
    begin = value.__array_interface__["data"][0]
    steps = [(size - 1) * stride for size, stride in zip(value.shape, value.strides)]
    return begin + sum(step for step in steps if step < 0), begin + sum(step for step in steps if step > 0) + value.itemsize
