"""TensorFlow 2: calls of traced functions (`tf.function`), and which variables they use.

A traced function reads and writes variables without any Python that could be seen. Inside a recorded call, what it
writes is stale from then on. Outside of one, by the script itself, it runs in a replay too: so the stale variables that
it uses become true before it (`eager.make_true`), and whatever it does with them it does as the first time.

Source: tensorflow 2.0.0 to 2.21.0, `ConcreteFunction._call_flat`; until 2.10 in tensorflow/python/eager/function.py.
"""
from threading import get_ident

from py_hooks.advice import calls as recorder
from py_hooks.engine.patch import binding
from py_hooks.tensorflow.eager import RESOURCE_VARIABLES, make_true

_LOOKS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
# On a call of a function within a graph, the places of the resources that it only reads
# (tensorflow 2.15.1, tensorflow/python/framework/auto_control_deps_utils.py).
_READ_ONLY = "_read_only_resource_inputs"


class Effects:
    """What a function does to the variables that exist.

    Attributes:
        used: weak references to the variables, and states of random ops, that it captured.
        written: those of them that it may change.
    """

    def __init__(self, function):
        self.used, self.written = [], []
        captured = function.captured_inputs
        for handle, inside in zip(captured, function.inputs[len(function.inputs) - len(captured):]):
            reference = RESOURCE_VARIABLES.of_handle(handle)
            if reference is not None:
                self.used.append(reference)
                if not all(_only_looks(operation, inside) for operation in inside.consumers()):
                    self.written.append(reference)

    def written_variables(self):
        """Those that it may change, and that are still there."""
        return [variable for variable in (reference() for reference in self.written) if variable is not None]


def _only_looks(operation, tensor):
    if operation.type in _LOOKS:
        return True
    places = [place for place, given in enumerate(operation.inputs) if given is tensor]
    try:
        return set(places) <= set(operation.get_attr(_READ_ONLY))
    except ValueError:
        return False


class Watch:
    """Which functions a compute function runs: `FUNCTIONS.found` holds their `Effects` while it does."""

    def __init__(self):
        self.found = None


FUNCTIONS = Watch()


@binding
def called(original):
    """`ConcreteFunction._call_flat`: notes what the function does, and sees to it that it works on true values."""

    def call_flat(function, *args, **kwargs):
        calls = recorder.CALLS
        if get_ident() == calls.main_thread:
            if not calls.depth:
                if calls.begun and _is_eager():
                    _make_used_true(calls, function)
            elif FUNCTIONS.found is not None and _is_eager():
                effects = effects_of(function)
                if effects not in FUNCTIONS.found:
                    FUNCTIONS.found.add(effects)
                    _refuse_hidden_streams(calls, function.graph)
        return original(function, *args, **kwargs)

    return call_flat


def _make_used_true(calls, function):
    for reference in effects_of(function).used:
        variable = reference()
        if variable is not None:
            make_true(calls, variable)


def effects_of(function):
    """The `Effects` of a function; found once."""
    effects = function.__dict__.get("_pedl_effects")
    if effects is None:
        effects = function._pedl_effects = Effects(function)
    return effects


def _refuse_hidden_streams(calls, graph):
    """Names the ops of a graph, and of the functions that it calls, that draw from a state in their kernel."""
    definition = graph.as_graph_def()
    nodes = [node for function in definition.library.function for node in function.node_def]
    kinds = {node.op for node in [*nodes, *definition.node] if "seed" in node.attr and "seed2" in node.attr}
    # Keras's recurrent layers bring one for GPUs along, which no CPU runs.
    for kind in sorted(kind for kind in kinds if not kind.startswith("Cudnn")):
        calls.refuse_exactness(f"the TensorFlow op `{kind}` in a model draws from a state that cannot be read")


def _is_eager():
    from tensorflow.python.eager import context

    return context.executing_eagerly()


@binding
def count_trace(original):
    """`FuncGraph.__init__`: something is traced. Inside a recorded call it has to be traced in a replay too."""

    def counted(graph, *args, **kwargs):
        calls = recorder.CALLS
        if calls is not None and get_ident() == calls.main_thread:
            calls.traces += 1
        return original(graph, *args, **kwargs)

    return counted
