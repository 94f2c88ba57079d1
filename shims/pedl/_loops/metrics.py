"""Metrics of batches: checks them, and averages them for a step or a validation.

The mean over batches is not weighted by their sizes. A metric that is no number is averaged element by
element if all batches have the same shape; otherwise it is left out.
"""
from __future__ import annotations

import importlib

from pedl.errors import DefinitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def checked(metrics: Any, method: str, known: list[str] | None = None) -> dict[str, Any]:
    """The metrics of a batch.

    Args:
        metrics: what the user's method returned.
        method: its name.
        known: the names in earlier batches; None for the first.

    Raises:
        DefinitionError: it is no dict, one is None, or the names differ from earlier batches.
    """
    if not isinstance(metrics, dict):
        raise DefinitionError(
            f"`{method}` returned an object of class `{type(metrics).__name__}`\n  expected: a dict of metrics by their names"
        )
    for name, value in metrics.items():
        if value is None:
            raise DefinitionError(f"`{method}` returned None for the metric `{name}`\n  expected: a number or an array")
    if known is not None and list(metrics) != known and set(metrics) != set(known):
        raise DefinitionError(
            f"`{method}` returned the metrics {listed(metrics)}\n  expected: those of the batches before, {listed(known)}"
        )
    return metrics


def listed(names: Iterable[str]) -> str:
    """Names in a text."""
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"


def mean(batches: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The mean of each metric over batches, and the names of those that have none.

    Args:
        batches: a list of dicts of numbers and arrays, with the same names.
    """
    numpy = importlib.import_module("numpy")
    means: dict[str, Any]
    without: list[str]
    means, without = {}, []
    for name in batches[0] if batches else ():
        values = [numpy.asarray(batch[name]) for batch in batches]
        if len({value.shape for value in values}) > 1 or values[0].dtype.kind not in "biuf":
            without.append(name)
            continue
        average = numpy.mean(numpy.stack(values).astype("float64"), axis=0)
        means[name] = float(average) if average.ndim == 0 else average
    return means, without


class Means:
    """The means of validations. Reports once for each metric without a mean that it is left out.

    Args:
        say: prints a message for the user.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._told: set[str] = set()

    def of(self, batches: list[dict[str, Any]]) -> dict[str, Any]:
        """The mean of each metric that has one, over the batches of a validation; see `mean`."""
        means, without = mean(batches)
        for name in without:
            if name not in self._told:
                self._told.add(name)
                self._say(f"the validation metric `{name}` is left out: its shape differs between batches, or it is no number")
        return means


def scalars(metrics: dict[str, Any]) -> list[tuple[str, float]]:
    """The metrics that are numbers, as pairs of name and value."""
    found = []
    for name, value in metrics.items():
        shape = getattr(value, "shape", ())
        if shape == () and not isinstance(value, (str, bytes, list, tuple, dict)):
            found.append((name, float(value)))
    return found
