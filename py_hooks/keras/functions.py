"""A model's compute function, in all generations of Keras: called, or answered from the log.

A compute function (`train_function` and its siblings) runs one batch. There are two ways to record it:

    the framework's loop calls it       the function itself is recorded and answered: the loop runs in a replay too
    the script calls `train_on_batch`   the whole call is recorded and answered, with its result for the script: in a replay
                                        nothing of the framework runs

The second way needs a function that was called before, so that everything is built, and a call that runs none of the
script's code. Other such calls are recorded the first way.
"""
from __future__ import annotations

import weakref

from py_hooks import causes, places
from py_hooks.engine import guard
from py_hooks.keras import accumulators, packages
from py_hooks.keras.accumulators import Accumulators
from py_hooks.recording import call_kinds, ending, forks, loops, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from py_hooks.keras.accumulators import Sums
    from py_hooks.recording.recorder import Calls

_NAMES = {call_kinds.TRAIN: "train", call_kinds.TEST: "test", call_kinds.PREDICT: "predict"}

# Parts of a call for one batch besides computing, which the class of a model may override.
_OVERRIDABLE = (
    "reset_metrics", "_flatten_metrics_in_order", "_standardize_user_data",
    "make_train_function", "make_test_function", "make_predict_function",
    "_make_train_function", "_make_test_function", "_make_predict_function",
)


class _Models:
    """Models by number, in the order of their first compute call; never by address, because addresses are reused.

    Attributes:
        describe: returns what checkpoints contain of a model; None if there are no checkpoints of models.
        descriptions: what `describe` returned, by model.
    """

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._next = 0
        self.describe: Callable[[Any], dict[str, Any]] | None = None
        self.descriptions: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()

    def number(self, model: Any) -> int:
        if model not in self._numbers:
            self._numbers[model] = self._next
            self._next += 1
        return self._numbers[model]

    def in_use(self) -> list[tuple[int, Any]]:
        """`(number, model)` of those that computed and still exist, by number."""
        return sorted(((number, model) for model, number in self._numbers.items()), key=lambda item: item[0])

    def computes(self, model: Any) -> int:
        """A compute function of the model was made, so the model is built. Describes it the first time; returns its number."""
        if self.describe is not None and model not in self.descriptions:
            self.descriptions[model] = self.describe(model)
        return self.number(model)


MODELS = _Models()


class ComputeFunction:
    """A compute function of one model.

    Args:
        model: the model; held weakly, because it holds this object.
        kind: TRAIN, TEST or PREDICT.
        function: the function of the framework.

    Attributes:
        identity: its id in records.
        answers_batches: whether a call of the script for one batch can be answered whole, from now on.
        cleaned: the recorder's `cleaned` when the changes were noted last; None before the first call.
        kept: how often it was entered, and its last result (`engine/guard.py`).
        accumulators: the sums of the model's metrics (`accumulators.py`); only of a function that trains.
    """

    accumulators: Accumulators | None = None

    def __init__(self, model: Any, kind: int, function: Callable[..., Any]) -> None:
        self.model = weakref.ref(model)
        self.kind = kind
        self.function = function
        number = MODELS.computes(model)
        self.identity = recorder.CALLS.trial.intern(f"{_NAMES[kind]} model {number}")
        self.answers_batches = False
        self.cleaned: int | None = None
        self.kept: list[Any] = [0, None]
        if kind == call_kinds.TRAIN:
            self.accumulators = Accumulators(self, number)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls.__call__ = guard.method(cls.__call__)  # type: ignore[method-assign]  # the guarded one replaces it

    # -- what the generations know ---------------------------------------------------------------------------------

    def changed(self, calls: Calls) -> None:
        """Notes which variables a call changes: the first time, and if Python has written one since."""
        raise NotImplementedError

    def running_names(self) -> Collection[str]:
        """Names of accumulated metrics: what a batch reports of them covers all batches since they were reset."""
        return ()

    def accumulated(self) -> Sums | None:
        """The current sums of the metrics that are means: `{name: (total, count)}`; None if they cannot be read."""
        return {}

    def snapshot(self) -> Any:
        """The same, in a form that needs no waiting for a device: for `sums_of`."""
        return self.accumulated()

    def sums_of(self, snapshot: Any) -> Sums | None:
        """What `accumulated` would have returned when the snapshot was made. The snapshot may be a dict of these, or None."""
        return snapshot

    def answer(self, calls: Calls, arguments: int) -> Any:
        """The recorded result of a call."""
        return calls.answer(self.kind, self.identity, arguments)

    # -- recording and answering -----------------------------------------------------------------------------------

    def pass_by(self, calls: Calls) -> None:
        """A call that is not recorded: a part of another one, or made in a thread of the script."""
        if self.kind == call_kinds.TRAIN and calls.is_child:
            forks.trains(calls.trial)
        if self.kind != call_kinds.TRAIN or calls.is_child or calls.on_main_thread():
            return
        if not calls.begun:
            loops.tell(calls, causes.THREAD_TRAINS_MODEL(), "train in the main thread, or run it without `--exact`")
        calls.exactness.refuse(causes.THREAD_TRAINS_MODEL())

    def make(self, calls: Calls, live: Callable[[], Any]) -> tuple[int, Any]:
        """Makes a call. Returns `TRACED` if it built something, else 0; and the result of the call."""
        traces, kept = calls.traces, self.kept
        kept[0] += 1
        kept[1] = guard.UNFINISHED
        try:
            calls.depth += 1
            try:
                result = kept[1] = live()
            finally:
                calls.depth -= 1
        except Exception:
            if calls.arguments:
                self._failed(calls)
            raise
        return (call_kinds.TRACED if calls.traces > traces else 0), result

    def _failed(self, calls: Calls) -> None:
        """A call on a batch that the script passed raised. A replay makes it too, and it must raise there too."""
        call = self.kind, self.identity, calls.arguments | call_kinds.TRACED, None
        if not calls.replaying:
            calls.record(*call)
            return
        calls.check(*call)
        calls.answered()

    def result_of_made(self, made: Any) -> Any:
        """The result of a call, from what `live` of `make` returned."""
        return made

    def note_changes(self, calls: Calls) -> None:
        """A call was made or answered: notes what it changed, if that is not noted yet."""
        if self.cleaned != calls.cleaned:
            self.changed(calls)
            self.cleaned = calls.cleaned

    def count_made(self, calls: Calls, batches: int = 1) -> None:
        """A call was made and recorded: notes what it changed, and counts its batches."""
        if self.cleaned != calls.cleaned:
            self.note_changes(calls)
        if self.kind == call_kinds.TRAIN:
            self.accumulators.trained()
            calls.trained(batches)
        else:
            self.note_sums()
            calls.called()

    def note_sums(self) -> None:
        """A call was made: notes that the sums of metrics have changed."""
        if self.accumulators is not None:
            self.accumulators.trained()
        elif self.kind == call_kinds.TEST:
            accumulators.tested(self.model())

    def count_answered(self, calls: Calls, batches: int = 1) -> bool:
        """The same for an answered call. Ends the replay if it was the last one, and returns whether it was."""
        self.note_changes(calls)
        if self.kind == call_kinds.TRAIN:
            calls.trained_before(batches)
        return calls.answered()

    def must_be_made(self, calls: Calls) -> int:
        """Whether the record of the next call says that it built something, so that it is made in the replay too."""
        return calls.next_arguments() & call_kinds.TRACED

    def recorded(self, calls: Calls, arguments: int, result: Any) -> Any:
        """The recorded result of a call that was made again. The new result is equal if nothing was skipped before it."""
        if calls.skipped:
            recorded = self.answer(calls, arguments)
            if recorded is None:
                self._say_it_failed(calls)
            return recorded
        calls.check(self.kind, self.identity, arguments, result)
        return result

    # -- one batch that the script passes --------------------------------------------------------------------------

    def answer_batch(self, calls: Calls, live: Callable[[], Any]) -> Any:
        """A call of the script for one batch, in a replay: answered, or made by `live` if its record says so."""
        if calls.steps is not None:
            calls.steps.call_begins(self.kind)
        arguments = calls.arguments
        if not self.must_be_made(calls):
            result = self.answer(calls, arguments)
        else:
            traced, result = self.make(calls, live)
            result = self.recorded(calls, arguments | traced, result)
        self.count_answered(calls)
        return result

    def _say_it_failed(self, calls: Calls) -> None:
        place = ":".join(map(str, places.user_place(2)))
        ending.stop(
            calls,
            76,
            "the replay differs from the record: a call that failed does not fail now\n"
            f"  call {calls.trial.position} of the run, {_NAMES[self.kind]} on a batch, at {place}\n"
            "  recorded: it raised an exception\n"
            "  now: it returned\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "look for what it depends on, such as memory that was short; `--fresh` begins a new trial",
        )


def runs_user_code(model: Any) -> bool:
    """Whether a call for one batch runs code of the script besides the computation: in a metric, or in an override."""
    own = [kind for kind in type(model).__mro__ if not packages.is_frameworks(kind.__module__)]
    return has_own_metrics(model) or any(name in vars(kind) for kind in own for name in _OVERRIDABLE)


def has_own_metrics(holder: Any) -> bool:
    """Whether any metric of a model, or within a metric, is not one of Keras."""
    return any(
        not packages.is_frameworks(type(metric).__module__) or has_own_metrics(metric)
        for metric in getattr(holder, "metrics", ())
    )
