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

from py_hooks import causes
from py_hooks.engine import guard
from py_hooks.keras import accumulators, packages
from py_hooks.keras.accumulators import Accumulators
from py_hooks.recording import call_kinds, forks, loops, recorder
from py_hooks.recording.compute_functions import NAMES, ComputeFunction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from py_hooks.keras.accumulators import Sums
    from py_hooks.recording.recorder import Calls

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


class ModelFunction(ComputeFunction):
    """A compute function of one model.

    Args:
        model: the model; held weakly, because it holds this object.
        kind: TRAIN, TEST or PREDICT.
        function: the function of the framework.

    Attributes:
        answers_batches: whether a call of the script for one batch can be answered whole, from now on.
        accumulators: the sums of the model's metrics (`accumulators.py`); only of a function that trains.
    """

    accumulators: Accumulators | None = None

    def __init__(self, model: Any, kind: int, function: Callable[..., Any]) -> None:
        self.model = weakref.ref(model)
        self.function = function
        number = MODELS.computes(model)
        ComputeFunction.__init__(self, recorder.CALLS, kind, f"{NAMES[kind]} model {number}")
        self.answers_batches = False
        if kind == call_kinds.TRAIN:
            self.accumulators = Accumulators(self, number)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls):
            cls.__call__ = guard.method(cls.__call__)  # type: ignore[method-assign]  # the guarded one replaces it

    # -- what the generations know ---------------------------------------------------------------------------------

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

    def made(self) -> None:
        """A call was made: notes that the sums of metrics have changed."""
        if self.accumulators is not None:
            self.accumulators.trained()
        elif self.kind == call_kinds.TEST:
            accumulators.tested(self.model())


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
