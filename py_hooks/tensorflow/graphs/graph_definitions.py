"""Definitions of graphs that are exported, and that are imported ready-made: `.meta` files, SavedModels, frozen graphs.

An exported graph is the script's graph, which plain Python reads: it has no ops of pedl-run, and it has the random ops that
the script asked for instead of their substitutes (`random_ops.py`). If a function takes the state of a random op from
outside, the graph is exported as it is. Loops that `--exact` runs pass by pass (`random_ops.inside_control_flow`) stay so.

In an imported graph a random op has TensorFlow's kernel, which hides its state. So another op is built beside it, as for
the script, and whatever took its numbers takes those of the other: the same numbers. This is not done if the loop or branch
of the op is unknown. A MetaGraph states it, a mere graph does not. Then a run that draws from the op is a cause.

Source: tensorflow 1.13.1 to 2.15.1, tensorflow/python/framework/ops.py, importer.py and meta_graph.py.
"""
from __future__ import annotations

import collections
import contextlib

from py_hooks.recording import recorder
from py_hooks.tensorflow.graphs import graphs, op_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

# A random op that has a substitute: its type, the inputs of the substitute that it has too, its attributes by their names
# in the substitute, and its seeds.
Original = collections.namedtuple("Original", "type inputs attributes seeds")

# Ops of pedl-run that pass on their input.
_HANDS_ON = ("Identity", "StopGradient")


@contextlib.contextmanager
def own_part() -> Iterator[None]:
    """Ops that are made inside are a part of the substitute of a random op: ops of pedl-run, in the script's scope."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    with contextlib.ExitStack() as scopes:
        if not context.executing_eagerly() and not ops.get_default_graph().building_function:
            scopes.enter_context(graphs.of(ops.get_default_graph()).own_ids())
        scopes.enter_context(ops.name_scope("pedl_random"))
        yield


def stands_for(tensor: Any, kind: str, inputs: list[int], attributes: dict[str, str], seeds: Iterable[int | None]) -> None:
    """Notes which random op the op of this tensor replaces, in graphs that sessions run.

    Args:
        tensor: the output of the substitute.
        kind: the type of the original.
        inputs: numbers of the inputs that both have.
        attributes: its attributes, by their names in the original.
        seeds: as TensorFlow made them for the kernel, from what the script gave.
    """
    # An eager tensor has no graph.
    graph = getattr(tensor, "graph", None)
    if graph is not None and not graph.building_function:
        graphs.of(graph).originals[tensor.op.name] = Original(kind, inputs, attributes, [seed or 0 for seed in seeds])


# -- exports -----------------------------------------------------------------------------------------------------------


def exported(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """`Graph._as_graph_def`: the definition of the script's graph."""
    definition, version = original(graph, *args, **kwargs)
    known = getattr(graph, "_pedl", None)
    if known is not None and not graph.building_function:
        _take_out(known, definition)
    return definition, version


# Options of an export that leave nodes out, or the devices of nodes.
_LEAVE_OUT = ("export_scope", "clear_devices", "clear_extraneous_savers")


def exported_part(
    original: Callable[..., Any], filename: str | None = None, graph_def: Any = None, graph: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """`export_scoped_meta_graph`: to leave something out it asks each op for its node, and the op may be of pedl-run."""
    from tensorflow.python.framework import ops

    held = graph or ops.get_default_graph()
    known = getattr(held, "_pedl", None)
    if graph_def is None and known is not None and any(kwargs.get(name) for name in _LEAVE_OUT):
        graph_def = held.as_graph_def()
        del graph_def.node[:]
        for op in held.get_operations():
            node = graph_def.node.add()
            node.CopyFrom(op.node_def)
            if op.outputs:
                shapes = [output.get_shape().as_proto() for output in op.outputs]
                node.attr["_output_shapes"].list.shape.extend(shapes)
        _take_out(known, graph_def)
    return original(filename, graph_def, graph, *args, **kwargs)


def _take_out(known: graphs.Graph, definition: Any) -> None:
    nodes = {node.name: node for node in definition.node}
    kept = []
    for node in definition.node:
        if op_kinds.is_own(node.name):
            continue
        if node.name in known.originals:
            made = _original_of(node, known.originals[node.name], nodes)
        else:
            made = type(node)()
            made.CopyFrom(node)
        given = [known.replaced.get(name.partition(":")[0], name) for name in made.input]
        del made.input[:]
        made.input.extend(name for name in given if not (name.startswith("^") and op_kinds.is_own(name[1:])))
        kept.append(made)
    # A function that draws takes its state from outside: such a graph stays as it is.
    if len(kept) < len(nodes) and not any(op_kinds.is_own(name) for node in kept for name in node.input):
        del definition.node[:]
        definition.node.extend(kept)


def _original_of(node: Any, original: Original, nodes: dict[str, Any]) -> Any:
    made = type(node)(name=node.name, op=original.type, device=node.device)
    data = [name for name in node.input if not name.startswith("^")]
    made.input.extend(_past_own(data[number], nodes) for number in original.inputs)
    made.input.extend(name for name in node.input if name.startswith("^"))
    for name, theirs in original.attributes.items():
        made.attr[name].CopyFrom(node.attr[theirs])
    for name, seed in zip(("seed", "seed2"), original.seeds):
        made.attr[name].i = seed
    for name in node.attr:
        if name.startswith("_"):
            made.attr[name].CopyFrom(node.attr[name])
    return made


def _past_own(name: str, nodes: dict[str, Any]) -> str:
    while op_kinds.is_own(name) and nodes[name.partition(":")[0]].op in _HANDS_ON:
        name = nodes[name.partition(":")[0]].input[0]
    return name


def exported_values(original: Callable[..., Any], context: Any, *args: Any, **kwargs: Any) -> Any:
    """`ControlFlowContext._to_values_def`: the tensors of a loop or a branch, without those of pedl-run."""
    values = original(context, *args, **kwargs)
    names = [name for name in values.values if not op_kinds.is_own(name)]
    del values.values[:]
    values.values.extend(names)
    for name in [name for name in values.external_values if op_kinds.is_own(name)]:
        del values.external_values[name]
    return values


# -- imports -----------------------------------------------------------------------------------------------------------


class _Imports:
    """How many imports run, one inside the other, and the place in each graph where they began."""

    depth = 0
    begun: list[tuple[Any, int]] = []


def imported(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`import_graph_def`: replaces the random ops that were imported."""
    from tensorflow.python.framework import ops

    graph = ops.get_default_graph()
    if graph.building_function or not recorder.CALLS.on_main_thread():
        return original(*args, **kwargs)
    _Imports.begun.append((graph, len(graph.get_operations())))
    return imported_meta_graph(original, *args, **kwargs)


def imported_meta_graph(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The import of a MetaGraph: it states the loops of the imported ops only after the ops exist."""
    if not recorder.CALLS.on_main_thread():
        return original(*args, **kwargs)
    _Imports.depth += 1
    try:
        return original(*args, **kwargs)
    finally:
        _Imports.depth -= 1
        if not _Imports.depth:
            begun, _Imports.begun = _Imports.begun, []
            for graph, first in begun:
                _replace(graph, graph.get_operations()[first:])


def _replace(graph: Any, operations: list[Any]) -> None:
    known = graphs.of(graph)
    are_told = _tells_contexts(graph, operations)
    for op in operations:
        is_told = are_told or op._get_control_flow_context() is not None
        if op.type in _MADE_BY and (is_told or _is_outside(op)):
            tensor = op.outputs[0]
            other = _other(known, op)
            if other.op.type == op.type:
                continue
            known.replaced[other.op.name] = op.name
            for consumer in tensor.consumers():
                for number, given in enumerate(list(consumer.inputs)):
                    if given is tensor:
                        consumer._update_input(number, other)


def _other(known: graphs.Graph, op: Any) -> Any:
    """The tensor of a new op beside this one, which gives the same numbers."""
    from tensorflow.python.framework import ops

    graph = known.graph
    outside = graph._get_control_flow_context()
    with contextlib.ExitStack() as scopes:
        scopes.enter_context(known.own_ids())
        scopes.enter_context(graph.as_default())
        scopes.enter_context(ops.control_dependencies(None))
        scopes.enter_context(ops.name_scope(None))
        scopes.enter_context(ops.name_scope("pedl_random"))
        scopes.enter_context(graph.device(op.device))
        graph._set_control_flow_context(op._get_control_flow_context())
        try:
            return _MADE_BY[op.type](op, {"seed": op.get_attr("seed"), "seed2": op.get_attr("seed2")})
        finally:
            graph._set_control_flow_context(outside)


def _tells_contexts(graph: Any, operations: list[Any]) -> bool:
    """Whether the imported ops know their loops and branches."""
    from tensorflow.python.framework import ops

    loops = {context.name for context in graph.get_collection_ref(ops.GraphKeys.WHILE_CONTEXT)}
    for op in operations:
        if op.type in ("Enter", "RefEnter") and op.get_attr("frame_name").decode() not in loops:
            return False
        # A switch of a predicate by itself comes before its branches.
        is_of_branch = op.type in ("Switch", "RefSwitch") and op.inputs[0] is not op.inputs[1]
        if is_of_branch and op._get_control_flow_context() is None:
            return False
    return True


# Ops with which loops and branches begin.
_BEGINS = ("Enter", "RefEnter", "Switch", "RefSwitch")


def _is_outside(op: Any) -> bool:
    """Whether nothing that an op depends on belongs to a loop or a branch, except what comes out of loops."""
    seen, waiting = set(), [op]
    while waiting:
        each = waiting.pop()
        if each.type in _BEGINS:
            return False
        if each.name not in seen and each.type not in ("Exit", "RefExit"):
            seen.add(each.name)
            waiting.extend(tensor.op for tensor in each.inputs)
            waiting.extend(each.control_inputs)
    return True


def _of_floats(name: str) -> Callable[[Any, dict[str, int]], Any]:
    def make(op: Any, seeds: dict[str, int]) -> Any:
        from tensorflow.python.ops import gen_random_ops

        return getattr(gen_random_ops, name)(op.inputs[0], op.get_attr("dtype"), **seeds)

    return make


def _of_values(name: str, **attributes: str) -> Callable[[Any, dict[str, int]], Any]:
    def make(op: Any, seeds: dict[str, int]) -> Any:
        from tensorflow.python.ops import gen_random_ops

        given = {ours: op.get_attr(theirs) for ours, theirs in attributes.items()}
        return getattr(gen_random_ops, name)(*op.inputs, **given, **seeds)

    return make


# These functions are intercepted, and build the substitutes.
_MADE_BY = {
    "RandomUniform": _of_floats("random_uniform"),
    "RandomStandardNormal": _of_floats("random_standard_normal"),
    "TruncatedNormal": _of_floats("truncated_normal"),
    "RandomUniformInt": _of_values("random_uniform_int"),
    "RandomShuffle": _of_values("random_shuffle"),
    "Multinomial": _of_values("multinomial", output_dtype="output_dtype"),
}
