"""TensorFlow 1: sessions. What their variables hold belongs to a checkpoint, and what the script runs in them is seen.

The door. Outside the calls of Keras that are recorded, a run is one of three, told apart by what its fetches depend on:

    it reads what training changed    a recorded call: in a replay the variables hold no true values
    it writes, from other values      made in a replay too; what the script feeds is checked against its record
    anything else                     made in a replay too, and not recorded

A run of the first kind that also writes (a moving average of the weights) is not made in a replay; what it writes is
then as unknown as what it reads, until the resume point.

Source: tensorflow 1.15.5, tensorflow/python/client/session.py.
"""
import os
import sys
import weakref

from py_hooks.advice import calls as recorder
from py_hooks.advice import fingerprint, places
from py_hooks.engine.patch import binding
from py_hooks.refusal import Refusal
from py_hooks.tensorflow import event_files, graphs

_PROCESS = os.getpid()


class Sessions:
    """The sessions of this process, by creation number: the variables of a checkpoint."""

    def __init__(self):
        self._references = []

    def add(self, session):
        """Numbers a session that was just made."""
        session._pedl_known = graphs.of(session.graph)
        session._pedl_initialized = 0
        self._references.append(weakref.ref(session))

    def alive(self):
        """`(number, session)` of the sessions that are open."""
        for number, reference in enumerate(self._references):
            session = reference()
            if session is not None and not session._closed:
                yield number, session

    def key_of(self, variable):
        """The name of a variable's value in a checkpoint, in the newest open session of its graph; None without one."""
        numbers = [number for number, session in self.alive() if session.graph is variable.graph]
        return f"tensorflow/{numbers[-1]}/{variable.op.name}" if numbers else None

    def of_default_graph(self, backend):
        """The newest open session of the default graph; that of a backend of Keras, made now, where there is none."""
        from tensorflow.python.framework import ops

        graph = ops.get_default_graph()
        found = [session for _, session in self.alive() if session.graph is graph]
        return found[-1] if found else backend.get_session()

    def initialize(self, session):
        """Sets the states of random ops that were made since the session's last run."""
        states = session._pedl_known.random_states
        made = session._pedl_initialized
        if made < len(states):
            session._pedl_initialized = len(states)
            _run(session, states[made:])

    # -- state in a checkpoint ---------------------------------------------------------------------------------------

    def capture(self):
        """The values of all variables that have one, and the graphs' counts of ops."""
        tensors, last_ids = [], {}
        for number, session in self.alive():
            self.initialize(session)
            last_ids[str(number)] = session.graph._next_id_counter
            tensors.extend((f"{number}/{name}", value) for name, value in _values(session))
        return tensors, {"last_ids": last_ids}

    def restore(self, tensors, state):
        """Assigns saved values.

        A replay makes fewer ops than the recorded run (loading weights makes some), so the count of ops, from which
        default seeds come, is put in too.
        """
        by_session = {}
        for key, value in tensors.items():
            number, _, name = key.partition("/")
            by_session.setdefault(int(number), {})[name] = value
        for number, session in self.alive():
            self.initialize(session)
            _assign(session, by_session.get(number, {}))
            last_id = state["last_ids"].get(str(number), 0)
            session.graph._next_id_counter = max(session.graph._next_id_counter, last_id)


SESSIONS = Sessions()


class VariableMissing(Refusal):
    """At the resume point a graph lacks a variable that the recorded run had."""

    exit_code = 76

    def __init__(self, name, shape):
        Refusal.__init__(
            self,
            "the replay differs from the record: the script made other variables\n"
            f"  recorded `{name}` of shape {shape}, now there is none\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "look for models built by the clock, the environment or another file; `--fresh` begins a new trial",
        )


def _run(session, fetches, feeds=None):
    """A run of our own."""
    calls = recorder.CALLS
    with calls.unrecorded():
        return session.run(fetches, feeds)


def _values(session):
    """`(name, value)` of a session's variables that have a value."""
    from tensorflow.python.framework import dtypes

    known = graphs.of(session.graph)
    readers = [(op.name,) + known.reader(op) for op in known.variables() if op.get_attr("dtype") != dtypes.string]
    if len(readers) < len(known.variables()):
        recorder.CALLS.refuse_exactness("a TensorFlow variable of strings")
    if not readers:
        return []
    have_value = _run(session, [initialized for _, _, initialized in readers])
    readers = [reader for reader, has_value in zip(readers, have_value) if has_value]
    return zip([name for name, _, _ in readers], _run(session, [value for _, value, _ in readers]))


def _assign(session, values):
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
        _run(session, assignments, feeds)


def prepare(calls):
    """Has the variables of sessions kept in checkpoints."""
    calls.state_providers.append(("tensorflow", SESSIONS))
    event_files.prepare(calls)


# -- the life of a session -------------------------------------------------------------------------------------------


def created(original, session, target="", graph=None, config=None):
    """`BaseSession.__init__`: numbers the session. With `--exact` it runs one operation at a time."""
    calls = recorder.CALLS
    if calls.trial.exact:
        config = _one_at_a_time(config)
    original(session, target, graph, config)
    SESSIONS.add(session)


def _one_at_a_time(config):
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    imposed = config_pb2.ConfigProto()
    if config is None:
        # What a session takes for none is the context's; in 1.13 nothing.
        config = getattr(context.context(), "config", imposed)
    imposed.CopyFrom(config)
    if not imposed.inter_op_parallelism_threads:
        imposed.inter_op_parallelism_threads = 1
    return imposed


def runs_one_at_a_time(session):
    """Whether a session runs one operation at a time: only then does a run on the CPU repeat."""
    given = session._config.inter_op_parallelism_threads if session._config is not None else 0
    return (given or os.environ.get("TF_NUM_INTEROP_THREADS")) in (1, "1")


def deleted(original, session_or_callable):
    """`__del__` of sessions and their callables: not in a forked child, where it would wait for threads for ever.

    CPython frees the other threads' locals in the child, and Keras keeps its session in one.
    """
    if os.getpid() == _PROCESS:
        original(session_or_callable)


# -- the door --------------------------------------------------------------------------------------------------------


@binding
def run(original):
    """`BaseSession._do_run`: every `Session.run`, with its fetches and feeds laid flat."""

    def do_run(session, handle, target_list, fetch_list, feed_dict, options, run_metadata):
        if session._pedl_initialized < len(session._pedl_known.random_states):
            SESSIONS.initialize(session)
        calls = recorder.CALLS
        if calls.depth or not calls.begun or handle is not None:
            return original(session, handle, target_list, fetch_list, feed_dict, options, run_metadata)

        def live():
            return original(session, handle, target_list, fetch_list, feed_dict, options, run_metadata)

        effects = session._pedl_known.effects(fetch_list + target_list, list(feed_dict))
        return _through_door(calls, session, effects, list(feed_dict.values()), live)

    return do_run


def make_callable_from_options(original, session, options):
    """`BaseSession._make_callable_from_options`: what `K.function` runs."""
    function, known, effects = original(session, options), session._pedl_known, None

    def through_door(*args, **kwargs):
        nonlocal effects
        if session._pedl_initialized < len(known.random_states):
            SESSIONS.initialize(session)
        calls = recorder.CALLS
        if calls.depth or not calls.begun:
            return function(*args, **kwargs)
        effects = effects or _effects_of_callable(session.graph, options)
        return _through_door(calls, session, effects, list(args), lambda: function(*args, **kwargs))

    return through_door


def _effects_of_callable(graph, options):
    fetches = [graph.as_graph_element(name) for name in list(options.fetch) + list(options.target)]
    feeds = [graph.as_graph_element(name) for name in options.feed]
    connections = [(pair.to_tensor, pair.from_tensor) for pair in options.tensor_connection]
    return graphs.of(graph).effects(fetches, feeds, connections)


def make_callable(original, session, fetches, feed_list=None, accept_options=False):
    """`BaseSession.make_callable`: without feeds it would go past the door."""
    if feed_list is not None:
        return original(session, fetches, feed_list, accept_options)
    return lambda *args, **kwargs: session.run(fetches, None, *args, **kwargs)


def _through_door(calls, session, effects, feeds, live):
    known = session._pedl_known
    unknown = effects.reads_files or not known.stale.isdisjoint(effects.reads)
    if not calls.on_main_thread():
        if unknown:
            calls.refuse_exactness("a thread of the script reads variables that training changes")
        return live()
    if unknown:
        if effects.takes_data:
            calls.refuse_exactness("a run reads variables that training changes, and takes data or calls Python")
        known.changed(effects.writes)
        return calls.call(recorder.READ, _identity(calls, effects), live)
    result = live()
    known.written(effects.writes)
    if effects.writes and feeds and _is_the_scripts():
        calls.checked(recorder.WRITE, _identity(calls, effects), fingerprint.quick(feeds))
    return result


def _identity(calls, effects):
    return calls.trial.intern("session run: " + effects.identity)


# What the framework writes while it trains (metrics that start anew, a learning rate that a callback of its own sets)
# follows from what it is answered.
_LOOPS = tuple(
    package + name
    for package in ("keras", "tensorflow.python.keras")
    for name in (".engine.training", ".callbacks", ".metrics")
)


def _is_the_scripts():
    """Whether the script itself asked for the run, and not Keras's loop or a callback of Keras."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_LOOPS):
            return False
        if places.is_user_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return True


# -- training that is not intercepted ----------------------------------------------------------------------------------


def apply_gradients(original, optimizer, *args, **kwargs):
    """`apply_gradients` of an optimizer: below Keras it is Keras's; else a training loop of the script's own."""
    from tensorflow.python.framework import ops

    say_not_intercepted(EAGER_TRAINING if ops.executing_eagerly_outside_functions() else "training through tf.Session")
    return original(optimizer, *args, **kwargs)


# What `tf.enable_eager_execution()` leads to: neither a session nor a compute function is there to be seen.
EAGER_TRAINING = "training in eager mode of TensorFlow 1"


def not_intercepted(what):
    """The cause for training that nobody sees."""
    return f"{what} is not intercepted in this version"


def say_not_intercepted(what):
    """Says once that the script trains in a way that has no checkpoints; not for what Keras does on its own behalf."""
    calls = recorder.CALLS
    cause = not_intercepted(what)
    if calls.depth or cause in calls.causes:
        return
    if not calls.begun:
        calls.trial.log(f"no checkpoints: {cause}")
    calls.refuse_exactness(cause)
