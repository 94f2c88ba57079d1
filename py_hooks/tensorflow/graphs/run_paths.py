"""Paths through the ops of a run: which ops run before which others, whatever the session does.

A path leads from an op to one that needs it, by an input or a control input. A loop leads back, and a merge takes one of its
inputs: the kinds of the ops tell both, and the contexts of TensorFlow 1 tell which loop it is (`control_flow.py`).
"""
from __future__ import annotations

import collections
import itertools

from py_hooks.tensorflow.graphs.control_flow import contexts_of, loops_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from py_hooks.tensorflow.graphs import op_kinds

    # The ops of a run, by name.
    Nodes = dict[str, op_kinds.Node]

_MERGES = ("Merge", "RefMerge")
NEXT = ("NextIteration", "RefNextIteration")


def in_order(nodes: Nodes) -> list[str]:
    """Names of the nodes, each one after those that it needs, except where a loop leads back."""
    done, found = set(), []
    for last in nodes:
        waiting = [last]
        while waiting:
            name = waiting[-1]
            missing = [each for each in needed_by(nodes[name], nodes) if each not in done] if name not in done else []
            if missing:
                waiting.extend(missing)
                continue
            waiting.pop()
            if name not in done:
                done.add(name)
                found.append(name)
    return found


def needed_by(node: op_kinds.Node, nodes: Nodes) -> list[str]:
    """Names of the nodes that a node needs, without the way back of a loop."""
    return _inputs_in_pass(node, nodes) + node.controls


def _inputs_in_pass(node: op_kinds.Node, nodes: Nodes) -> list[str]:
    """Names of the nodes that give the inputs of a node, without the way back of a loop."""
    if node.kind in _MERGES:
        return [name for name in node.inputs if nodes[name].kind not in NEXT]
    return node.inputs


class Paths:
    """Which of some ops run before which others, whatever the session does.

    A set of these ops is a whole number with one bit for each of them. Each op of the run has such a set.
    """

    def __init__(self, nodes: Nodes, ordered: list[str], ops: dict[str, Any]) -> None:
        self._nodes = nodes
        self._ordered = ordered
        self._bits = {name: 1 << number for number, name in enumerate(sorted(ops))}
        self._inside: collections.Counter[Any] = collections.Counter()
        for name, op in ops.items():
            for context in contexts_of(op)[:-1]:
                self._inside[context] |= self._bits[name]
        # Within one pass of each loop, and over all passes.
        self._in_pass = self._walk({}, goes_back=False)
        self._in_all = self._in_pass
        loops_back = any(node.kind in NEXT for node in nodes.values())
        while loops_back:
            walked = self._walk(self._in_all, goes_back=True)
            loops_back, self._in_all = walked != self._in_all, walked

    def order(self, one: Any, other: Any) -> bool:
        """Whether one of two ops always runs before the other. An op in a loop also has to run before itself."""
        there, back = self._bits[one.name], self._bits[other.name]
        loops = [loop for loop in loops_of(one) if loop in loops_of(other)]
        if any(loop.parallel_iterations != 1 for loop in loops):
            both_ways = self._in_all[other.name] & there and self._in_all[one.name] & back
            return bool(both_ways and (one is other or self._is_in_pass(one, other)))
        return one is other or bool(self._is_in_pass(one, other) or (not loops and self._is_in_all(one, other)))

    def _is_in_pass(self, one: Any, other: Any) -> int:
        return self._in_pass[other.name] & self._bits[one.name] or self._in_pass[one.name] & self._bits[other.name]

    def _is_in_all(self, one: Any, other: Any) -> int:
        return self._in_all[other.name] & self._bits[one.name] or self._in_all[one.name] & self._bits[other.name]

    def _walk(self, known: dict[str, int], goes_back: bool) -> dict[str, int]:
        """The sets of ops that run before each op, by its name."""
        found = dict(known)

        def up_to(name: str) -> int:
            return found.get(name, 0) | self._bits.get(name, 0)

        for name in self._ordered:
            node = self._nodes[name]
            given = node.inputs if goes_back else _inputs_in_pass(node, self._nodes)
            is_end = node.kind in _MERGES and len(_inputs_in_pass(node, self._nodes)) == len(node.inputs)
            before = self._end_of_branches(given, up_to) if is_end else 0
            for each in node.controls if is_end else itertools.chain(given, node.controls):
                before |= up_to(each)
            found[name] = before
        return found

    def _end_of_branches(self, ends: list[str], up_to: Callable[[str], int]) -> int:
        """What runs before the end of a `cond`, which waits for one branch: what is in it, and what is before all branches."""
        before, inside = -1, 0
        for end in ends:
            context = self._nodes[end].op._get_control_flow_context()
            if context is None:
                # The graph was imported without contexts.
                return _union_of(up_to(each) for each in ends)
            before &= up_to(end)
            inside |= up_to(end) & self._inside[context]
        return (before | inside) if ends else 0


def _union_of(sets: Iterable[int]) -> int:
    """The union of sets of bits."""
    union = 0
    for each in sets:
        union |= each
    return union
