"""Checks the `tf.data.Dataset`s of trials: they have to be batched (rule T3), with elements for one graph (T4)."""
from __future__ import annotations

import importlib

from pedl.errors import DefinitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kinds of data sets, by their classes' names without underscores and versions. Their elements are batches.
_BATCHES = ("Batch", "ParallelBatch", "PaddedBatch", "MapAndBatch", "DenseToSparseBatch", "DenseToRaggedBatch")
# Their elements are those of other data sets, or each is made from one.
_PASSES_ON = (
    "Map", "ParallelMap", "Shuffle", "Repeat", "ShuffleAndRepeat", "Filter", "Cache", "Prefetch", "Take", "Skip", "Shard",
    "Options", "Concatenate", "Zip", "V1Adapter",
)
# Their elements are rows, one by one.
_ROWS = ("TensorSlice", "Range", "TextLine", "TFRecord", "FixedLengthRecord", "Unbatch")


class Elements:
    """The classes, types and shapes of a data set's elements, as nested structures.

    Args:
        data: the data set.
        v1: `tensorflow.compat.v1`.
    """

    def __init__(self, data: Any, v1: Any) -> None:
        self.classes, self.types, self.shapes = (self._of(data, v1, what) for what in ("classes", "types", "shapes"))

    @staticmethod
    def _of(data: Any, v1: Any, what: str) -> Any:
        get = getattr(v1.data, f"get_output_{what}", None)
        return get(data) if get is not None else getattr(data, f"output_{what}")


def checked(training: Any, validation: Any, v1: Any) -> Elements:
    """The `Elements` of two data sets, with shapes that hold for both.

    Raises:
        DefinitionError: one is no batched data set, or they differ.
    """
    for data, what in ((training, "to train on"), (validation, "to validate on")):
        _check_is_dataset(data, what, v1)
    found = [Elements(data, v1) for data in (training, validation)]
    for data, elements, what in zip((training, validation), found, ("to train on", "to validate on")):
        _check_is_batched(data, elements, what)
    return _merged(*found)


def _check_is_dataset(data: Any, what: str, v1: Any) -> None:
    kinds = (v1.data.Dataset, importlib.import_module("tensorflow").data.Dataset)
    if not isinstance(data, kinds):
        raise DefinitionError(
            f"`make_data_loaders` returned a data set {what} of class `{type(data).__name__}`\n"
            "  expected: PEDL requires batched data sets, each a `tf.data.Dataset`",
            "arrays become one by `tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)`",
        )


# -- batches -----------------------------------------------------------------------------------------------------------


def _check_is_batched(data: Any, elements: Elements, what: str) -> None:
    flat = importlib.import_module("tensorflow.python.data.util.nest").flatten(elements.shapes)
    if any(shape.ndims == 0 for shape in flat) or _are_rows(data):
        raise DefinitionError(
            f"`make_data_loaders` returned a data set {what} that is not batched\n"
            f"  its elements have the shapes {_shown(elements.shapes)}\n"
            "  expected: PEDL requires batched data sets, whose elements are several rows each",
            "return `dataset.batch(batch_size)`",
        )


def _are_rows(data: Any) -> bool:
    """Whether elements of a data set are known to be rows; those of an unknown kind may be batches."""
    kind = _kind_of(data)
    if kind in _ROWS:
        return True
    if kind in _BATCHES or kind not in _PASSES_ON:
        return False
    inputs = [data._dataset] if kind == "V1Adapter" else data._inputs()
    return any(_are_rows(each) for each in inputs)


def _kind_of(data: Any) -> str:
    name = type(data).__name__.strip("_").replace("V1Adapter", "").replace("V1", "").replace("V2", "")
    if hasattr(data, "_dataset") and not name.replace("Dataset", ""):
        return "V1Adapter"
    return name.replace("Dataset", "", 1) if name.endswith("Dataset") else name


# -- one graph for both ------------------------------------------------------------------------------------------------


def _merged(training: Elements, validation: Elements) -> Elements:
    nest = importlib.import_module("tensorflow.python.data.util.nest")
    parts = []
    for what in ("classes", "types", "shapes"):
        first, second = getattr(training, what), getattr(validation, what)
        try:
            nest.assert_same_structure(first, second)
        except (TypeError, ValueError):
            raise _mismatch(what, first, second) from None
        pairs = list(zip(nest.flatten(first), nest.flatten(second)))
        fits = _shapes_fit if what == "shapes" else lambda one, other: one == other
        if not all(fits(one, other) for one, other in pairs):
            raise _mismatch(what, first, second)
        parts.append(pairs)
    shapes = [one.most_specific_compatible_shape(other) for one, other in parts[-1]]
    training.shapes = nest.pack_sequence_as(training.shapes, shapes)
    return training


def _shapes_fit(one: Any, other: Any) -> bool:
    """Whether two shapes of batches are alike except for their numbers of rows."""
    if one.ndims is None or other.ndims is None:
        return True
    return one.ndims == other.ndims and one[1:].is_compatible_with(other[1:])


def _mismatch(what: str, training: Any, validation: Any) -> DefinitionError:
    return DefinitionError(
        f"the two data sets that `make_data_loaders` returned have elements of different {what}\n"
        f"  to train on: {_shown(training)}\n  to validate on: {_shown(validation)}\n"
        "  expected: the same, but for the number of rows, since one graph takes both",
        "make both by the same functions",
    )


def _shown(structure: Any) -> str:
    """A nested structure of shapes, types or classes, in a line."""
    if isinstance(structure, dict):
        return "{" + ", ".join(f"{name!r}: {_shown(structure[name])}" for name in structure) + "}"
    if isinstance(structure, (list, tuple)):
        return "(" + ", ".join(map(_shown, structure)) + ("," if len(structure) == 1 else "") + ")"
    if hasattr(structure, "ndims"):
        return str(tuple(structure.as_list())) if structure.ndims is not None else "unknown"
    return structure.__name__ if isinstance(structure, type) else structure.name
