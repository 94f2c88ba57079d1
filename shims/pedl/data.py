"""Batch loaders of the first model definitions: a data set that gives any range of its rows.

`KerasDataAdapter(as_sequence(loader, batch_size))` takes them.

Example:
    train = ArrayBatchLoader(images, labels)
    return SliceBatchLoader(train, 0, 50000), SliceBatchLoader(train, 50000, 10000)
"""
from __future__ import annotations

import abc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Batch:
    """Rows of data, and their labels.

    Args:
        data: an array, or any other input of the model.
        labels: the same number of rows.
    """

    def __init__(self, data: Any, labels: Any) -> None:
        self.data = data
        self.labels = labels


class BatchLoader(abc.ABC):
    """Gives any range of its rows."""

    @abc.abstractmethod
    def get_batch(self, start: int, end: int) -> Batch:
        """The rows from `start` up to, and without, `end`, as a `Batch`."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of rows."""


class ArrayBatchLoader(BatchLoader):
    """The rows of two arrays.

    Args:
        data: an array.
        labels: an array with the same number of rows.

    Raises:
        ValueError: it has more or fewer.
    """

    def __init__(self, data: Any, labels: Any) -> None:
        if len(data) != len(labels):
            raise ValueError(f"ArrayBatchLoader takes arrays of as many rows: data has {len(data)}, labels {len(labels)}")
        self._data = data
        self._labels = labels

    def get_batch(self, start: int, end: int) -> Batch:
        """The rows from `start` up to, and without, `end`."""
        return Batch(self._data[start:end], self._labels[start:end])

    def __len__(self) -> int:
        return len(self._data)


class SliceBatchLoader(BatchLoader):
    """A range of the rows of another loader.

    Args:
        loader: the other loader.
        start: the first of its rows in the range.
        length: the number of rows in the range.

    Raises:
        ValueError: the other loader has fewer rows.
    """

    def __init__(self, loader: BatchLoader, start: int, length: int) -> None:
        if start < 0 or length < 0 or start + length > len(loader):
            raise ValueError(
                f"SliceBatchLoader was asked for {length} rows from row {start} on; the loader has {len(loader)}"
            )
        self._loader = loader
        self._start = start
        self._length = length

    def get_batch(self, start: int, end: int) -> Batch:
        """The rows from `start` up to, and without, `end`, counted from the first of the range."""
        return self._loader.get_batch(self._start + start, self._start + min(end, self._length))

    def __len__(self) -> int:
        return self._length


class _Rows:
    """The batches of a loader, by index."""

    def __init__(self, loader: BatchLoader, batch_size: int) -> None:
        self._loader = loader
        self._batch_size = batch_size

    def __len__(self) -> int:
        return (len(self._loader) + self._batch_size - 1) // self._batch_size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        start = index * self._batch_size
        batch = self._loader.get_batch(start, min(start + self._batch_size, len(self._loader)))
        return batch.data, batch.labels


def as_sequence(loader: BatchLoader, batch_size: int) -> _Rows:
    """A data set of the batches of a loader: its items are pairs of data and labels.

    Args:
        loader: a `BatchLoader`.
        batch_size: rows of a batch, except the last one.

    Raises:
        ValueError: `batch_size` is less than 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is at least 1; it was given {batch_size}")
    return _Rows(loader, batch_size)
