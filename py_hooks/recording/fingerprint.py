"""Short checksums of the arguments of a call, to detect a replayed call that differs from the recorded one.

Arrays up to `WHOLE_BYTES` are read whole. Of larger ones, evenly spaced blocks are read that add up to about as much. A
fingerprint contains types, shapes and values of the kinds that it knows, and only the type of anything else.
"""
from __future__ import annotations

import zlib

from py_hooks.own_account import on_own_account

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sized
    from typing import Any

    import numpy

# About 30 ms of reading. More would noticeably delay the start of a fit; less would miss a change in a data set of the
# size of MNIST in float32 (188 MB is covered by every third block).
WHOLE_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 16
# Of deeper nests (a Sequence that holds Sequences) only the type is named.
_MAX_DEPTH = 4
_MAX_ITEMS = 1000
# Read of each array in a batch. Every call on a batch reads it first.
_QUICK_BYTES = 3 << 10


def checksum(array: numpy.ndarray) -> int:
    """crc32 of an array's bytes in C order; of blocks of them if the array is larger than `WHOLE_BYTES`."""
    import numpy

    if array.dtype.hasobject:
        return zlib.crc32(repr(array.ravel()[:_MAX_ITEMS].tolist()).encode())
    data = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
    if data.nbytes <= WHOLE_BYTES:
        return zlib.crc32(data)
    blocks = WHOLE_BYTES // _BLOCK_BYTES
    distance = data.nbytes // blocks
    crc = 0
    for block in range(blocks):
        start = block * distance
        crc = zlib.crc32(data[start:start + _BLOCK_BYTES], crc)
    return crc


@on_own_account
def describe(value: Any, depth: int = 0) -> str:
    """A short text about a value: equal for equal values, in every process."""
    import numpy

    if value is None or isinstance(value, (bool, int, float, str, bytes, numpy.generic)):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:40]}… crc {zlib.crc32(text.encode()):08x}"
    if isinstance(value, numpy.ndarray):
        return f"array{value.shape} {value.dtype} crc {checksum(value):08x}"
    if depth >= _MAX_DEPTH:
        return type(value).__name__
    if isinstance(value, (list, tuple)):
        return _nest(value, "[{}]", [describe(item, depth + 1) for item in value[:_MAX_ITEMS]])
    if isinstance(value, dict):
        items = list(value.items())[:_MAX_ITEMS]
        return _nest(value, "{{{}}}", [f"{key!r}: {describe(item, depth + 1)}" for key, item in items])
    if is_tensor_like(value):
        return describe(numpy.asarray(value), depth)
    attributes = getattr(value, "__dict__", None) if not is_symbolic(value) else None
    if attributes and hasattr(value, "__getitem__") and hasattr(value, "__len__"):
        public = {name: attributes[name] for name in sorted(attributes) if _is_compared(name, attributes[name])}
        return f"{type(value).__name__}({len(value)}, {describe(public, depth + 1)})"
    return type(value).__name__


def is_tensor_like(value: object) -> bool:
    """Whether a value is a tensor of a framework: it has a shape and a dtype and is convertible, and is not symbolic."""
    is_array = hasattr(value, "__array__") and hasattr(value, "shape") and hasattr(value, "dtype")
    return is_array and not is_symbolic(value)


def is_symbolic(value: object) -> bool:
    """Whether a value is a placeholder for one that a graph will compute. On a tensor with a value, these attributes raise."""
    return hasattr(value, "graph") and hasattr(value, "op")


def holds_symbolic(values: Iterable[Any]) -> bool:
    """Whether one of the values, or of those in lists and dicts among them, is a placeholder for what a graph will compute."""
    return any(
        holds_symbolic(value.values() if isinstance(value, dict) else value)
        if isinstance(value, (list, tuple, dict))
        # The second condition: an iterator of TensorFlow 1.
        else is_symbolic(value) or hasattr(value, "get_next")
        for value in values
    )


def quick(values: Iterable[Any]) -> int:
    """crc32 of a batch: of the first, middle and last kilobyte of every array. For calls made once per batch.

    `Trial.batch_checksum` is faster, and accepts plain arrays only.
    """
    import numpy

    crc = 0
    for value in values:
        if isinstance(value, (list, tuple)):
            crc = zlib.crc32(b"%d" % quick(value), crc)
        elif isinstance(value, dict):
            crc = zlib.crc32(b"%d" % quick(list(value.values())), crc)
        elif isinstance(value, numpy.ndarray) and not value.dtype.hasobject:
            crc = zlib.crc32(_ends(value), zlib.crc32(repr(value.shape).encode(), crc))
        elif value is not None:
            crc = zlib.crc32(describe(value).encode(), crc)
    return crc


def _ends(array: numpy.ndarray) -> bytes:
    """The bytes of the first, middle and last kilobyte of an array; all of a smaller one."""
    if array.nbytes <= _QUICK_BYTES:
        return array.tobytes()
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel()
    count = max(1, _QUICK_BYTES // 3 // flat.itemsize)
    middle = flat.size // 2
    return b"".join((flat[:count].tobytes(), flat[middle:middle + count].tobytes(), flat[-count:].tobytes()))


def _nest(value: Sized, form: str, parts: Iterable[str]) -> str:
    text = form.format(", ".join(parts))
    if len(value) > _MAX_ITEMS:
        text += f" of {len(value)}"
    return text if len(text) <= 400 else f"{text[:120]}… crc {zlib.crc32(text.encode()):08x}"


# Attributes of a `PyDataset` of Keras 3 that only describe how the machine builds it (keras 3.15.1, py_dataset_adapter.py).
_OF_THE_MACHINE = ("_workers", "_use_multiprocessing", "_max_queue_size", "workers", "use_multiprocessing", "max_queue_size")


def _is_compared(name: str, value: object) -> bool:
    return name not in _OF_THE_MACHINE and _is_plain(value)


def _is_plain(value: object) -> bool:
    import numpy

    return value is None or isinstance(value, (bool, int, float, str, bytes, list, tuple, dict, numpy.ndarray))
