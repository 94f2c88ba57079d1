"""Sessions of TensorFlow 1, and of `tf.compat.v1`: keeps their variables in checkpoints.

A session gets a number when the script makes it. A checkpoint holds the variables of each open session under its number.
`session_runs.py` intercepts the runs.

Source: tensorflow 1.15.5, tensorflow/python/client/session.py.
"""
from __future__ import annotations

import contextlib
import os
import weakref

from py_hooks import causes
from py_hooks.border import ExitCode
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.recording import recorder
from py_hooks.refusal import Refusal
from py_hooks.tensorflow.files import event_files
from py_hooks.tensorflow.graphs import graphs
from py_hooks.tensorflow.sessions import session_loops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator
    from typing import Any

    from numpy import ndarray

    from py_hooks.recording.recorder import Calls

_PROCESS = os.getpid()


class Sessions:
    """The sessions of this process, by creation number: the variables of a checkpoint.

    Attributes:
        provider: the name under which a checkpoint holds them.
    """

    provider = "tensorflow"

    def __init__(self) -> None:
        self._references: list[weakref.ref[Any]] = []
        # What was trained in the graphs of all sessions, including those that are gone.
        self._trained: dict[int, set[str]] = {}
        self._is_aside = False

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Sessions that are made inside do not belong to the script: a replay does not make them."""
        self._is_aside = True
        try:
            yield
        finally:
            self._is_aside = False

    def add(self, session: Any) -> None:
        """Numbers a session that was just made."""
        session._pedl_known = graphs.of(session.graph)
        session._pedl_initialized = 0
        session._pedl_outputs = {}
        session._pedl_trains = False
        if not self._is_aside:
            self._references.append(weakref.ref(session))
            trained = session._pedl_known.trained
            self._trained[id(trained)] = trained

    def alive(self) -> Iterator[tuple[int, Any]]:
        """`(number, session)` of the sessions that are open."""
        for number, reference in enumerate(self._references):
            session = reference()
            if session is not None and not session._closed:
                yield number, session

    def lost(self) -> list[str]:
        """Names of variables that training changed, and that have a value in no open session: a checkpoint lacks them.

        Each name is returned once.
        """
        held: dict[int, set[str]] = {}
        for _, session in self.alive():
            trained = session._pedl_known.trained
            if trained:
                held.setdefault(id(trained), set()).update(name for name, _ in _with_value(session))
        found: list[str] = []
        for key, names in self._trained.items():
            found.extend(names - held.get(key, set()))
            names.intersection_update(held.get(key, ()))
        return sorted(found)

    def key_of(self, variable: Any) -> str | None:
        """The name of a variable's value in a checkpoint, in the newest open session of its graph; None without one."""
        numbers = [number for number, session in self.alive() if session.graph is variable.graph]
        return f"{self.provider}/{numbers[-1]}/{variable.op.name}" if numbers else None

    def of_default_graph(self, backend: Any) -> Any:
        """The newest open session of the default graph. If there is none, the backend of Keras makes one."""
        from tensorflow.python.framework import ops

        graph = ops.get_default_graph()
        found = [session for _, session in self.alive() if session.graph is graph]
        return found[-1] if found else backend.get_session()

    def initialize(self, session: Any) -> None:
        """Sets the states of random ops that were made since the session's last run."""
        states = session._pedl_known.random_states
        made = session._pedl_initialized
        if made < len(states):
            session._pedl_initialized = len(states)
            run_unrecorded(session, states[made:])

    # -- state in a checkpoint ---------------------------------------------------------------------------------------

    def capture(self) -> tuple[list[tuple[str, Any]], dict[str, dict[str, int]]]:
        """The values of all variables that have one, and the graphs' counts of ops."""
        tensors: list[tuple[str, Any]]
        counts: dict[str, int]
        tensors, counts = [], {}
        for number, session in self.alive():
            self.initialize(session)
            counts[str(number)] = session._pedl_known.count
            tensors.extend((f"{number}/{name}", value) for name, value in _values(session))
        return tensors, {"counts": counts}

    def restore(self, tensors: dict[str, ndarray], state: dict[str, dict[str, int]]) -> None:
        """Assigns saved values.

        A replay makes fewer ops than the recorded run (loading weights makes some), so this restores the count of ops too:
        default seeds come from it.
        """
        by_session: dict[int, dict[str, ndarray]] = {}
        number: int | str
        for key, value in tensors.items():
            number, _, name = key.partition("/")
            by_session.setdefault(int(number), {})[name] = value
        for number, session in self.alive():
            self.initialize(session)
            _assign(session, by_session.get(number, {}))
            known = session._pedl_known
            known.count = max(known.count, state["counts"].get(str(number), 0))


SESSIONS = Sessions()


class VariableMissing(Refusal):
    """At the resume point a graph lacks a variable that the recorded run had."""

    exit_code = ExitCode.DIVERGED

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        Refusal.__init__(
            self,
            "the replay differs from the record: the script made other variables\n"
            f"  recorded `{name}` of shape {shape}, now there is none\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "look for models built by the clock, the environment or another file; `--fresh` begins a new trial",
        )


def run_unrecorded(session: Any, fetches: list[Any], feeds: dict[Any, Any] | None = None) -> list[Any]:
    """A run by pedl-run, which is not recorded."""
    calls = recorder.CALLS
    with calls.unrecorded():
        return session.run(fetches, feeds)


def _values(session: Any) -> Iterable[tuple[str, Any]]:
    """`(name, value)` of a session's variables that have a value."""
    found = _with_value(session)
    return zip([name for name, _ in found], run_unrecorded(session, [value for _, value in found])) if found else []


def _with_value(session: Any) -> list[tuple[str, Any]]:
    """`(name, tensor)` of a session's variables that have a value."""
    from tensorflow.python.framework import dtypes

    known = graphs.of(session.graph)
    readers = [(op.name,) + known.reader(op) for op in known.variables() if op.get_attr("dtype") != dtypes.string]
    if len(readers) < len(known.variables()):
        recorder.CALLS.exactness.refuse(causes.STRINGS())
    if not readers:
        return []
    have_value = run_unrecorded(session, [initialized for _, _, initialized in readers])
    return [(name, value) for (name, value, _), has_value in zip(readers, have_value) if has_value]


def _assign(session: Any, values: dict[str, ndarray]) -> None:
    known = graphs.of(session.graph)
    variables = {op.name: op for op in known.variables()}
    assignments, feeds = [], {}
    for name, value in values.items():
        if name not in variables:
            raise VariableMissing(name, value.shape)
        assignment, placeholder = known.writer(variables[name])
        assignments.append(assignment)
        feeds[placeholder] = value
    if assignments:
        run_unrecorded(session, assignments, feeds)


def give_values(session: Any, names: Container[str]) -> None:
    """Sets variables that have no value to zero, because a run that is answered would have given them one.

    The value does not matter before the resume point. But a script may ask if there is one, as Estimators do after they have
    read one of their checkpoints.
    """
    known = graphs.of(session.graph)
    written = [op for op in known.variables() if op.name in names]
    have_value = run_unrecorded(session, [known.reader(op)[1] for op in written])
    zeros = {op.name: _zeros_of(op) for op, has_value in zip(written, have_value) if not has_value}
    _assign(session, zeros)


def _zeros_of(variable: Any) -> ndarray:
    import numpy
    from tensorflow.python.framework import tensor_shape

    shape = tensor_shape.TensorShape(variable.get_attr("shape"))
    dimensions = [size or 0 for size in shape.as_list()] if shape.ndims is not None else []
    return numpy.zeros(dimensions, variable.get_attr("dtype").as_numpy_dtype)


def prepare(calls: Calls) -> None:
    """TensorFlow 1: has the variables of sessions kept in checkpoints."""
    provide(calls)
    event_files.prepare(calls)


def provide(calls: Calls, provider: str = "tensorflow") -> None:
    """Has the variables of sessions kept in checkpoints, under this name."""
    SESSIONS.provider = provider
    session_loops.prepare(calls)
    calls.checkpoints.keep(provider, SESSIONS)
    calls.lost.append(SESSIONS.lost)


# -- the life of a session -------------------------------------------------------------------------------------------


def created(
    original: Callable[..., Any], session: Any, target: str | bytes = "", graph: Any = None, config: Any = None
) -> None:
    """`BaseSession.__init__`: numbers the session. With `--exact` it runs one operation at a time."""
    calls = recorder.CALLS
    if calls.trial.exact:
        config = _one_at_a_time(config)
    original(session, target, graph, config)
    SESSIONS.add(session)


def _one_at_a_time(config: Any) -> Any:
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    imposed = config_pb2.ConfigProto()
    if config is None:
        # Without a config, a session takes the context's, if that has one.
        config = context.context().config if tensorflow_facts().context_has_config else imposed
    imposed.CopyFrom(config)
    if not imposed.inter_op_parallelism_threads:
        imposed.inter_op_parallelism_threads = 1
    return imposed


def deleted(
    original: Callable[..., Any],
    session_or_callable: Any,
    getpid: Callable[[], int] = os.getpid,
    process: int = _PROCESS,
) -> None:
    """`__del__` of sessions and their callables: skipped in a forked child, where it would wait for threads for ever.

    CPython frees the other threads' locals in the child, and Keras keeps its session in one. Everything that this needs is
    among its arguments, because the last sessions are deleted after CPython has emptied its modules.
    """
    if getpid() == process:
        original(session_or_callable)
