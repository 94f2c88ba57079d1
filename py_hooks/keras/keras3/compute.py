"""Keras 3: the compute functions of a model, recorded and answered, as far as they are the same on all backends.

`makers.py` wraps what the framework sets on a model; `jax.py`, `tensorflow.py` and `torch.py` make and answer its calls.

Source: keras 3.15.1, keras/src/trainers/trainer.py.
"""
from __future__ import annotations

import functools

from py_hooks.datasets.item_passes import skip
from py_hooks.engine.patch import binding
from py_hooks.keras import packages, sources
from py_hooks.keras.functions import MODELS, ModelFunction, runs_user_code
from py_hooks.keras.keras3.variables import VARIABLES, view_of
from py_hooks.recording import call_kinds, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from py_hooks.keras.accumulators import Sums
    from py_hooks.recording.recorder import Calls


def is_mean(metric: Any) -> bool:
    """Whether the value of a metric is `total / count`: a `Mean`, or a metric that computes its value as `Mean` does."""
    maker = next((kind for kind in type(metric).__mro__ if "result" in vars(kind)), None)
    is_keras = maker is not None and packages.is_frameworks(maker.__module__) and maker.__name__ in ("Mean", "Reduce")
    return is_keras and hasattr(metric, "total") and hasattr(metric, "count")


def _compiled(metrics: Any) -> dict[str, Any]:
    """The metrics with which a model was compiled, by their names in logs. Keras names them when their values are requested.

    Source: keras 3.15.1, keras/src/trainers/compile_utils.py, `CompileMetrics.result`.
    """
    held = [*metrics._flat_metrics, *metrics._flat_weighted_metrics]
    leaves = [metric for one in held if one for metric in one.metrics]
    # Not by `__setattr__`, which searches its argument for variables.
    for metric in leaves:
        vars(metric)["result"] = functools.partial(_itself, metric)
    try:
        return metrics.result()
    finally:
        for metric in leaves:
            del vars(metric)["result"]


def _itself(metric: Any) -> Any:
    return metric


class VariableFunction(ModelFunction):
    """A compute function of Keras 3, on any backend."""

    if TYPE_CHECKING:

        def _stacked(self, values: list[Any]) -> Any:
            """An array of the backend with a copy of single numbers; each backend has its own."""

    def __init__(self, model: Any, kind: int, function: Callable[..., Any]) -> None:
        ModelFunction.__init__(self, model, kind, function)
        self._is_known = False
        self._steps_per_execution: int | None = None
        self._means: list[tuple[str, tuple[Any, Any]]] | None
        self._running: frozenset[str] | None
        self._means = self._running = None
        if self.accumulators is not None:
            self.accumulators.begin()

    def changed(self, calls: Calls) -> None:
        """Notes which variables a call changes."""
        if self.kind != call_kinds.PREDICT:
            VARIABLES.mark_stale(self._changed())

    def _changed(self) -> list[Any]:
        """The variables that the call changes: all but the learning rate, which only Python writes."""
        model = self.model()
        variables = list(model.non_trainable_variables) + list(model.metrics_variables)
        if self.kind == call_kinds.TRAIN:
            variables += model.trainable_variables
            if model.optimizer is not None:
                rate = getattr(model.optimizer, "_learning_rate", None)
                variables += [variable for variable in model.optimizer.variables if variable is not rate]
        return variables

    # -- sums of metrics -------------------------------------------------------------------------------------------

    def running_names(self) -> Collection[str]:
        """Names of all metrics."""
        self._find_means()
        return self._running

    def accumulated(self) -> Sums | None:
        """The current sums. None under a strategy, where each replica has separate sums, and while they cannot be read."""
        values = self._sums()
        if values is None:
            return None
        numbers = [self._number(value) for value in values]
        return {name: pair for (name, _), pair in zip(self._means, zip(numbers[::2], numbers[1::2]))}

    def snapshot(self) -> Any:
        """The current sums, in an array of the backend; None if there are none."""
        values = self._sums()
        return self._stacked(values) if values else None

    def sums_of(self, snapshot: Any) -> Sums | None:
        """The sums in a stacked snapshot."""
        if snapshot is None or isinstance(snapshot, dict):
            return snapshot
        numbers = [float(number) for number in self._array(snapshot)]
        return {name: pair for (name, _), pair in zip(self._means, zip(numbers[::2], numbers[1::2]))}

    def _sums(self) -> list[Any] | None:
        """The values of the sums, alternately total and count."""
        self._find_means()
        if recorder.CALLS.agreement is not None:
            return None
        values = self._values([variable for _, pair in self._means for variable in pair])
        return None if any(value is None or self._is_spread(value) for value in values) else values

    @staticmethod
    def _is_spread(_value: Any) -> bool:
        """Whether a value has parts on several devices."""
        return False

    def _find_means(self) -> None:
        if self._means is None:
            metrics = self._metrics(self.model())
            self._running = frozenset(metrics)
            self._means = [(name, (one.total, one.count)) for name, one in metrics.items() if is_mean(one)]

    def _metrics(self, model: Any) -> dict[str, Any]:
        """The metrics of a model by their names in logs."""
        found = {}
        for metric in model.metrics:
            if not hasattr(metric, "_flat_metrics"):
                found[metric.name] = metric
            elif metric.built:
                found.update(_compiled(metric))
        return found

    def _values(self, variables: list[Any]) -> list[Any]:
        return [variable._value for variable in variables]

    def _number(self, value: Any) -> float:
        return float(view_of(value))

    def _array(self, stacked: Any) -> Any:
        import numpy

        return numpy.asarray(stacked)

    @property
    def steps_per_execution(self) -> int:
        """How many batches a call takes, unless the data end earlier."""
        if self._steps_per_execution is None:
            self._steps_per_execution = sources.engine().steps_per_execution(self.model())
        return self._steps_per_execution

    def skip(self, iterator: Any) -> int:
        """A call of the framework's loop is answered: its batches are skipped. Returns how many."""
        self.skip_batch()
        return skip(iterator, self.steps_per_execution)

    def came_back(self, calls: Calls, result: Any) -> None:
        """A call has a result."""
        if not self._is_known:
            self._know(calls, result)

    def _know(self, calls: Calls, result: Any) -> None:
        """Called after the first call: everything is built, and the names of the metrics are known."""
        self._is_known = True
        self._means = None
        model = self.model()
        if runs_user_code(model):
            return
        self.answers_batches = True
        if isinstance(result, dict):
            calls.trial.metric_names(self.identity, self._metric_names(model, result))

    def _metric_names(self, model: Any, result: dict[str, Any]) -> list[str]:
        """Names of metrics in the order in which calls for one batch return them; a single value has no name."""
        names = model._flatten_metrics_in_order({name: name for name in result})
        return names if isinstance(names, list) else [names]


def metrics_result(original: Callable[..., Any], model: Any, logs: dict[str, Any]) -> Any:
    """`Trainer._get_metrics_result_or_logs`: reads metric variables, which an answered call does not update."""
    calls = recorder.CALLS
    if not calls.begun or not calls.recordable():
        return original(model, logs)
    identity = calls.trial.intern(f"metrics of model {MODELS.number(model)}")
    return calls.perform(call_kinds.METRICS, identity, lambda: dict(original(model, logs)))


@binding
def count_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Layer.__call__`: the Python code of a layer ran. Inside a compute call that means that the call traced."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        recorder.CALLS.traces += 1
        return original(*args, **kwargs)

    return counted
