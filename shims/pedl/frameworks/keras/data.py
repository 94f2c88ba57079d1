"""Data sets of Keras, and the workers that build their batches.

Example:
    train = InMemorySequence(images, labels, batch_size=32)
    return KerasDataAdapter(train, workers=4, use_multiprocessing=True), InMemorySequence(*test, batch_size=32)
"""
from __future__ import annotations

import operator
import os

from pedl import _context, _host
from pedl.errors import NotUnderHost
from pedl.frameworks.keras._sequences import sequence_classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    class _Items(Protocol):
        """A `Sequence` of Keras, or an object with the same items and length."""

        def __len__(self) -> int: ...
        def __getitem__(self, __index: int) -> Any: ...


class KerasDataAdapter:
    """A `Sequence`, and the threads or processes that build its batches.

    Batches come in the order of their indices, once each in every epoch, and `on_epoch_end` of the `Sequence` is called
    at the end of every epoch, as in Keras's `fit_generator`. Their random numbers do not depend on the workers.

    Args:
        sequence: a `Sequence` of Keras or `tf.keras`, or an object with the same `__getitem__` and `__len__`.
        workers: the maximum number of threads or processes that build batches; with 0 the consumer of a batch builds it.
        use_multiprocessing: processes instead of threads.
        max_queue_size: the maximum number of batches that are built, or being built, before they are taken.

    Raises:
        TypeError: an argument of another kind.
        ValueError: less than 0 workers, or no place for a batch.
    """

    def __init__(
        self, sequence: _Items, workers: int = 1, use_multiprocessing: bool = False, max_queue_size: int = 10
    ) -> None:
        is_array = hasattr(sequence, "shape") or isinstance(sequence, (list, tuple, dict, str))
        if is_array or not hasattr(sequence, "__getitem__") or not hasattr(sequence, "__len__"):
            raise TypeError(
                "KerasDataAdapter takes a Sequence, whose items are batches; "
                f"it was given an object of class `{type(sequence).__name__}`\n"
                "  arrays become one by `InMemorySequence(data, labels, batch_size)`"
            )
        self.sequence = sequence
        self.workers = _count("workers", workers, 0)
        self.use_multiprocessing = bool(use_multiprocessing)
        self.max_queue_size = _count("max_queue_size", max_queue_size, 1)
        self._batches: _host.Batches | None = None

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.sequence)

    def start(self, batch_offset: int = 0, is_validation: bool = False) -> None:
        """Begins with the first epoch.

        Args:
            batch_offset: how many batches to skip without building them; it may be larger than an epoch.
            is_validation: one pass, without `on_epoch_end` of the `Sequence` at its end, instead of epoch after epoch.

        Raises:
            NotUnderHost: the script does not run under pedl-run.
            RuntimeError: it was started before, and not stopped since; or no framework is imported.
            ValueError: there are fewer batches than that, or none at all.
        """
        if self._batches is not None:
            raise RuntimeError("this KerasDataAdapter was started already: call its `stop` first")
        offset = _count("batch_offset", batch_offset, 0)
        if is_validation and offset > len(self):
            raise ValueError(f"batch_offset is {offset}; a validation is one pass of {len(self)} batches")
        if not len(self):
            raise ValueError(f"the `{type(self.sequence).__name__}` of this KerasDataAdapter has no batches")
        if _host.current is None:
            raise _without_host()
        self._batches = _host.current.start_batches(self, offset, bool(is_validation))

    def get_iterator(self) -> Iterator[Any]:
        """An iterator over the batches. Each call returns the same one.

        Raises:
            RuntimeError: it was not started.
        """
        if self._batches is None:
            raise RuntimeError("this KerasDataAdapter has no batches yet: call its `start` first")
        return self._batches

    def stop(self, timeout: float | None = None) -> None:
        """Ends the workers, after they have finished their present batches. May be called at any time.

        Args:
            timeout: is ignored.
        """
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()


def _without_host() -> NotUnderHost:
    if _context.VARIABLE in os.environ:
        return NotUnderHost(
            "KerasDataAdapter builds batches in the process that trains; this is another one, which the script has started\n"
            "  start the adapter in the script itself"
        )
    return NotUnderHost(
        "KerasDataAdapter builds batches in the process of a trial, and this script does not run under pedl-run\n"
        f"  start it with: pedl-run {_context.script()}"
    )


class InMemorySequence(*sequence_classes()):  # type: ignore[misc]  # the bases are those of the installed Keras
    """A `Sequence` over arrays.

    Args:
        data: an array, or a list, tuple or dict of arrays; or any other object with a length and slices, such as a list of
            rows. All have the same number of rows.
        labels: the same; or None if there are none, and batches are of the data alone.
        batch_size: rows of a batch, at least 1.
        sample_weight: an array with a weight for each row; or None.
        drop_leftovers: leaves out the last batch if it has fewer rows than others.

    Raises:
        ValueError: numbers of rows differ, or there is nothing in a batch.
    """

    def __init__(
        self, data: Any, labels: Any, batch_size: int, sample_weight: Any = None, drop_leftovers: bool = False
    ) -> None:
        super().__init__()
        parts = [("data", data)]
        if labels is not None:
            parts.append(("labels", labels))
        if sample_weight is not None:
            parts.append(("sample_weight", sample_weight))
        self._parts = [part for _, part in parts]
        self._batch_size = _count("batch_size", batch_size, 1)
        self._drop_leftovers = bool(drop_leftovers)
        lengths = [(name + place, len(array)) for name, part in parts for place, array in _arrays(part)]
        if not lengths:
            raise ValueError("InMemorySequence was given no array")
        first, self._rows = lengths[0]
        for name, rows in lengths:
            if rows != self._rows:
                raise ValueError(
                    f"InMemorySequence takes arrays of as many rows: {first} has {self._rows}, {name} has {rows}"
                )

    def __len__(self) -> int:
        """Batches of an epoch."""
        leftovers = 0 if self._drop_leftovers else self._batch_size - 1
        return (self._rows + leftovers) // self._batch_size

    def __getitem__(self, index: int) -> Any:
        """The batch at an index: data, labels if there are any, and weights if there are any."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of an InMemorySequence that has {len(self)}")
        rows = slice(index * self._batch_size, min((index + 1) * self._batch_size, self._rows))
        batch = tuple(_rows_of(part, rows) for part in self._parts)
        return batch if len(batch) > 1 else batch[0]


def _arrays(part: Any) -> list[tuple[str, Any]]:
    """Pairs of the place of an array, as written after a name, and the array."""
    if isinstance(part, dict):
        return [(f"[{name!r}]", array) for name, array in part.items()]
    if _is_several(part):
        return [(f"[{place}]", array) for place, array in enumerate(part)]
    return [("", part)]


def _is_several(part: Any) -> bool:
    """Whether it is several arrays. A list of anything else is a list of rows."""
    return isinstance(part, (list, tuple)) and bool(part) and all(hasattr(array, "shape") for array in part)


def _rows_of(part: Any, rows: slice) -> Any:
    if isinstance(part, dict):
        return {name: array[rows] for name, array in part.items()}
    if _is_several(part):
        return type(part)(array[rows] for array in part)
    return part[rows]


def _count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{name} is a whole number; it was given {value!r}")
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is a whole number; it was given {value!r}") from None
    if count < least:
        raise ValueError(f"{name} is at least {least}; it was given {count}")
    return count
