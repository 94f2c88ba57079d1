"""Training loops of the script over TensorFlow sessions: a run that trains is recorded, and answered in a replay.

The ops that the fetches depend on decide if a run trains (`graphs.Effects.trains`). A run that trains is one batch: it counts
for steps, checkpoints may follow it, and its scalars are the metrics of the step, by the names of their tensors. A replay
does not make it: its results come from the log. Only those ops of its graph run that take elements from `tf.data` iterators
and queues, so that these have the same position as before. If there are no more elements, these ops raise the same error
again, and the run raises it; no record is made of it.

Runs between two training runs that do not train, and read what training changed, are an evaluation: the means of the numbers
that they fetch are one event, `evaluation`, which is written when the script continues to train, or ends.

Source: tensorflow 1.15.5, tensorflow/python/client/session.py, `BaseSession._do_run`.
"""
from __future__ import annotations

import json
import math

from py_hooks import causes
from py_hooks.recording import call_kinds, entries, loops, recorder
from py_hooks.recording.compute_functions import ComputeFunction
from py_hooks.tensorflow.sessions import session_causes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from py_hooks.recording.recorder import Calls
    from py_hooks.tensorflow.graphs.graphs import Effects, Graph

# The fed values have no names except those of their tensors, and these are in the identity of the record.
_NO_NAMES: dict[str, Any] = {}


class TrainingRun(ComputeFunction):
    """The runs of one set of fetches that train.

    Attributes:
        large: names and bytes of the fetched values that fill the log; None before the first run.
    """

    # What raises is the end of the data, which a replay reaches by itself.
    is_made_again = False
    large: list[tuple[str, int]] | None

    def __init__(self, known: Graph, effects: Effects, fetches: Sequence[Any]) -> None:
        ComputeFunction.__init__(self, recorder.CALLS, call_kinds.TRAIN, "session train: " + effects.identity)
        self._known = known
        self._effects = effects
        self._fetches = fetches
        self.large = None
        # Whole numbers are counts of steps, and a mean of these is no metric.
        names = [
            known.metric_names.get(fetch.name) or (_metric_of(fetch) if fetch.dtype.base_dtype.is_floating else "")
            for fetch in fetches
        ]
        recorder.CALLS.trial.metric_names(self.identity, names)

    def perform_run(
        self,
        calls: Calls,
        site: int,
        feeds: tuple[Any, ...],
        live: Callable[[], Any],
        skip: Callable[[list[Any]], object],
    ) -> Any:
        """A run: made, or answered.

        Args:
            calls: the recorder.
            site: the line of the script.
            feeds: the values that the run is given.
            live: makes the run.
            skip: is called in its place if the run is answered, with those of its ops that take data.
        """

        def compute() -> Any:
            result = live()
            if self.large is None:
                self.large = large(self._fetches, result)
            for name, size in self.large:
                calls.note_kept(name, size)
            return result

        def skip_run() -> int:
            skip(self._effects.takers)
            return 1

        compared = () if self._known.feeds_vary else feeds
        return self.perform_batch(calls, site, compute, compared, _NO_NAMES, skip_run)

    def changed(self, calls: Calls) -> None:
        """Notes which variables a run changes."""
        self._known.changed_by_training(self._effects.writes)


def _metric_of(fetch: Any) -> str:
    """The name of a fetched tensor as a metric: without the output number, if that is the first."""
    return fetch.name[:-2] if fetch.name.endswith(":0") else fetch.name


# The size of a value, in bytes, from which on it is counted among those that fill the log.
_LARGE = 64


def large(fetches: Iterable[Any], values: Iterable[Any]) -> list[tuple[str, int]]:
    """`(name, bytes)` of the fetched values that fill the log."""
    sizes = [(fetch.name, getattr(value, "nbytes", 0)) for fetch, value in zip(fetches, values)]
    return [(name, size) for name, size in sizes if size >= _LARGE]


class Evaluation:
    """The results, since the last run that trained, of runs that read what training changed.

    Attributes:
        runs: how many of them fetched a number.
        is_told: whether they become an event; False if a trial class reports its validations.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}
        self.runs = 0
        self.is_told = True

    def add(self, fetches: Iterable[Any], values: Iterable[Any]) -> None:
        """A run was made: adds its numbers, except whole ones, which are counts of steps.

        Args:
            fetches: the fetched tensors.
            values: their values, in the same order.
        """
        if not self.is_told:
            return
        numbers = [
            (fetch, value)
            for fetch, value in zip(fetches, values)
            if getattr(value, "shape", None) == () and value.dtype.kind == "f"
        ]
        self.runs += bool(numbers)
        for fetch, value in numbers:
            total, count = self._sums.get(_metric_of(fetch), (0.0, 0))
            self._sums[_metric_of(fetch)] = total + float(value), count + 1

    def tell(self, calls: Calls) -> None:
        """Appends the event, if any number was fetched."""
        if not self.runs:
            return
        means = {name: total / count for name, (total, count) in self._sums.items()}
        metrics = {name: mean if math.isfinite(mean) else str(mean) for name, mean in means.items()}
        members = {"event": "evaluation", "batch": calls.batches, "runs": self.runs, "metrics": metrics}
        calls.trial.event(json.dumps(members))
        self._sums, self.runs = {}, 0


EVALUATION = Evaluation()


def prepare(calls: Calls) -> None:
    """Has the last evaluation written when the script ends, and reports if a plan does not end a loop."""
    calls.lifecycle.at_settle.append(lambda: EVALUATION.tell(calls))
    # Within an entry the loop belongs to a framework.
    calls.lifecycle.at_last.append(lambda: calls.entries or loops.goes_on(calls))  # type: ignore[func-returns-value]  # None, which is false


def causes_of(effects: Effects) -> list[causes.Told]:
    """The causes in a training run: what cannot be resumed exactly."""
    found = [causes.HIDDEN_STATE(kind=kind, place="a training run") for kind in effects.hidden_streams]
    if effects.unordered:
        found.append(causes.LOOP_AT_ONCE())
    if any("Queue" in kind for kind in effects.takes_data):
        found.append(causes.QUEUES())
    found.extend(causes.RUN_CALLS_PYTHON(kind=kind) for kind in effects.takes_data if "PyFunc" in kind)
    return found


def run(
    calls: Calls,
    session: Any,
    effects: Effects,
    fetches: Sequence[Any],
    feeds: tuple[Any, ...],
    live: Callable[[], Any],
    pull: Callable[[list[Any]], object],
) -> Any:
    """A run that trains.

    Args:
        calls: the recorder, in the main thread.
        session: the session.
        effects: of its fetches.
        fetches: tensors whose values it returns.
        feeds: the values that it is given, a tuple.
        live: makes the run.
        pull: runs some of its ops, with the same feeds.
    """
    function = effects.training
    if function is None:
        trains(calls, session, causes_of(effects))
        if not calls.entries:
            loops.keeps_its_length(calls, "a session trains")
        function = effects.training = TrainingRun(session._pedl_known, effects, fetches)
    else:
        trains(calls, session)
    EVALUATION.tell(calls)
    return function.perform_run(calls, calls.sites.here(), feeds, live, lambda takers: takers and pull(takers))


def trains(calls: Calls, session: Any, found: Iterable[causes.Told] = ()) -> None:
    """A session trains. The first time, this collects what cannot be resumed exactly in it.

    Args:
        calls: the recorder.
        session: the session.
        found: causes in the run.
    """
    if session._pedl_trains and not found:
        return
    found = list(found)
    if not session._pedl_trains:
        session._pedl_trains = True
        found += session_causes.causes_of(session)
    entries.announce(calls, found)


# -- files that a run writes -------------------------------------------------------------------------------------------


def prefixes_of(effects: Effects, feeds: dict[str, Any]) -> list[str]:
    """The paths that a run has for the files that it writes, each of which may be the beginning of several names.

    Args:
        effects: of the run.
        feeds: values by the names of their tensors.
    """
    # Files that are merged were written under other names before (`tf.train.Saver(sharded=True)`).
    merged = [op.inputs[1] for op in effects.writers if op.type == "MergeV2Checkpoints"]
    found = []
    for tensor in merged or [op.inputs[0] for op in effects.writers]:
        value = _value_of(tensor, feeds)
        if value is None:
            recorder.CALLS.exactness.refuse(causes.COMPUTED_NAMES(tensor=tensor.name))
        else:
            found.append(value)
    return sorted(set(found))


def _value_of(tensor: Any, feeds: dict[str, Any]) -> str | None:
    from tensorflow.python.framework import tensor_util

    while tensor.name not in feeds and tensor.op.type in ("Identity", "PlaceholderWithDefault"):
        tensor = tensor.op.inputs[0]
    value = feeds[tensor.name] if tensor.name in feeds else tensor_util.constant_value(tensor)
    value = getattr(value, "item", lambda: value)()
    return value.decode() if isinstance(value, bytes) else value


def files_of(prefix: str) -> list[str]:
    """The files that a Saver writes by default."""
    return [f"{prefix}.index", f"{prefix}.data-00000-of-00001"]


def files_written(prefix: str) -> list[str]:
    """The files with that path, or whose names begin with it."""
    import glob

    return sorted(glob.glob(glob.escape(prefix)) + glob.glob(glob.escape(prefix) + ".index") + glob.glob(
        glob.escape(prefix) + ".data-*"
    ))


# -- the rest ----------------------------------------------------------------------------------------------------------


def end_of_data() -> type[Exception]:
    """The exception of a run whose iterator is at its end."""
    from tensorflow.python.framework import errors

    return errors.OutOfRangeError


def in_a_thread(calls: Calls) -> None:
    """The script makes a run that trains in another thread than the main thread."""
    if not calls.begun:
        loops.tell(calls, causes.THREAD_TRAINS(), "train in the main thread, or run it without `--exact`")
    calls.exactness.refuse(causes.THREAD_TRAINS())
