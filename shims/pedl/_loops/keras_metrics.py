"""Compiles the models of Keras trials, so that their metrics are reported under the user's names."""
from __future__ import annotations

from pedl.errors import DefinitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pedl.trial import Trial

# The names under which versions of Keras report the metric "accuracy".
_ACCURACY = ("accuracy", "acc")

# The kind of accuracy, by a word in the name of the loss: if the metric has another name, Keras cannot choose the kind.
_ACCURACIES = (
    ("sparse_categorical", "sparse_categorical_accuracy"),
    ("categorical", "categorical_accuracy"),
    ("binary", "binary_accuracy"),
)

# Entries in the logs of batches that are no metrics.
_OF_BATCHES = ("batch", "size")

_PREFIX = "val_"


class Names:
    """The names of metrics.

    Args:
        by_log: the user's names by those of Keras's logs, if these differ; None if all names are Keras's.
        training: those that are reported for batches; None for all.
        validation: those that are reported for validations; None for all.
    """

    def __init__(
        self, by_log: dict[str, str] | None = None, training: set[str] | None = None, validation: set[str] | None = None
    ) -> None:
        self._by_log = by_log
        self._training = training
        self._validation = validation

    def of_batch(self, logs: dict[str, Any]) -> dict[str, Any]:
        """The metrics of a batch."""
        named = {self._name(name): value for name, value in logs.items() if name not in _OF_BATCHES}
        return {name: value for name, value in named.items() if _is_in(name, self._training)}

    def of_validation(self, pairs: Sequence[tuple[str, float]]) -> dict[str, float]:
        """The metrics of a validation; if the names are the user's, only the loss has a prefix."""
        if self._by_log is None:
            return dict(pairs)
        named = [(self._name(name[len(_PREFIX):]), value) for name, value in pairs]
        return {
            _PREFIX + name if name == "loss" else name: value for name, value in named if _is_in(name, self._validation)
        }

    def told(self, pairs: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
        """All metrics of a validation, as the journal and `searcher.metric` name them: the user's names after a prefix.

        If a name of a validation metric has the prefix already, it gets no other. Such a metric has priority over a batch
        metric that would have the same name.
        """
        told: dict[str, float]
        told, own = {}, self._validation or ()
        for logged, value in pairs:
            name = self._name(logged[len(_PREFIX):])
            is_own = name in own
            shown = name if is_own and name.startswith(_PREFIX) else _PREFIX + name
            if is_own or shown not in told:
                told[shown] = value
        return list(told.items())

    def _name(self, name: str) -> str:
        return name if self._by_log is None else self._by_log.get(name, name)


def _is_in(name: str, names: set[str] | None) -> bool:
    return names is None or name == "loss" or name in names


def checked(trial: Trial, model: Any) -> Names:
    """The `Names` of a model that the user has compiled.

    Raises:
        DefinitionError: it is no model, or it is not compiled.
    """
    _check_is_model(trial, model)
    if getattr(model, "compiled", False) is not True and getattr(model, "optimizer", None) is None:
        raise DefinitionError(
            f"`build_model` of `{type(trial).__name__}` returned a model that is not compiled\n"
            "  expected: a compiled one, so that its loss and its optimizer are known",
            "call `model.compile(optimizer=..., loss=...)` before it is returned",
        )
    return Names()


def compiled(trial: Any, model: Any, package: Any, is_functional: bool) -> Names:
    """Compiles a model with what the methods of its trial return. Returns its `Names`.

    Raises:
        DefinitionError: it is no model, or the metrics are not valid.
    """
    _check_is_model(trial, model)
    training, validation = (_metrics_of(trial, name) for name in ("training_metrics", "validation_metrics"))
    for name in sorted(set(training) & set(validation)):
        if not _is_same(training[name], validation[name]):
            raise DefinitionError(
                f"the metric `{name}` is one in `training_metrics` and another one in `validation_metrics`\n"
                "  expected: the same, or two names",
                f"rename one of them, for example to `validation_{name}`",
            )
    metrics: dict[str, Any]
    by_log: dict[str, str]
    given: Any
    metrics, by_log = {**training, **validation}, {}
    if is_functional:
        losses: dict[str, Any]
        by_output: dict[str, list[Any]]
        losses, by_output = dict(trial.losses()), {}
        for name, pair in metrics.items():
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise DefinitionError(
                    f"the metric `{name}` of `{type(trial).__name__}` is an object of class `{type(pair).__name__}`\n"
                    "  expected: a pair, the name of an output and a function"
                )
            output, metric = pair
            given, logged = _named(name, metric, losses.get(output), package)
            by_output.setdefault(output, []).append(given)
            # With one output there is no name before it.
            by_log.update((log, name) for one in logged for log in (f"{output}_{one}", one))
        model.compile(optimizer=trial.optimizer(), loss=losses, metrics=by_output)
    else:
        loss, given = trial.loss(), []
        for name, metric in metrics.items():
            one, logged = _named(name, metric, loss, package)
            given.append(one)
            by_log.update((log, name) for log in logged)
        model.compile(optimizer=trial.optimizer(), loss=loss, metrics=given)
    return Names(by_log, set(training), set(validation))


def _check_is_model(trial: Trial, model: Any) -> None:
    if not hasattr(model, "compile") or not hasattr(model, "fit"):
        raise DefinitionError(
            f"`build_model` of `{type(trial).__name__}` returned an object of class `{type(model).__name__}`\n"
            "  expected: a model of Keras",
            "return the model",
        )


def _metrics_of(trial: Trial, method: str) -> dict[str, Any]:
    metrics = getattr(trial, method)()
    if not isinstance(metrics, dict):
        raise DefinitionError(
            f"`{method}` of `{type(trial).__name__}` returned an object of class `{type(metrics).__name__}`\n"
            "  expected: a dict of functions by the names of metrics",
            'return a dict, as in `{"error": error}`',
        )
    return metrics


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if type(one) is type(other) and hasattr(one, "get_config"):
        # If two methods each make the metric, they are two objects.
        ours, theirs = dict(one.get_config(), name=""), dict(other.get_config(), name="")
        return ours == theirs
    return one == other


def _named(name: str, metric: Any, loss: Any, package: Any) -> tuple[Any, tuple[str, ...]]:
    """A metric as `compile` takes it, and the names that it may have in logs."""
    if isinstance(metric, str) and metric in _ACCURACY:
        word = loss if isinstance(loss, str) else getattr(loss, "__name__", "")
        kind = next((kind for part, kind in _ACCURACIES if part in word), None)
        if name in _ACCURACY or kind is None:
            # Keras chooses the kind of accuracy by the output.
            return metric, _ACCURACY
        metric = kind
    if isinstance(metric, str):
        metric = package.metrics.get(metric)
    if isinstance(metric, type):
        return metric(name=name), (name,)
    if hasattr(metric, "update_state"):
        # A copy with the user's name, because logs use the name of the metric.
        return type(metric).from_config(dict(metric.get_config(), name=name)), (name,)
    if not callable(metric):
        raise DefinitionError(
            f"the metric `{name}` is an object of class `{type(metric).__name__}`\n"
            "  expected: a function, a metric of Keras, or the name of one"
        )

    def measured(y_true: Any, y_pred: Any) -> Any:
        return metric(y_true, y_pred)

    measured.__name__ = name
    return measured, (name,)
