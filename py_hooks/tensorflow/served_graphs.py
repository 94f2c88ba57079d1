"""The graph of a `TensorFlowTrial` as others can run it: its part in a checkpoint, and the SavedModel made from that.

A checkpoint has the part of the graph that computes what `build_graph` has returned, in the format `MetaGraphDef`:
placeholders replace the record, and `is_training` is False. It needs no data set, no script, and no optimizer. It is the same
in all checkpoints of a trial, and so stored once. The values of variables are those of the session (`sessions.py`).

Source: tensorflow 1.15.5, tensorflow/core/protobuf/meta_graph.proto, `MetaGraphDef`; tensorflow/python/training/saver.py,
`import_meta_graph`.
"""
from __future__ import annotations

import re

from py_hooks.tensorflow.graphs import graphs
from py_hooks.tensorflow.sessions import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    import numpy

# The name of the state provider that holds the graph in a checkpoint, and the name of the graph in it.
STATE = "tensorflow graph"
_GRAPH = "graph"

# The collections of TensorFlow that hold variables and initializers.
_VARIABLES = "variables"
_TABLES = "table_initializer"


class GraphState:
    """The graph of a trial, for checkpoints.

    Args:
        graph: the TensorFlow graph.
        record: the tensors that represent a batch, nested.
        is_training: the tensor that is true if the graph is trained.
        outputs: tensors by their names.
    """

    def __init__(self, graph: Any, record: Any, is_training: Any, outputs: dict[str, Any]) -> None:
        self._leaves = dict(_leaves(record))
        roots = {tensor.op.name for tensor in self._leaves.values()} | {is_training.op.name}
        self._roots = roots
        found = _reached(outputs.values(), roots)
        self.variables, definitions = _variables_of(graph, found)
        initializers = _initializers(graph, found)
        names = [name for one in definitions for name in (one.initializer_name, one.initial_value_name, one.snapshot_name)]
        others = [graph.as_graph_element(name) for name in names if name]
        found.update(_reached([*initializers, *others], roots))
        self._placeholders = _named_apart(self._leaves, set(found) | roots)
        meta = _definition(graph, found, self._tensor_names())
        meta.graph_def.node.extend(self._stand_ins(is_training))
        for one in definitions:
            meta.collection_def[_VARIABLES].bytes_list.value.append(one.SerializeToString(deterministic=True))
        # Attributes of nodes are maps, whose order differs from process to process.
        self._bytes = meta.SerializeToString(deterministic=True)
        self._state = {
            "inputs": {name: f"{self._placeholders[name]}:0" for name in self._leaves},
            "outputs": {name: self._tensor_names().get(tensor.name, tensor.name) for name, tensor in outputs.items()},
            "needs": {name: self._needs(tensor) for name, tensor in outputs.items()},
            "initializers": [op.name for op in initializers],
        }

    def _tensor_names(self) -> dict[str, str]:
        """The names of the record's tensors in the definition, by their names in the graph."""
        return {tensor.name: f"{self._placeholders[name]}:0" for name, tensor in self._leaves.items()}

    def _stand_ins(self, is_training: Any) -> list[Any]:
        """The nodes for the record, and the constant for `is_training`, which is False."""
        import tensorflow.compat.v1 as v1

        constant = v1.NodeDef(name=is_training.op.name, op="Const")
        constant.attr["dtype"].type = is_training.dtype.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(v1.make_tensor_proto(False))
        nodes = [constant]
        for name, tensor in self._leaves.items():
            node = v1.NodeDef(name=self._placeholders[name], op="Placeholder")
            node.attr["dtype"].type = tensor.dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())
            nodes.append(node)
        return nodes

    def _needs(self, output: Any) -> list[str]:
        """The parts of the record that an output depends on."""
        taken = {tensor.name for op in _reached([output], self._roots).values() for tensor in op.inputs} | {output.name}
        return [name for name, tensor in self._leaves.items() if tensor.name in taken]

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, Any]]:
        """The definition, and how to call it."""
        import numpy

        return [(_GRAPH, numpy.frombuffer(self._bytes, "uint8"))], self._state

    def restore(self, tensors: dict[str, numpy.ndarray], state: Any) -> None:
        """Nothing: the trial makes its graph itself."""


class GraphModel:
    """The description of a trial's graph in a checkpoint, in the form of a model.

    Args:
        name: of the trial class.
        variables: of the graph.
    """

    def __init__(self, name: str, variables: list[Any]) -> None:
        self._name = name
        self._variables = variables

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], list[dict[str, Any]]]:
        """No tensors; the names of variables, and those under which the checkpoint holds them."""
        import tensorflow

        weights = [[variable.op.name, sessions.SESSIONS.key_of(variable)] for variable in self._variables]
        model = {
            "number": 0,
            "class": self._name,
            "framework": "tensorflow",
            "version": tensorflow.__version__,
            "backend": "tensorflow",
            "weights": weights,
            "architecture": None,
            "why_not": "it is a graph of TensorFlow",
        }
        return [], [model]

    def restore(self, tensors: dict[str, numpy.ndarray], state: Any) -> None:
        """Nothing: the trial makes its graph itself."""


def _leaves(record: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """`(name, tensor)` of the parts of a record: `images`, `pair_0`; `record` if it is one tensor."""
    if isinstance(record, dict):
        parts: Iterable[tuple[Any, Any]] = record.items()
    elif hasattr(record, "_fields"):
        parts = zip(record._fields, record)
    elif isinstance(record, (list, tuple)):
        parts = enumerate(record)
    elif hasattr(record, "dense_shape"):
        parts = [(part, getattr(record, part)) for part in ("indices", "values", "dense_shape")]
    else:
        path = path if path and isinstance(path[0], str) else ("record", *path)
        yield "_".join(map(str, path)), record
        return
    for key, part in parts:
        yield from _leaves(part, (*path, key))


def _reached(fetches: Iterable[Any], roots: set[str]) -> dict[str, Any]:
    """The ops that compute the fetches, by their names, without the roots and what is before these."""
    found, waiting = {}, list(fetches)
    while waiting:
        element = waiting.pop()
        op = getattr(element, "op", element)
        if op.name not in found and op.name not in roots:
            found[op.name] = op
            waiting.extend(op.inputs)
            waiting.extend(op.control_inputs)
    return found


def _variables_of(graph: Any, found: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The variables among ops, and their definitions."""
    import tensorflow.compat.v1 as v1

    collections = v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.LOCAL_VARIABLES
    known = {variable.op.name: variable for name in collections for variable in graph.get_collection(name)}
    variables = [variable for name, variable in known.items() if name in found]
    return variables, [variable.to_proto() for variable in variables]


def _initializers(graph: Any, found: dict[str, Any]) -> list[Any]:
    """Ops that have to run before the graph does: those of tables, and of the states of random ops."""
    initializers = graph.get_collection(_TABLES) + graphs.of(graph).random_states
    return [op for op in initializers if any(tensor.op.name in found for tensor in op.inputs)]


def _named_apart(names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Names for nodes, by the names of parts of the record."""
    given = {}
    for name in names:
        stem = "record/" + re.sub(r"[^A-Za-z0-9_.]", "_", name)
        node = stem
        while node in taken:
            node += "_"
        taken.add(node)
        given[name] = node
    return given


def _definition(graph: Any, found: dict[str, Any], renamed: dict[str, str]) -> Any:
    """The `MetaGraphDef` of ops."""
    import tensorflow.compat.v1 as v1

    inputs = {name[:-2] if name.endswith(":0") else name: other[:-2] for name, other in renamed.items()}
    gone = {"^" + name.partition(":")[0] for name in renamed}
    meta = v1.MetaGraphDef()
    meta.graph_def.versions.CopyFrom(graph.graph_def_versions)
    for op in found.values():
        node = meta.graph_def.node.add()
        node.CopyFrom(op.node_def)
        node.device = ""
        kept = [inputs.get(name, name) for name in node.input if name not in gone]
        del node.input[:]
        node.input.extend(kept)
        places = [place for place in node.attr["_class"].list.s if place.decode().replace("loc:@", "") in found]
        del node.attr["_class"]
        if places:
            node.attr["_class"].list.s.extend(places)
    if any("func" in attribute.type for op in found.values() for attribute in op.op_def.attr):
        meta.graph_def.library.CopyFrom(graph.as_graph_def().library)
    return meta


# -- in an export ------------------------------------------------------------------------------------------------------


def write(state: dict[str, Any], definition: numpy.ndarray, values: dict[str, numpy.ndarray], target: str) -> None:
    """Writes a SavedModel.

    It has a signature for each output, which takes the parts of the record that the output needs, and `serving_default`,
    which takes all of the record and gives all outputs.

    Args:
        state: as in `GraphState`.
        definition: an array of bytes.
        values: arrays by the names of variables.
        target: a folder that does not exist yet.
    """
    import tensorflow.compat.v1 as v1

    v1.logging.set_verbosity(v1.logging.ERROR)
    with v1.Graph().as_default() as graph, v1.Session() as session:
        saver = v1.train.import_meta_graph(v1.MetaGraphDef.FromString(definition.tobytes()))
        for variable in graph.get_collection(_VARIABLES):
            # The value replaces the one of its initializer.
            session.run(variable.initializer, {variable.initializer.inputs[1]: values[variable.op.name]})
        initializers = [graph.get_operation_by_name(name) for name in state["initializers"]]
        builder = v1.saved_model.Builder(target)
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map=_signatures(graph, state, v1),
            main_op=v1.group(*initializers) if initializers else None,
            saver=saver,
        )
        builder.save()


def _signatures(graph: Any, state: dict[str, Any], v1: Any) -> dict[str, Any]:
    inputs, outputs = (
        {name: graph.get_tensor_by_name(tensor) for name, tensor in state[what].items()} for what in ("inputs", "outputs")
    )
    signatures = {"serving_default": v1.saved_model.predict_signature_def(inputs, outputs)}
    for name, needed in state["needs"].items():
        if needed and name not in signatures:
            taken = {each: inputs[each] for each in needed}
            signatures[name] = v1.saved_model.predict_signature_def(taken, {name: outputs[name]})
    return signatures
