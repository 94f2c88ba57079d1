"""TensorFlow 2: calls of traced functions (`tf.function`), and which variables they use.

A traced function reads and writes variables without any Python that could be seen. Inside a recorded call, the variables
that it writes are stale from then on. If the script itself calls it, outside of a recorded call, it runs in a replay too: so
the stale variables that it uses become true first (`eager.make_true`), and it computes the same as the first time.

Source: tensorflow 2.0.0 to 2.21.0, `ConcreteFunction._call_flat`; until 2.10 in tensorflow/python/eager/function.py.
"""
from __future__ import annotations

from threading import get_ident

from py_hooks import causes
from py_hooks.engine.patch import binding
from py_hooks.recording import recorder
from py_hooks.tensorflow.variables.resource_variables import RESOURCE_VARIABLES, make_true

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any
    from weakref import ref

    from py_hooks.recording.recorder import Calls

_LOOKS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
# On a call of a function within a graph, the places of the resources that it only reads
# (tensorflow 2.15.1, tensorflow/python/framework/auto_control_deps_utils.py).
_READ_ONLY = "_read_only_resource_inputs"

# Ops that call Python whenever they run.
_PYTHON = ("PyFunc", "EagerPyFunc")
# Beginnings of the names of ops that change the state of a resource other than a variable.
_MOVES = ("IteratorGetNext", "LookupTableInsert", "LookupTableRemove", "LookupTableImport")


class Effects:
    """What a function does to the variables that exist.

    Attributes:
        used: weak references to the variables, and states of random ops, that it captured.
        written: those of them that it may change.
    """

    used: list[ref[Any]]
    written: list[ref[Any]]

    def __init__(self, function: Any) -> None:
        self.used, self.written = [], []
        captured = function.captured_inputs
        for handle, inside in zip(captured, function.inputs[len(function.inputs) - len(captured):]):
            reference = RESOURCE_VARIABLES.of_handle(handle)
            if reference is not None:
                self.used.append(reference)
                if not all(_only_looks(operation, inside) for operation in inside.consumers()):
                    self.written.append(reference)

    def written_variables(self) -> list[Any]:
        """The variables that it may change, and that still exist."""
        return [variable for variable in (reference() for reference in self.written) if variable is not None]


def _only_looks(operation: Any, tensor: Any) -> bool:
    if operation.type in _LOOKS:
        return True
    places = [place for place, given in enumerate(operation.inputs) if given is tensor]
    try:
        return set(places) <= set(operation.get_attr(_READ_ONLY))
    except ValueError:
        return False


class Watch:
    """Which functions a compute function runs: `FUNCTIONS.found` holds their `Effects` while it runs."""

    def __init__(self) -> None:
        self.found: set[Effects] | None = None


FUNCTIONS = Watch()


@binding
def called(original: Callable[..., Any]) -> Callable[..., Any]:
    """`ConcreteFunction._call_flat`: notes what the function does, and gives it true values."""

    def call_flat(function: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if calls.is_outside():
            if calls.begun and _is_eager():
                _make_used_true(calls, function)
        elif get_ident() == calls.main_thread and FUNCTIONS.found is not None and _is_eager():
            effects = effects_of(function)
            if effects not in FUNCTIONS.found:
                FUNCTIONS.found.add(effects)
                _refuse_what_is_left_out(calls, function)
        return original(function, *args, **kwargs)

    return call_flat


def _make_used_true(calls: Calls, function: Any) -> None:
    for reference in effects_of(function).used:
        variable = reference()
        if variable is not None:
            make_true(calls, variable)


def effects_of(function: Any) -> Effects:
    """The `Effects` of a function; found once."""
    effects = function.__dict__.get("_pedl_effects")
    if effects is None:
        effects = function._pedl_effects = Effects(function)
    return effects


def _refuse_what_is_left_out(calls: Calls, function: Any) -> None:
    """Reports the causes in a function: what it does besides computing with variables, and an answered call does not."""
    definition = function.graph.as_graph_def()
    library = {called.signature.name: called for called in definition.library.function}
    nodes = [*definition.node, *(node for called in library.values() for node in called.node_def)]
    drawing = {node.op for node in nodes if "seed" in node.attr and "seed2" in node.attr}
    # Keras's recurrent layers include one for GPUs, which no CPU runs.
    for kind in sorted(kind for kind in drawing if not kind.startswith("Cudnn")):
        calls.exactness.refuse(causes.HIDDEN_STATE(kind=kind, place="a model"))
    if any(node.op in _PYTHON for node in nodes):
        calls.exactness.refuse(causes.CALLS_PYTHON())
    captured = function.captured_inputs
    for handle, inside in zip(captured, function.inputs[len(function.inputs) - len(captured):]):
        if RESOURCE_VARIABLES.of_handle(handle) is None:
            for kind in sorted(set(_users(definition.node, inside.op.name, library, set()))):
                if kind.startswith(_MOVES):
                    calls.exactness.refuse(causes.MOVES_SOMETHING(kind=kind))


def _users(nodes: Iterable[Any], name: str, library: dict[str, Any], seen: set[tuple[str, int]]) -> Iterator[str]:
    """Types of the nodes that have the named input, among some nodes and in the functions that they call."""
    for node in nodes:
        given = [each.partition(":")[0] for each in node.input if not each.startswith("^")]
        # The first input selects the branch; the arguments of the branch follow.
        first = int(node.op.endswith(("If", "Case")))
        for place in (place - first for place, each in enumerate(given) if each == name):
            yield node.op
            for called in _called_by(node):
                if called in library and (called, place) not in seen:
                    seen.add((called, place))
                    arguments = library[called].signature.input_arg
                    yield from _users(library[called].node_def, arguments[place].name, library, seen)


def _called_by(node: Any) -> Iterator[str]:
    for attribute in node.attr.values():
        yield from [each.name for each in (attribute.func, *attribute.list.func) if each.name]


def _is_eager() -> bool:
    from tensorflow.python.eager import context

    return context.executing_eagerly()


@binding
def count_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    """`FuncGraph.__init__`: counts traces. What is traced inside a recorded call has to be traced in a replay too."""

    def counted(graph: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if calls is not None and get_ident() == calls.main_thread:
            calls.traces += 1
        return original(graph, *args, **kwargs)

    return counted
