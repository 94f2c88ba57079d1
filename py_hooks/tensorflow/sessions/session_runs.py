"""Runs of sessions of TensorFlow 1, and of `tf.compat.v1`: each is recorded, answered, or made in a replay too.

The door. Outside the recorded calls of Keras, a run is one of five kinds. What its fetches depend on decides which:

    it trains                         a batch (`session_loops.py`)
    it writes files                   they belong to the checkpoints, as those of `model.save` do
    it reads what training changed    a recorded call: in a replay the variables hold no true values
    it writes, from other values      made in a replay too; what the script feeds is checked against its record
    anything else                     made in a replay too, and not recorded

A replay does not make a run that reads what training changed and also writes (a moving average of the weights). What this
run writes is then as unknown as what it reads, until the resume point.

Source: tensorflow 1.15.5, tensorflow/python/client/session.py.
"""
from __future__ import annotations

import sys
from functools import partial
from threading import get_ident

from py_hooks import causes, places
from py_hooks.engine.patch import binding
from py_hooks.facts.tensorflow import tensorflow_facts
from py_hooks.recording import call_kinds, fingerprint, forks, recorder
from py_hooks.tensorflow.graphs import graphs, op_kinds
from py_hooks.tensorflow.sessions import session_loops
from py_hooks.tensorflow.sessions.not_intercepted import say_not_intercepted
from py_hooks.tensorflow.sessions.session_loops import EVALUATION
from py_hooks.tensorflow.sessions.sessions import SESSIONS, give_values, run_unrecorded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from py_hooks.recording.recorder import Calls
    from py_hooks.tensorflow.graphs.graphs import Effects, _Keeper


@binding
def run(original: Any) -> Callable[..., Any]:
    """`BaseSession._do_run`: every `Session.run`, with its fetches and feeds laid flat."""
    run_code = original.__wrapped__.__globals__["BaseSession"].run.__code__

    def do_run(
        session: Any,
        handle: Any,
        target_list: list[Any],
        fetch_list: list[Any],
        feed_dict: Any,
        options: Any,
        run_metadata: Any,
    ) -> Any:
        known = session._pedl_known
        if session._pedl_initialized < len(known.random_states):
            SESSIONS.initialize(session)
        calls = recorder.CALLS
        tensors, values = _fed(feed_dict)
        effects = known.effects(fetch_list + target_list, tensors)
        seldom = calls.is_child or effects.races is not None
        passes = seldom and _passes_when_looked(calls, effects, values, handle is None)
        if passes or (calls.depth and effects.substitutes is None):
            return original(session, handle, target_list, fetch_list, feed_dict, options, run_metadata)
        training = effects.training
        if training is not None and handle is None and not calls.depth and get_ident() == calls.main_thread:
            # One run of a loop. The time spent here is added to each run, so this calls only what it must.
            caller = sys._getframe(3)
            site = caller.f_code is run_code and calls.sites.known_of(caller.f_back)
            request = target_list, fetch_list, feed_dict, options, run_metadata
            return _loop_run(calls, original, session, effects, training, site or calls.sites.here(), tensors, values, request)
        fetched, targets = effects.fetched(fetch_list), effects.fetched(target_list)
        run = partial(original, session, handle, targets, fetched, feed_dict, options, run_metadata)
        if calls.depth or _passes(calls, session, handle, effects):
            return run()
        pull = partial(_pull, calls, original, session, feed_dict)
        return _admit(calls, session, effects, fetch_list, tensors, values, run, pull)

    return do_run


def _loop_run(
    calls: Calls,
    original: Callable[..., Any],
    session: Any,
    effects: Effects,
    training: session_loops.TrainingRun,
    site: int,
    tensors: list[Any],
    values: tuple[Any, ...],
    request: tuple[Any, ...],
) -> Any:
    """One run of a loop that trains, after its first.

    Args:
        calls: the recorder.
        original: `_do_run`.
        session: the session.
        effects: of the run.
        training: its compute function.
        site: the line of the script.
        tensors: those that are fed.
        values: what they are fed.
        request: targets, fetches, feeds, options and metadata, as the session has them.
    """
    target_list, fetch_list, feed_dict, options, run_metadata = request
    if EVALUATION.runs:
        EVALUATION.tell(calls)

    def live() -> Any:
        outputs = session._pedl_outputs.get(effects.substitutes or training) or _outputs_of(
            calls, session, effects, target_list, fetch_list, tensors
        )
        feeds = dict(zip(outputs.feeds, values))
        call = session._call_tf_sessionrun
        return session._do_call(call, options, feeds, outputs.fetches, outputs.targets, run_metadata)

    def skip(takers: list[Any]) -> None:
        session_loops.trains(calls, session)
        if takers:
            _pull(calls, original, session, feed_dict, takers)

    return training.perform_run(calls, site, values, live, skip)


def _passes_when_looked(calls: Calls, effects: Effects, values: tuple[Any, ...], can_order: bool) -> bool:
    """Handles two rare cases: a forked child, whose runs pass; and ops that use one variable in no order."""
    if calls.is_child:
        if effects.trains:
            forks.trains(calls.trial)
        return True
    effects.races.look(calls, effects, values, can_order=can_order)
    return False


def _outputs_of(
    calls: Calls, session: Any, effects: Effects, target_list: list[Any], fetch_list: list[Any], tensors: list[Any]
) -> _Outputs:
    """Makes the `_Outputs` at the first such run in a session."""
    session_loops.trains(calls, session)
    fetches, targets = effects.fetched(fetch_list), effects.fetched(target_list)
    outputs = _Outputs(session, targets, fetches, tensors)
    session._pedl_outputs[effects.substitutes or effects.training] = outputs
    return outputs


class _Outputs:
    """The objects of TensorFlow's C API for the tensors and ops of a run that trains, in one session.

    `_do_run` looks them up for each run, and has the session take up what was added to the graph. It holds a lock, and this
    takes longer than all that pedl-run does for a run. Once is enough: an op that a session has run does not change in it
    any more, and neither does what the op depends on.
    """

    __slots__ = ("feeds", "fetches", "targets")

    def __init__(self, session: Any, target_list: list[Any], fetch_list: list[Any], tensors: list[Any]) -> None:
        session._do_call(session._extend_graph)
        self.feeds = [tensor._as_tf_output() for tensor in tensors]
        self.fetches = [tensor._as_tf_output() for tensor in fetch_list]
        self.targets = [op._c_op for op in target_list]


def _passes(calls: Calls, session: Any, handle: Any, effects: Effects) -> bool:
    """Whether a run bypasses the door: one before the first run that trains or writes files, or a run in parts.

    A run in parts (`partial_run`) leaves what it was fed and has computed in the session; so it is a cause.
    """
    if handle is None:
        return not (calls.begun or effects.trains or effects.writers)
    if effects.trains:
        say_not_intercepted("training by `partial_run`")
    elif calls.begun and not session._pedl_known.stale.isdisjoint(effects.reads):
        calls.exactness.refuse(causes.PARTIAL_RUN())
    return True


def _fed(feed_dict: Any) -> tuple[list[Any], tuple[Any, ...]]:
    """The tensors that a run is given values for, and the values."""
    facts = tensorflow_facts()
    # The mapping takes ten times as long to walk as the dictionary in it.
    storage = feed_dict._storage if facts.feeds_are_wrapped else feed_dict
    return [key._wrapped for key in storage] if facts.feed_keys_are_references else list(storage), tuple(storage.values())


def _pull(calls: Calls, original: Callable[..., Any], session: Any, feed_dict: Any, operations: list[Any]) -> None:
    """Runs operations as a part of a run that is answered."""
    with calls.unrecorded():
        original(session, None, operations, [], feed_dict, None, None)


def _admit(
    calls: Calls,
    session: Any,
    effects: Effects,
    fetches: Sequence[Any],
    fed: Iterable[Any],
    feeds: tuple[Any, ...],
    live: Callable[[], Any],
    pull: Callable[[list[Any]], object],
) -> Any:
    """A run.

    Args:
        calls: the recorder.
        session: the session.
        effects: of its fetches.
        fetches: tensors whose values it returns.
        fed: tensors that it is given values for.
        feeds: these values.
        live: makes the run.
        pull: runs some of its ops, with the same feeds.
    """
    if effects.trains and effects.writers:
        say_not_intercepted("training by a run that writes files")
        return live()
    if effects.trains:
        if calls.on_main_thread():
            return session_loops.run(calls, session, effects, fetches, feeds, live, pull)
        session_loops.in_a_thread(calls)
        return live()
    if effects.writers and calls.on_main_thread():
        return _save(calls, session, effects, {tensor.name: value for tensor, value in zip(fed, feeds)}, live)
    return _through_door(calls, session, effects, fetches, feeds, live, pull)


def make_callable_from_options(original: Callable[..., Any], session: Any, options: Any) -> Callable[..., Any]:
    """`BaseSession._make_callable_from_options`: what `K.function` runs."""
    known = session._pedl_known
    function = _keeping(original(session, options), known.keeper_of(options.fetch))
    fetches = fed = effects = substitutes = None

    def through_door(*args: Any, **kwargs: Any) -> Any:
        nonlocal fetches, fed, effects, function, substitutes
        if session._pedl_initialized < len(known.random_states):
            SESSIONS.initialize(session)
        calls = recorder.CALLS
        if effects is None:
            fetches, fed, effects = _effects_of_callable(session.graph, options)
        if (calls.is_child or effects.races is not None) and _passes_when_looked(calls, effects, args, True):
            return function(*args, **kwargs)
        if effects.substitutes is not substitutes:
            ordered = original(session, _fetching(session.graph, options, effects))
            function, substitutes = _keeping(ordered, known.keeper_of(options.fetch)), effects.substitutes
        if calls.depth:
            return function(*args, **kwargs)
        if _passes(calls, session, None, effects):
            return function(*args, **kwargs)

        live, given = partial(function, *args, **kwargs), dict(zip(fed, args))
        return _admit(
            calls, session, effects, fetches, fed, args, live, lambda operations: run_unrecorded(session, operations, given)
        )

    return through_door


def _keeping(function: Callable[..., Any], kept: tuple[int, int, _Keeper] | None) -> Callable[..., Any]:
    """A callable that keeps a part of its results (`graphs.keeper_of`)."""
    if kept is None:
        return function
    place, count, keeper = kept

    def keep(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        keeper.values = result[place:place + count]
        return result

    return keep


def _effects_of_callable(graph: Any, options: Any) -> tuple[list[Any], list[Any], Effects]:
    """The tensors that a callable fetches, those that it is given values for, and the effects of a run of it."""
    fetches = [graph.as_graph_element(name) for name in options.fetch]
    targets = [graph.as_graph_element(name) for name in options.target]
    feeds = [graph.as_graph_element(name) for name in options.feed]
    connections = tuple((pair.to_tensor, pair.from_tensor) for pair in options.tensor_connection)
    return fetches, feeds, graphs.of(graph).effects(fetches + targets, feeds, connections)


def _fetching(graph: Any, options: Any, effects: Effects) -> Any:
    """The options of a callable that fetches the substitutes."""
    made = type(options)()
    made.CopyFrom(options)
    for names in (made.fetch, made.target):
        elements = effects.fetched([graph.as_graph_element(name) for name in names])
        del names[:]
        names.extend(element.name for element in elements)
    return made


def make_callable(
    original: Callable[..., Any],
    session: Any,
    fetches: Any,
    feed_list: Any = None,
    accept_options: bool = False,
) -> Callable[..., Any]:
    """`BaseSession.make_callable`: without feeds it would bypass the door."""
    if feed_list is not None:
        return original(session, fetches, feed_list, accept_options)
    return lambda *args, **kwargs: session.run(fetches, None, *args, **kwargs)


def _through_door(
    calls: Calls,
    session: Any,
    effects: Effects,
    fetches: Sequence[Any],
    feeds: tuple[Any, ...],
    live: Callable[[], Any],
    pull: Callable[[list[Any]], object],
) -> Any:
    known = session._pedl_known
    unknown = effects.reads_files or not known.stale.isdisjoint(effects.reads)
    if not calls.on_main_thread():
        if unknown:
            calls.exactness.refuse(causes.READ_IN_A_THREAD())
        return live()
    if unknown:
        known.changed(effects.writes)
        return _answerable(calls, session, effects, fetches, live, pull)
    result = live()
    known.written(effects.writes)
    if effects.writes and feeds and _is_the_scripts():
        calls.checked(call_kinds.WRITE, _identity(calls, effects), fingerprint.quick(feeds))
    return result


def _answerable(
    calls: Calls,
    session: Any,
    effects: Effects,
    fetches: Sequence[Any],
    live: Callable[[], Any],
    pull: Callable[[list[Any]], object],
) -> Any:
    """A run that reads what training changed: recorded, and answered in a replay."""
    if any(not op_kinds.is_iterator(kind) for kind in effects.takes_data):
        calls.exactness.refuse(causes.READS_AND_TAKES())

    def read() -> Any:
        values = live()
        EVALUATION.add(fetches, values)
        for name, size in session_loops.large(fetches, values):
            calls.note_kept(name, size)
        return values

    def skip() -> None:
        if effects.writes:
            give_values(session, effects.writes)
        if effects.takers:
            pull(effects.takers)

    return calls.perform(call_kinds.READ, _identity(calls, effects), read, skip=skip, raises=session_loops.end_of_data())


def _save(calls: Calls, session: Any, effects: Effects, feeds: dict[str, Any], live: Callable[[], Any]) -> Any:
    """A run that writes files: they belong to the checkpoints. A replay does not make it if its values are unknown."""
    known, files = session._pedl_known, calls.files
    prefixes = session_loops.prefixes_of(effects, feeds)
    for path in (path for prefix in prefixes for path in session_loops.files_of(prefix)):
        files.saving(path)

    def write() -> tuple[Any, list[str]]:
        return live(), [path for prefix in prefixes for path in session_loops.files_written(prefix)]

    def made(result: tuple[Any, list[str]]) -> None:
        for path in result[1]:
            files.saving(path)

    def put(recorded: tuple[Any, list[str]]) -> None:
        for path in recorded[1]:
            files.saved.replace(path)

    if known.stale.isdisjoint(effects.reads):
        result = write()
        made(result)
        return result[0]
    known.changed(effects.writes)
    return calls.perform(call_kinds.COMPOSITE, _identity(calls, effects), write, made=made, put=put)[0]


def _identity(calls: Calls, effects: Effects) -> int:
    return calls.trial.intern("session run: " + effects.identity)


# What the framework writes while it trains (metrics that it resets, a learning rate that one of its callbacks sets) follows
# from the answers that it gets.
_LOOPS = tuple(
    package + name
    for package in ("keras", "tensorflow.python.keras")
    for name in (".engine.training", ".callbacks", ".metrics")
)


def _is_the_scripts() -> bool:
    """Whether the script itself asked for the run, and not Keras's loop or a callback of Keras."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_LOOPS):
            return False
        if places.is_user_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return True
