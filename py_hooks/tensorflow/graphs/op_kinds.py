"""Ops of TensorFlow graphs: what each does with variables, data, files and random numbers, by its type.

Source: tensorflow 1.15.5, tensorflow/core/ops; tensorflow/python/framework/ops.py.
"""
from __future__ import annotations

import collections
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
# Ops that pass a variable on without reading its value.
PASSES_ON = ("Identity", "Switch", "Merge", "Enter", "Exit", "NextIteration", "RefIdentity", "RefSwitch", "RefMerge",
              "RefEnter", "RefExit", "RefNextIteration", "RefSelect")
_LOOKS_AT_NO_VALUE = ("VarIsInitializedOp", "VariableShape", "IsVariableInitialized")
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")
_WRITES = ("AssignVariableOp", "Assign")
_KNOWN = _LOOKS_AT_NO_VALUE + _READS + _WRITES
READS_FILES = ("Restore", "RestoreV2", "RestoreSlice", "ReadFile")
# The beginning of the types by which optimizers of `tf.train` apply gradients, after `Resource` and `Sparse`.
_APPLIES = "Apply"
WRITES_FILES = ("Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints", "WriteFile")
# The names of ops of pedl-run, in whatever scope.
_OWN = re.compile(r"(^|/)pedl_(random|read|write|order)(_\d+)?(/|:|$)")
# An op that runs for some fetches, its type, the names of the ops that its inputs come from (except inputs that are fed), and
# the names of its control inputs. TensorFlow is slow to give names and types.
Node = collections.namedtuple("Node", "op kind inputs controls")


def nodes_of(function: Any) -> list[Any]:
    """The nodes of a traced function, and of those that it calls."""
    nodes = list(definition_of(function).node_def)
    # A function of `Defun` has no graph; the functions that it calls are in the graph around it.
    if hasattr(function, "graph"):
        nodes.extend(node for called in function.graph.as_graph_def().library.function for node in called.node_def)
    return nodes


def definition_of(function: Any) -> Any:
    """The `FunctionDef` of a traced function."""
    return function.function_def if hasattr(function, "function_def") else function.definition


def is_own(name: str) -> bool:
    """Whether an op or a tensor of this name belongs to pedl-run, and not to the script."""
    return _OWN.search(name) is not None


class Substitutes(dict):
    """Ops and tensors that are fetched instead of others, by the addresses of these. An object is equal to itself only."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # a `dict` has none

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


def variable_of(tensor: Any) -> Any:
    """The variable's op that a handle or a reference refers to, or None."""
    from tensorflow.python.framework import dtypes

    if tensor.dtype != dtypes.resource and not tensor.dtype._is_ref_dtype:
        return None
    op = tensor.op
    while op.type in PASSES_ON and len(op.inputs):
        op = op.inputs[0].op
    return op if op.type in VARIABLES else None


def is_variable(tensor: Any) -> bool:
    """Whether a tensor is the handle of a variable, or a reference to one."""
    return variable_of(tensor) is not None


def use_of(op: Any, number: int) -> tuple[bool, bool]:
    """`(reads, writes)`: what an op does with the variable in its input `number`. An unknown op does both."""
    if op.inputs[number].dtype._is_ref_dtype and op.type not in _KNOWN:
        by_reference = number < len(op.op_def.input_arg) and op.op_def.input_arg[number].is_ref
        return not op.type.startswith("Ref"), by_reference and not op.type.startswith("Ref")
    return use_by_type(op.type)


def use_by_type(kind: str) -> tuple[bool, bool]:
    """`(reads, writes)`: what ops of a type do with a variable's handle. An unknown type does both."""
    if kind in _LOOKS_AT_NO_VALUE or kind in PASSES_ON:
        return False, False
    return kind not in _WRITES, kind not in _READS


def is_set_before(op: Any, variable: Any) -> bool:
    """Whether an op reads what an assignment has just written: Keras's `set_value` fetches what `assign` returns."""
    return op.type == "ReadVariableOp" and any(
        before.type == "AssignVariableOp" and variable_of(before.inputs[0]) is variable for before in op.control_inputs
    )


def number_of(op: Any) -> int:
    """The place of an op in the order of creation."""
    return op._id


def is_iterator(kind: str) -> bool:
    """Whether an op of this type takes the next element of a `tf.data` pipeline."""
    return kind.startswith("IteratorGetNext")


def applies(kind: str) -> bool:
    """Whether ops of this type apply gradients: `ApplyAdam`, `ResourceSparseApplyMomentum`."""
    for word in ("Resource", "Sparse"):
        kind = kind[len(word):] if kind.startswith(word) else kind
    return kind.startswith(_APPLIES)


def takes_data(kind: str) -> bool:
    """Whether ops of this type advance a queue or an iterator, or call Python."""
    return is_iterator(kind) or "Queue" in kind or kind.startswith(("Reader", "PyFunc", "EagerPyFunc"))


def draws_hidden(op: Any) -> bool:
    """Whether an op draws random numbers from a state in its kernel, which nobody can read."""
    # A queue that shuffles has no order, for other reasons too.
    if "Queue" in op.type:
        return False
    return _has_seeds(attribute.name for attribute in op.op_def.attr) or _calls_what_draws(op)


def _has_seeds(names: Iterable[str]) -> bool:
    return {"seed", "seed2"} <= set(names)


def _calls_what_draws(op: Any) -> bool:
    """Whether a function of the graph that an op calls has random ops, as an imported one may."""
    kinds = {attribute.name: attribute.type for attribute in op.op_def.attr if "func" in attribute.type}
    # Functions of pipelines draw with the iterator.
    if not kinds or "Dataset" in op.type or "Iterator" in op.type:
        return False
    called = [op.get_attr(name) for name in kinds]
    called = [each for given in called for each in (given if isinstance(given, list) else [given])]
    functions = [op.graph._get_function(each.name) for each in called]
    return any(_has_seeds(node.attr) for function in functions if function is not None for node in nodes_of(function))
