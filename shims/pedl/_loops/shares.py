"""Shares the batches of a Keras data set among ranks: of N batches in a row, each of N ranks has one.

Together these are a batch of all ranks, so the loss is that of one process with batches as large as all of them together.
If less is left at the end, its rows are shared evenly, and its first rows fill up what is missing. So all ranks have the same
number of batches, of the same size.
"""
from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class OfSequence:
    """The share of one rank of a `Sequence`, as an object with items and a length.

    Args:
        source: the `Sequence`.
        rank: the rank that gets the share.
        size: how many ranks there are.
    """

    def __init__(self, source: Any, rank: int, size: int) -> None:
        self.source = source
        self._rank, self._size = rank, size

    def __len__(self) -> int:
        return (len(self.source) + self._size - 1) // self._size

    def __getitem__(self, place: int) -> Any:
        first, end = place * self._size, (place + 1) * self._size
        if end < len(self.source):
            return self.source[first + self._rank]
        return _even([self.source[index] for index in range(first, len(self.source))], self._rank, self._size)

    def on_epoch_end(self) -> None:
        """Calls `on_epoch_end` of the source, if it has one."""
        getattr(self.source, "on_epoch_end", lambda: None)()


def _even(batches: list[Any], rank: int, size: int) -> Any:
    """A rank's share of the rows of some batches."""
    numpy = importlib.import_module("numpy")
    rows = len(_first_of(batches[0]))
    if len(batches) == size and all(len(_first_of(batch)) == rows for batch in batches):
        return batches[rank]

    def share(parts: list[Any]) -> Any:
        everything = numpy.concatenate([numpy.asarray(part) for part in parts])
        count = -(-len(everything) // size)
        return everything[numpy.arange(rank * count, (rank + 1) * count) % len(everything)]

    return _mapped(share, batches)


def _first_of(batch: Any) -> Any:
    while isinstance(batch, (tuple, list, dict)):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return batch


def _mapped(share: Callable[[list[Any]], Any], batches: list[Any]) -> Any:
    """A batch with the same structure: each part is the result of `share` for the parts in that place of all batches."""
    first = batches[0]
    if isinstance(first, dict):
        return {name: _mapped(share, [batch[name] for batch in batches]) for name in first}
    if isinstance(first, (tuple, list)):
        return type(first)(_mapped(share, list(parts)) for parts in zip(*batches))
    return None if first is None else share(batches)


def of_dataset(dataset: Any, rank: int, size: int) -> Any:
    """The share of one rank of a `tf.data.Dataset`, as another data set.

    Args:
        dataset: gives batches.
        rank: the rank that gets the share.
        size: how many ranks there are.
    """
    tensorflow = importlib.import_module("tensorflow")
    mapped = tensorflow.nest.map_structure

    def share(*window: Any) -> Any:
        batches = tensorflow.data.Dataset.zip(window if len(window) > 1 else window[0])
        rows = batches.skip(1).reduce(
            batches.take(1).get_single_element(),
            lambda before, batch: mapped(lambda *parts: tensorflow.concat(parts, 0), before, batch),
        )
        total = tensorflow.shape(tensorflow.nest.flatten(rows)[0])[0]
        count = -(-total // size)
        indices = tensorflow.range(rank * count, (rank + 1) * count) % total
        return mapped(lambda part: tensorflow.gather(part, indices), rows)

    return dataset.window(size).map(share)
