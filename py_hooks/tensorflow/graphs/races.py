"""Races: ops of one run of a session that read and write one variable, while the graph orders neither before the other.

A session runs an op when its inputs are ready. So the result may differ from run to run, even with one thread for
operations. Examples: `assign_add` beside an op that reads the variable, a moving average of weights beside the optimizer that
changes them, a layer's counter that its `call` reads. This module looks for races once for each set of fetches: pairs of ops
that use one variable, one of which writes it, without a path of inputs between them. These are no such pairs:

- ops of two branches of which a run takes one, and ops of a branch that a value fed to the run rules out (the moving
  statistics of a batch normalisation, which inference reads and training writes);
- an initial value that is read from a variable if that has a value already.

A reference of TensorFlow 1 is the memory of the variable itself, however many ops pass it on: the op that reads the variable
is the one that computes with it.

With `--exact` such ops run in an order: a read before a write, and else in the order in which the script made them. The run
then fetches copies of the ops that have this order (`ordered_copies.py`).

Source: tensorflow 1.15.5, core/common_runtime/executor.cc and core/kernels/assign_op.h, resource_variable_ops.cc.
"""
from __future__ import annotations

import collections
import itertools

from py_hooks import causes
from py_hooks.tensorflow.graphs import op_kinds
from py_hooks.tensorflow.graphs.control_flow import contexts_of, loops_of
from py_hooks.tensorflow.graphs.ordered_copies import CannotOrder, Copies
from py_hooks.tensorflow.graphs.run_paths import Paths, in_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from typing import Any

    from py_hooks.recording.recorder import Calls
    from py_hooks.tensorflow.graphs.graphs import Effects, Graph
    from py_hooks.tensorflow.graphs.run_paths import Nodes

    # Predicates and the truths that they must have.
    Conditions = frozenset[tuple["_Compared", bool]]

# What an op does with a variable. `conditions` are pairs of a tensor and a truth: it does so only if these are equal.
Access = collections.namedtuple("Access", "op reads writes conditions")

# Two ops that use a variable, in the order that is imposed; the second writes it. `conditions` are pairs of a tensor's name
# and a truth: a run meets the pair if it is fed these.
Pair = collections.namedtuple("Pair", "variable first second does conditions")

# Ops that give the memory of their input, or a part of it, under another name.
_SAME_MEMORY = (
    "Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "CheckNumerics",
    "EnsureShape", "Snapshot", "Bitcast", "Switch", "Merge", "Enter", "Exit", "NextIteration", "PlaceholderWithDefault",
    "StridedSlice", "Slice", "Split", "SplitV", "Unpack",
)
_LOOKS_AT_SHAPE = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "NoOp")
_INITIAL = ("IsVariableInitialized", "VarIsInitializedOp")


def of(known: Graph, nodes: Nodes, feeds: Sequence[Any]) -> Races | _NotLookedAt | None:
    """The `Races` of a run; None without any.

    Args:
        known: the `graphs.Graph` of the graph.
        nodes: the ops of the run, `op_kinds.Node`s by name.
        feeds: tensors that it is given values for, in the order of the values.
    """
    try:
        pairs = find(nodes, frozenset(feed.name for feed in feeds))
    except Exception as error:  # noqa: BLE001  the script must not end because of what only looks at its graph
        return _NotLookedAt(error)
    return Races(known, nodes, feeds, pairs) if pairs else None


class _NotLookedAt:
    """Takes the place of `Races` for a graph that could not be analysed."""

    def __init__(self, error: Exception) -> None:
        self._error = f"{type(error).__name__}: {error}"

    def look(self, calls: Calls, effects: Effects, values: Sequence[Any], can_order: bool = True) -> None:
        """As in `Races`."""
        effects.races = None
        calls.exactness.refuse(causes.ORDER_UNKNOWN(error=self._error))


def find(nodes: Nodes, feeds: Container[str]) -> list[Pair]:
    """The pairs of ops that nothing orders.

    Args:
        nodes: the ops of a run, `op_kinds.Node`s by name.
        feeds: names of tensors that it is given values for.
    """
    ordered = in_order(nodes)
    accesses = _accesses(nodes, ordered, feeds)
    if not accesses:
        return []
    paths = Paths(nodes, ordered, {access.op.name: access.op for found in accesses.values() for access in found})
    pairs: list[Pair | None] = []
    for variable in sorted(accesses):
        found = sorted(accesses[variable], key=lambda access: op_kinds.number_of(access.op))
        writers = [access for access in found if access.writes]
        others = [access for access in found if not access.writes]
        candidates = itertools.chain(
            itertools.product(others, writers), itertools.combinations_with_replacement(writers, 2)
        )
        pairs.extend(_pair(variable, *pair, feeds) for pair in candidates if not paths.order(pair[0].op, pair[1].op))
    return [pair for pair in pairs if pair is not None]


def _pair(variable: str, first: Access, second: Access, feeds: Container[str]) -> Pair | None:
    """The `Pair` of two accesses that no path orders; None if no run makes both."""
    conditions = first.conditions | second.conditions
    if any((tensor, not truth) in conditions for tensor, truth in conditions) or _reads_initial_value(first, second.op):
        return None
    given = set()
    for tensor, truth in conditions:
        if tensor.name in feeds:
            given.add((tensor.name, truth))
        elif _value_of(tensor) not in (None, truth):
            return None
    return Pair(variable, first.op, second.op, "writes" if first.writes else "reads", frozenset(given))


# -- who uses a variable -----------------------------------------------------------------------------------------------


def _accesses(nodes: Nodes, ordered: list[str], feeds: Container[str]) -> dict[str, list[Access]]:
    """The accesses of variables that are written, and that another op uses or a loop writes: lists by name."""
    found: dict[str, list[Access]]
    held: dict[str, set[tuple[str, Conditions]]]
    found, held = {}, {}
    for op_name in ordered:
        node, handed_on = nodes[op_name], set()
        for number, tensor in enumerate(node.op.inputs):
            for name, conditions, is_direct in _held_by(tensor, held) if tensor.name not in feeds else ():
                hands_on, accesses = _use(node, number, is_direct)
                found.setdefault(name, []).extend(
                    access._replace(conditions=conditions | _conditions_of(access)) for access in accesses
                )
                handed_on.update([(name, conditions | _conditions_of(Access(node.op, True, False, ())))] if hands_on else [])
        if handed_on:
            held[op_name] = handed_on
    return {
        name: accesses
        for name, accesses in found.items()
        if any(access.writes for access in accesses)
        and (len({access.op.name for access in accesses}) > 1 or loops_of(accesses[0].op))
    }


def _held_by(tensor: Any, held: dict[str, set[tuple[str, Conditions]]]) -> list[tuple[str, Conditions, bool]]:
    """The variables whose memory a tensor is: names, conditions, and whether the tensor is a handle or a reference."""
    variable = op_kinds.variable_of(tensor)
    if variable is not None:
        return [(variable.name, frozenset(), True)]
    # A tensor's name is the name of its op, and a number.
    handed_on = held.get(tensor.name.partition(":")[0], ())
    return [(*each, tensor.dtype._is_ref_dtype) for each in handed_on]


def _use(node: op_kinds.Node, number: int, is_direct: bool) -> tuple[bool, list[Access]]:
    """`(passes the memory on, accesses)`: what an op does with the variable in its input `number`."""
    op = node.op
    if node.kind in _LOOKS_AT_SHAPE:
        return False, []
    if not is_direct:
        return (True, []) if node.kind in _SAME_MEMORY else (False, [Access(op, True, False, ())])
    tensor = op.inputs[number]
    if tensor.dtype._is_ref_dtype:
        reads, writes = op_kinds.use_of(op, number)
        if not writes and node.kind in _SAME_MEMORY:
            return True, []
        # Its output is the reference again (`assign_add` in an expression).
        gives_reference = writes and any(output.dtype._is_ref_dtype for output in op.outputs)
        return gives_reference, [Access(op, reads, writes, ())] if reads or writes else []
    return False, [access for access in _of_resource(op, number) if access.reads or access.writes]


def _of_resource(op: Any, number: int) -> list[Access]:
    functions = _called_with(op, number)
    if functions is None:
        # An op that makes a pipeline only reads.
        is_of_pipeline = "Dataset" in op.type
        reads, writes = op_kinds.use_of(op, number)
        return [Access(op, reads, writes and not is_of_pipeline, ())]
    return [Access(op, *_in_function(op.graph, name, place, ()), conditions) for name, place, conditions in functions]


def _called_with(op: Any, number: int) -> list[tuple[str, int, tuple[tuple[Any, bool], ...]]] | None:
    """`(function, number of its argument, conditions)` for what an op calls with its input; None if that is unknown."""
    if op.type in ("If", "StatelessIf"):
        branches = (("then_branch", True), ("else_branch", False))
        return [(op.get_attr(name).name, number - 1, ((op.inputs[0], truth),)) for name, truth in branches]
    if op.type in ("While", "StatelessWhile"):
        return [(op.get_attr(name).name, number, ()) for name in ("cond", "body")]
    if op.type in ("PartitionedCall", "StatefulPartitionedCall"):
        return [(op.get_attr("f").name, number, ())]
    return None


def _in_function(graph: Any, name: str, number: int, outer: tuple[str, ...]) -> tuple[bool, bool]:
    """`(reads, writes)`: what a function does with an argument. A function that is not found does both."""
    function = graph._get_function(name)
    if function is None or name in outer:
        return function is None, function is None
    definition = op_kinds.definition_of(function)
    held, reads, writes = {definition.signature.input_arg[number].name}, False, False
    # The nodes of a function are in no order.
    for _ in definition.node_def:
        size = len(held)
        for node in definition.node_def:
            for place, given in enumerate(node.input):
                if given in held or given.partition(":")[0] in held:
                    if node.op in op_kinds.PASSES_ON:
                        held.add(node.name)
                        continue
                    does = _of_node(graph, node, place, (*outer, name))
                    reads, writes = reads or does[0], writes or does[1]
        if len(held) == size:
            break
    return reads, writes


def _of_node(graph: Any, node: Any, number: int, outer: tuple[str, ...]) -> tuple[bool, bool]:
    if node.op in ("If", "StatelessIf"):
        calls = [(node.attr[name].func.name, number - 1) for name in ("then_branch", "else_branch")]
    elif node.op in ("While", "StatelessWhile"):
        calls = [(node.attr[name].func.name, number) for name in ("cond", "body")]
    elif node.op in ("PartitionedCall", "StatefulPartitionedCall"):
        calls = [(node.attr["f"].func.name, number)]
    else:
        return op_kinds.use_by_type(node.op)
    found = [_in_function(graph, name, place, outer) for name, place in calls]
    return any(reads for reads, _ in found), any(writes for _, writes in found)

# -- conditions --------------------------------------------------------------------------------------------------------


def _conditions_of(access: Access) -> Conditions:
    """Pairs of a tensor and a truth, without which an op does not run."""
    found = [(context.pred, bool(context.branch)) for context in contexts_of(access.op)[:-1] if context.IsCondContext()]
    sources = [_source_of(*condition) for condition in [*found, *access.conditions]]
    # In a loop a predicate may have another value in each pass.
    return frozenset((source, truth) for source, truth in sources if not loops_of(source.tensor.op))


def _source_of(tensor: Any, truth: bool) -> tuple[_Compared, bool]:
    """The tensor that a predicate is computed from, and its truth."""
    while tensor.op.type in ("Identity", "Switch", "Cast", "LogicalNot", "Enter"):
        truth ^= tensor.op.type == "LogicalNot"
        tensor = tensor.op.inputs[0]
    return _Compared(tensor), truth


class _Compared:
    """A tensor that is equal to itself only. TensorFlow 2 compares the values of tensors."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.name = tensor.name

    def __eq__(self, other: Any) -> bool:
        return self.tensor is other.tensor

    def __hash__(self) -> int:
        return id(self.tensor)


def _value_of(compared: _Compared) -> bool | None:
    """The truth of a predicate that is known from the graph; None if it is not."""
    from tensorflow.python.framework import tensor_util

    tensor = compared.tensor
    while tensor.op.type == "PlaceholderWithDefault":
        tensor = tensor.op.inputs[0]
    value = tensor_util.constant_value(tensor)
    return None if value is None else bool(value)


def _reads_initial_value(reader: Access, writer: Any) -> bool:
    """Whether the reader takes the variable's value, if it is initialized, as the value that the writer initializes it with."""
    if writer.type not in ("Assign", "AssignVariableOp"):
        return False
    variable = op_kinds.variable_of(writer.inputs[0])
    if variable is None or writer.name != variable.name + "/Assign":
        return False
    asked = [source.tensor.op for source, truth in reader.conditions if truth]
    return any(op.type in _INITIAL and op_kinds.variable_of(op.inputs[0]) is variable for op in asked)


# -- what is done about them -------------------------------------------------------------------------------------------


class Races:
    """The pairs of one set of fetches that are not reported yet.

    Attributes:
        waiting: lists of pairs by their conditions, which no run has met so far.
    """

    _told: set[tuple[str, str]] = set()

    def __init__(self, known: Graph, nodes: Nodes, feeds: Sequence[Any], pairs: list[Pair]) -> None:
        """Keeps the pairs.

        Args:
            known: the `graphs.Graph` of the graph.
            nodes: the ops of the run.
            feeds: tensors that it is given values for, in the order of the values.
            pairs: the result of `find`.
        """
        self._known = known
        self._nodes = nodes
        self._places = {feed.name: number for number, feed in enumerate(feeds)}
        self._imposed: list[Pair] = []
        self.waiting: dict[frozenset[tuple[str, bool]], list[Pair]] = {}
        for pair in pairs:
            self.waiting.setdefault(pair.conditions, []).append(pair)

    def look(self, calls: Calls, effects: Effects, values: Sequence[Any], can_order: bool = True) -> None:
        """A run is about to be made, or answered: the pairs that it meets are ordered, or are a cause.

        Args:
            calls: the recorder.
            effects: of the run; they receive what the run has to fetch instead.
            values: the values that it is given.
            can_order: whether the run can have other fetches.
        """
        met = [conditions for conditions in self.waiting if self._are_met(conditions, values)]
        if not met:
            return
        pairs = [pair for conditions in met for pair in self.waiting.pop(conditions)]
        if not self.waiting:
            effects.races = None
        if not calls.trial.exact:
            calls.exactness.refuse(cause_of(pairs))
            return
        why_not = "the run is made in a thread of the script, or in parts"
        if can_order and calls.on_main_thread():
            why_not = self._impose(calls, effects, pairs)
        if why_not is not None:
            calls.exactness.refuse(cause_of(pairs, why_not))
            return
        self._tell(calls, pairs)

    def _impose(self, calls: Calls, effects: Effects, pairs: list[Pair]) -> str | None:
        """Has a run fetch the ordered ops; returns the reason if it cannot."""
        made = calls.traces
        try:
            effects.substitutes = self.impose(pairs)
        except CannotOrder as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  the script must not end because of ops of ours
            return f"{type(error).__name__}: {error}"
        finally:
            # They are no ops of the script.
            calls.traces = made
        return None

    def _are_met(self, conditions: frozenset[tuple[str, bool]], values: Sequence[Any]) -> bool:
        return all(bool(values[self._places[name]]) == truth for name, truth in conditions)

    def _tell(self, calls: Calls, pairs: list[Pair]) -> None:
        new = [pair for pair in pairs if (pair.first.name, pair.second.name) not in Races._told]
        if new:
            calls.trial.log(f"--exact imposes an order on ops of one run: {_described(new)}")
        Races._told.update((pair.first.name, pair.second.name) for pair in new)

    def impose(self, pairs: list[Pair]) -> op_kinds.Substitutes:
        """Builds ops of pedl-run that have an order.

        Args:
            pairs: pairs to order, besides those of earlier calls.

        Returns:
            The `op_kinds.Substitutes`.
        """
        self._imposed.extend(pairs)
        return Copies(self._known, self._nodes, self._places).make(self._imposed)


def cause_of(pairs: list[Pair], why_not: str | None = None) -> causes.Told:
    """The cause for pairs that have no order."""
    imposes = "`--exact` imposes one" if why_not is None else f"none can be imposed: {why_not}"
    return causes.NO_ORDER(pairs=_described(pairs), imposes=imposes)


def _described(pairs: list[Pair]) -> str:
    """The first of some pairs, and how many others there are."""
    first = min(pairs, key=lambda pair: (pair.variable, pair.first.name, pair.second.name))
    text = f"`{first.first.name}` {first.does} the variable `{first.variable}`, and `{first.second.name}` writes it"
    more = len(pairs) - 1
    return text if not more else "{}, and {} more pair{}".format(text, more, "s" if more > 1 else "")
