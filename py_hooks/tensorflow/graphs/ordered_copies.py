"""Copies of the ops of a run, with control edges that put them in an order (`races.py` says which ops need one).

The ops of the script are left alone, because a session does not take up changes of ops that it knows, and because other
fetches may need one of the two without the other. The op that writes, and all that comes after it in this run, is built a
second time beside them, with control edges, and the run fetches that. These are ops of pedl-run (`op_kinds.is_own`): no
exported graph has them, and they count in no id.
"""
from __future__ import annotations

import collections
import contextlib

from py_hooks.tensorflow.graphs import op_kinds
from py_hooks.tensorflow.graphs.control_flow import contexts_of, loops_of
from py_hooks.tensorflow.graphs.run_paths import NEXT, Paths, in_order, needed_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from typing import Any

    from py_hooks.tensorflow.graphs.graphs import Graph
    from py_hooks.tensorflow.graphs.races import Pair
    from py_hooks.tensorflow.graphs.run_paths import Nodes

_EXITS = ("Exit", "RefExit")
_LOOP = ("Enter", "RefEnter", "LoopCond", *NEXT, *_EXITS)


class CannotOrder(Exception):
    """No order can be imposed on a pair; the text says why."""


class Copies:
    """Ops of pedl-run that do what ops of the script do, but wait for others too."""

    def __init__(self, known: Graph, nodes: Nodes, feeds: Container[str]) -> None:
        self._known = known
        self._nodes = nodes
        self._feeds = feeds
        self._after: dict[str, list[str]] = {}
        for name, node in nodes.items():
            for before in needed_by(node, nodes):
                self._after.setdefault(before, []).append(name)
        self._made: dict[str, Any] = {}

    def make(self, pairs: list[Pair]) -> op_kinds.Substitutes:
        """The `op_kinds.Substitutes` that have an order."""
        edges = self._edges(pairs)
        nodes = dict(self._nodes)
        for name, before in edges.items():
            nodes[name] = nodes[name]._replace(controls=nodes[name].controls + before)
        ordered = in_order(nodes)
        paths = Paths(nodes, ordered, {op.name: op for pair in pairs for op in (pair.first, pair.second)})
        if not all(paths.order(pair.first, pair.second) for pair in pairs):
            raise CannotOrder("their paths cross")
        copied = self._reached(edges, {})
        for name in copied:
            _check(self._nodes[name].op)
        with contextlib.ExitStack() as scopes:
            scopes.enter_context(self._known.beside())
            for name in ordered:
                if name in copied:
                    self._made[name] = self._copy(name, nodes[name])
        substitutes = op_kinds.Substitutes((id(self._nodes[name].op), made) for name, made in self._made.items())
        for name, made in self._made.items():
            outputs = zip(self._nodes[name].op.outputs, made.outputs)
            substitutes.update((id(theirs), ours) for theirs, ours in outputs if theirs.name not in self._feeds)
        return substitutes

    def _edges(self, pairs: list[Pair]) -> dict[str, list[str]]:
        """Names of the ops that each op has to wait for, by its name."""
        edges: dict[str, list[str]]
        waits_for: dict[str, list[str]]
        edges, waits_for = {}, {}
        for pair in sorted(pairs, key=lambda pair: (op_kinds.number_of(pair.second), op_kinds.number_of(pair.first))):
            if pair.first.name in self._reached([pair.second.name], waits_for):
                # Another pair has put them in an order already.
                continue
            first, second = self._end_of(pair.first, pair.second), pair.second.name
            if first is None or first in self._reached([second], waits_for):
                first, second = self._end_of(pair.second, pair.first), pair.first.name
            if first is None or first in self._reached([second], waits_for):
                raise CannotOrder("they are in a loop, or their paths cross")
            if first not in edges.setdefault(second, []):
                edges[second].append(first)
                waits_for.setdefault(first, []).append(second)
        return edges

    def _reached(self, names: Iterable[str], waits_for: dict[str, list[str]]) -> set[str]:
        """Names of some ops, of those that come after them, and of those that wait for them."""
        waiting, found = list(names), set()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self._after.get(name, ()))
                waiting.extend(waits_for.get(name, ()))
        return found

    def _end_of(self, first: Any, second: Any) -> str | None:
        """The name of the op after which `first` is over, in the loop and the branches of `second`; None without one."""
        if any(loop in loops_of(second) for loop in loops_of(first)):
            return None
        around, frame = contexts_of(second), loops_of(second)
        seen, waiting = set(), collections.deque([first.name])
        while waiting:
            name = waiting.popleft()
            contexts = contexts_of(self._nodes[name].op)
            if self._nodes[name].kind in _EXITS and contexts[0] is not None:
                contexts = contexts[1:]
            if contexts[0] in around:
                loops = [context for context in contexts[:-1] if context.IsWhileContext()]
                return name if loops == frame else None
            seen.add(name)
            waiting.extend(after for after in self._after.get(name, ()) if after not in seen)
        return None

    def _copy(self, name: str, node: op_kinds.Node) -> Any:
        op = node.op
        # The device and the attributes hold the place that the script gave it, and the ops that it is colocated with.
        made = self._known.graph.create_op(
            node.kind,
            [self._copied_tensor(tensor) for tensor in op.inputs],
            [output.dtype for output in op.outputs],
            input_types=list(op._input_types),
            name=f"pedl_order/{name}",
            attrs=dict(op.node_def.attr),
            op_def=op.op_def,
        )
        made._set_device(op.device)
        if node.controls:
            made._add_control_inputs([self._made.get(each, self._nodes[each].op) for each in node.controls])
        return made

    def _copied_tensor(self, tensor: Any) -> Any:
        if tensor.name in self._feeds or tensor.op.name not in self._made:
            return tensor
        return self._made[tensor.op.name].outputs[tensor.value_index]


def _check(op: Any) -> None:
    """Raises `CannotOrder` for an op that would differ if it were built a second time."""
    if op.type in _LOOP or loops_of(op):
        raise CannotOrder("a loop runs after them")
    has = {attribute.name for attribute in op.op_def.attr}
    if op_kinds.draws_hidden(op) or (has & {"container", "shared_name"} and op.type not in ("TensorArrayV3", "StackV2")):
        raise CannotOrder(f"the op `{op.name}` (`{op.type}`) comes after them, and has a state that is its own")
