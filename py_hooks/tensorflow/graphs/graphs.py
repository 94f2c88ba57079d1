"""TensorFlow 1 graphs: what a set of fetches reads and writes, and the ops that pedl-run adds beside those of the script.

Source: tensorflow 1.15.5, tensorflow/python/framework/ops.py.
"""
from __future__ import annotations

import contextlib

from py_hooks import places
from py_hooks.engine.patch import binding
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.recording import recorder
from py_hooks.tensorflow.graphs import control_flow, op_kinds, races

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping, Sequence
    from typing import Any, Protocol

    from py_hooks.tensorflow.graphs.graph_definitions import Original
    from py_hooks.tensorflow.graphs.races import Races, _NotLookedAt
    from py_hooks.tensorflow.sessions.session_loops import TrainingRun

    class _Keeper(Protocol):
        """Receives values that a callable has fetched."""

        values: list[Any]

# Ids of the ops of pedl-run. The default seed of a script's random op is the id of the op before it (`Graph._last_id`), so
# these ops must not count.
_FIRST_OWN_ID = 1 << 40


@binding
def count_op(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Graph._add_op`: counts the ops. An op that is made inside a recorded call has to be made in a replay too."""

    def counted(graph: Any, op: Any) -> Any:
        recorder.CALLS.traces += 1
        return original(graph, op)

    return counted


def generated_source(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`ast_to_object` of AutoGraph: notes the file, which has a random name, that its copy of a function runs from."""
    made = original(*args, **kwargs)
    places.note_generated(made[0].__file__)
    return made


def _given_seeds() -> MutableMapping[Any, int] | None:
    """How many ops got a default seed, by graph; None if TensorFlow counts all ops."""
    if not tensorflow_facts().seeds_count_seeds:
        return None
    from tensorflow.python.framework import random_seed

    found: MutableMapping[Any, int] = random_seed._graph_to_seed_dict
    return found


def of(graph: Any) -> Graph:
    """The `Graph` of a TensorFlow graph. It is an attribute of the graph, and dies with it."""
    known = getattr(graph, "_pedl", None)
    if known is None:
        known = graph._pedl = Graph(graph)
    return known


class Graph:
    """What pedl-run knows of one graph.

    Attributes:
        stale: names of the variables whose value a replay does not know, because training changed them.
        trained: names of the variables that training changes.
        random_states: the ops that set the first states of random ops, in order of creation.
        originals: the random op that a substitute replaces, by the substitute's name (`graph_definitions.Original`).
        replaced: names of random ops that were imported, by the names of the ops of pedl-run that replace them.
        metric_names: the names of metrics, by the names of tensors, if they differ from these.
        feeds_vary: whether the feeds of runs that train differ in a replay, and so are not compared.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.stale: set[str] = set()
        self.trained: set[str] = set()
        self.random_states: list[Any] = []
        self.originals: dict[str, Original] = {}
        self.replaced: dict[str, str] = {}
        self.metric_names: dict[str, str] = {}
        self.feeds_vary = False
        self._own_id = _FIRST_OWN_ID
        self._algorithm: Any = None
        self._seen = 0
        self._variables: list[Any] = []
        self._readers: dict[str, tuple[Any, Any]] = {}
        self._writers: dict[str, tuple[Any, Any]] = {}
        self._effects: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[str, str], ...]], Effects] = {}
        self._keepers: dict[str, tuple[int, _Keeper]] = {}

    # -- ops of pedl-run -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def own_ids(self) -> Iterator[None]:
        """Ops that are made inside do not count: neither in ids nor as a change of a finished graph."""
        graph = self.graph
        finalized, graph._finalized = graph._finalized, False
        try:
            # These blocks may be nested.
            is_counted = tensorflow_facts().graph_numbers_ops and graph._next_id_counter < _FIRST_OWN_ID
            with self._uncounted() if is_counted else contextlib.ExitStack():
                yield
        finally:
            graph._finalized = finalized

    @contextlib.contextmanager
    def _uncounted(self) -> Iterator[None]:
        graph = self.graph
        last_id, version = graph._next_id_counter, graph._version
        graph._next_id_counter = self._own_id
        try:
            yield
        finally:
            self._own_id, graph._next_id_counter = graph._next_id_counter, last_id
            # TensorFlow takes a graph of version 0 for empty.
            graph._version = version or graph._version

    @property
    def count(self) -> int:
        """The count that gives the next random op its default seed: of all ops, or of ops that got such a seed."""
        counts = _given_seeds()
        return self.graph._next_id_counter if counts is None else counts.get(self.graph, 0)

    @count.setter
    def count(self, number: int) -> None:
        counts = _given_seeds()
        if counts is None:
            self.graph._next_id_counter = number
        else:
            counts[self.graph] = number

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Ops that are made inside are outside all scopes of the script, on the CPU."""
        from tensorflow.python.framework import ops

        with contextlib.ExitStack() as scopes:
            scopes.enter_context(self.own_ids())
            scopes.enter_context(self.graph.as_default())
            scopes.enter_context(ops.control_dependencies(None))
            scopes.enter_context(ops.name_scope(None))
            scopes.enter_context(ops.colocate_with(None, ignore_existing=True))
            scopes.enter_context(self.graph.device(None))
            scopes.enter_context(self.graph.device("/cpu:0"))
            yield

    def algorithm(self) -> Any:
        """The constant that names Philox to the stateful random ops."""
        if self._algorithm is None:
            from tensorflow.python.framework import constant_op, dtypes

            with self.beside():
                self._algorithm = constant_op.constant(1, dtypes.int64, name="pedl_random/philox")
        return self._algorithm

    # -- variables -------------------------------------------------------------------------------------------------

    def variables(self) -> list[Any]:
        """The ops of all variables, whatever collection holds them, in order of creation."""
        operations = self.graph.get_operations()
        self._variables.extend(op for op in operations[self._seen:] if op.type in op_kinds.VARIABLES)
        self._seen = len(operations)
        return self._variables

    def reader(self, variable: Any) -> tuple[Any, Any]:
        """`(value, is initialised)`: tensors of pedl-run for a variable's op."""
        if variable.name not in self._readers:
            self._readers[variable.name] = self._make_reader(variable)
        return self._readers[variable.name]

    def _make_reader(self, variable: Any) -> tuple[Any, Any]:
        from tensorflow.python.ops import array_ops, gen_resource_variable_ops, gen_state_ops

        with self.beside():
            held = variable.outputs[0]
            if variable.type == "VarHandleOp":
                value = gen_resource_variable_ops.read_variable_op(held, variable.get_attr("dtype"), name="pedl_read")
                return value, gen_resource_variable_ops.var_is_initialized_op(held, name="pedl_read")
            return array_ops.identity(held, name="pedl_read"), gen_state_ops.is_variable_initialized(held, name="pedl_read")

    def writer(self, variable: Any) -> tuple[Any, Any]:
        """`(assignment, placeholder)`: ops of pedl-run for a variable's op."""
        if variable.name not in self._writers:
            self._writers[variable.name] = self._make_writer(variable)
        return self._writers[variable.name]

    def _make_writer(self, variable: Any) -> tuple[Any, Any]:
        from tensorflow.python.ops import array_ops, gen_resource_variable_ops, gen_state_ops

        with self.beside():
            held = variable.outputs[0]
            placeholder = array_ops.placeholder(variable.get_attr("dtype"), name="pedl_write")
            if variable.type == "VarHandleOp":
                return gen_resource_variable_ops.assign_variable_op(held, placeholder, name="pedl_write"), placeholder
            assignment = gen_state_ops.assign(held, placeholder, validate_shape=False, name="pedl_write")
            return assignment.op, placeholder

    # -- staleness -------------------------------------------------------------------------------------------------

    def changed_by_training(self, names: Collection[str]) -> None:
        """Notes that training changed variables, and whatever else it writes by these names."""
        self.changed(names)
        self.trained.update(op.name for op in self.variables() if op.name in names)

    def changed(self, names: Iterable[str]) -> None:
        """Notes variables that changed in a way that a replay does not repeat."""
        self.stale.update(names)

    def written(self, names: Collection[str]) -> None:
        """Notes variables that Python wrote: their values are true, in a replay too."""
        if not self.stale.isdisjoint(names):
            self.stale.difference_update(names)
            recorder.CALLS.cleaned += 1

    # -- fetches ---------------------------------------------------------------------------------------------------

    def effects(self, fetches: Sequence[Any], feeds: Sequence[Any], connections: tuple[tuple[str, str], ...] = ()) -> Effects:
        """The effects of running `fetches` (tensors and ops) with values for the tensors `feeds`; computed once.

        Args:
            fetches: tensors and operations.
            feeds: tensors.
            connections: a tuple of pairs of tensor names; the second tensor replaces the first.
        """
        # A graph keeps its ops and tensors, so their addresses identify them; names are slow to ask for.
        key = (tuple(map(id, fetches)), tuple(map(id, feeds)), connections)
        effects = self._effects.get(key)
        if effects is None:
            names = frozenset(feed.name for feed in feeds)
            found = self._ancestors(fetches, names, dict(connections))
            operations = [node.op for node in found.values()]
            effects = self._effects[key] = Effects(operations, fetches, names, self._trainable())
            effects.unordered = any(self._draws_unordered(op) for op in operations)
            if effects.writes:
                effects.races = races.of(self, found, feeds)
        return effects

    def keep_fetched(self, tensors: Sequence[Any], keeper: _Keeper) -> None:
        """Has the values of tensors kept whenever a callable fetches them, in `keeper.values`.

        Args:
            tensors: fetched one after the other.
            keeper: the object that keeps them; a later keeper for the same first tensor replaces it.
        """
        self._keepers[tensors[0].name] = (len(tensors), keeper)

    def keeper_of(self, names: Iterable[str]) -> tuple[int, int, _Keeper] | None:
        """`(place, count, keeper)` for the names that a callable fetches; None if nothing of that is kept."""
        for place, name in enumerate(names):
            if name in self._keepers:
                return (place, *self._keepers[name])
        return None

    def _draws_unordered(self, op: Any) -> bool:
        if op.name not in self.originals:
            return False
        loops = control_flow.loops_around(op._get_control_flow_context())
        return any(loop.parallel_iterations > 1 for loop in loops)

    def _trainable(self) -> set[str]:
        return {variable.op.name for variable in self.graph.get_collection_ref("trainable_variables")}

    def _ancestors(self, fetches: Sequence[Any], feeds: frozenset[str], connections: dict[str, str]) -> dict[str, op_kinds.Node]:
        """The ops that run for fetches, as `Node`s by their names."""

        def source(element: Any) -> Any:
            if element.name in connections:
                element = self.graph.get_tensor_by_name(connections[element.name])
            return getattr(element, "op", element)

        waiting = {}
        for fetch in fetches:
            if fetch.name not in feeds:
                op = source(fetch)
                waiting[op.name] = op
        found = {}
        while waiting:
            name, op = waiting.popitem()
            inputs = [source(tensor) for tensor in op.inputs if tensor.name not in feeds]
            controls = list(op.control_inputs)
            before = [(each.name, each) for each in inputs + controls]
            names = [each for each, _ in before]
            found[name] = op_kinds.Node(op, op.type, names[:len(inputs)], names[len(inputs):])
            waiting.update((each, op) for each, op in before if each not in found)
        return found


class Effects:
    """What running a set of fetches does.

    Attributes:
        reads: names of the variables whose values go into it.
        writes: names of the variables that it changes.
        takes_data: types of its ops that advance a queue or an iterator, or call Python.
        takers: its ops that take elements from a `tf.data` iterator, or from a queue.
        trains: an optimizer applies gradients, or a trainable variable is set to a value computed from its own.
        reads_files: values come from files.
        writers: its ops that write files.
        hidden_streams: types of its ops that draw random numbers from a state in their kernel, which nobody can read.
        unordered: whether random numbers are drawn in a loop that runs several of its passes at once.
        identity: a text that is the same in every process.
        training: the recorder of runs that train (`session_loops.TrainingRun`); None before the first.
        races: pairs of its ops that use one variable in no order, and are not reported yet; None without any.
        substitutes: what is fetched instead of the script's ops and tensors (`Substitutes`); None without any.
    """

    unordered: bool
    training: TrainingRun | None
    races: Races | _NotLookedAt | None
    substitutes: op_kinds.Substitutes | None

    def __init__(self, operations: list[Any], fetches: Sequence[Any], feeds: frozenset[str], trainable: set[str]) -> None:
        reads, writes = set(), set()
        for op in operations:
            for number, tensor in enumerate(op.inputs):
                variable = op_kinds.variable_of(tensor) if tensor.name not in feeds else None
                if variable is not None:
                    reading, writing = op_kinds.use_of(op, number)
                    reading = reading and not op_kinds.is_set_before(op, variable)
                    reads.update([variable.name] if reading else [])
                    writes.update([variable.name] if writing else [])
        reads.update(fetch.op.name for fetch in fetches if hasattr(fetch, "op") and fetch.op.type in op_kinds.VARIABLES)
        self.reads = frozenset(reads)
        self.writes = frozenset(writes)
        types = {op.type: op for op in operations}
        self.takes_data = sorted(kind for kind in types if op_kinds.takes_data(kind))
        self.takers = [op for op in operations if op_kinds.is_iterator(op.type) or op.type.startswith("QueueDequeue")]
        self.trains = any(op_kinds.applies(kind) for kind in types) or bool(self.reads & self.writes & trainable)
        self.reads_files = any(kind in op_kinds.READS_FILES for kind in types)
        self.writers = [op for op in operations if op.type in op_kinds.WRITES_FILES]
        self.hidden_streams = sorted({op.type for op in operations if op_kinds.draws_hidden(op)})
        self.identity = _identity(fetches, self.writes)
        self.training = self.races = self.substitutes = None

    def fetched(self, elements: list[Any]) -> list[Any]:
        """What is fetched for these ops, or tensors."""
        return [self.substitutes.get(id(element), element) for element in elements] if self.substitutes else elements


def _identity(fetches: Sequence[Any], writes: frozenset[str]) -> str:
    import zlib

    # The number after the last underscore counts ops of the same name; a replay may have made fewer of them.
    stems = [fetch.name.partition(":")[0].rstrip("0123456789").rstrip("_") for fetch in fetches]
    text = "{} of {}".format("write" if writes else "read", ", ".join(sorted(writes) or stems))
    return text if len(text) <= 100 else f"{text[:60]}… crc {zlib.crc32(text.encode()):08x}"


