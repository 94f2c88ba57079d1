"""Compiles the models of Keras trials, and reports their metrics under the user's names."""
from pedl.errors import DefinitionError

# As Keras calls what is given to it as "accuracy", in its different versions.
_ACCURACY = ("accuracy", "acc")

# In the logs of batches, and no metrics.
_OF_BATCHES = ("batch", "size")

_PREFIX = "val_"


class Names:
    """How metrics are called.

    Args:
        by_log: the user's names by those of Keras's logs; None where they are the same.
        training: those that are reported of batches; None for all.
        validation: those that are reported of validations; None for all.
    """

    def __init__(self, by_log=None, training=None, validation=None):
        self._by_log = by_log
        self._training = training
        self._validation = validation

    def of_batch(self, logs):
        """The metrics of a batch."""
        named = {self._name(name): value for name, value in logs.items() if name not in _OF_BATCHES}
        return {name: value for name, value in named.items() if _is_in(name, self._training)}

    def of_validation(self, pairs):
        """The metrics of a validation; with the user's own names there is no prefix but that of the loss."""
        if self._by_log is None:
            return dict(pairs)
        named = [(self._name(name[len(_PREFIX):]), value) for name, value in pairs]
        return {
            _PREFIX + name if name == "loss" else name: value for name, value in named if _is_in(name, self._validation)
        }

    def _name(self, name):
        return name if self._by_log is None else self._by_log.get(name, name)


def _is_in(name, names):
    return names is None or name == "loss" or name in names


def compiled(trial, model, package):
    """Checks that a model is compiled, or compiles it. Returns its `Names`.

    Raises:
        DefinitionError: it is no model, it is not compiled, or metrics are none.
    """
    if not hasattr(model, "compile") or not hasattr(model, "fit"):
        raise DefinitionError(
            f"`build_model` of `{type(trial).__name__}` returned an object of class `{type(model).__name__}`\n"
            "  expected: a model of Keras"
        )
    if not hasattr(trial, "optimizer"):
        if not _is_compiled(model):
            raise DefinitionError(
                f"`build_model` of `{type(trial).__name__}` returned a model that is not compiled\n"
                "  expected: a compiled one, so that its loss and its optimizer are known",
                "call `model.compile(optimizer=..., loss=...)` before it is returned",
            )
        return Names()
    training, validation = dict(trial.training_metrics()), dict(trial.validation_metrics())
    for name in sorted(set(training) & set(validation)):
        if training[name] != validation[name]:
            raise DefinitionError(
                f"the metric `{name}` is one function in `training_metrics` and another one in `validation_metrics`\n"
                "  expected: the same, or two names"
            )
    metrics = {**training, **validation}
    if hasattr(trial, "losses"):
        by_output, by_log = {}, {}
        for name, (output, function) in metrics.items():
            given, logged = _named(name, function, package)
            by_output.setdefault(output, []).append(given)
            by_log.update((f"{output}_{one}", name) for one in logged)
            by_log.update((one, name) for one in logged)
        model.compile(optimizer=trial.optimizer(), loss=trial.losses(), metrics=by_output)
    else:
        pairs = {name: _named(name, function, package) for name, function in metrics.items()}
        by_log = {one: name for name, (_, logged) in pairs.items() for one in logged}
        model.compile(optimizer=trial.optimizer(), loss=trial.loss(), metrics=[given for given, _ in pairs.values()])
    return Names(by_log, set(training), set(validation))


def _is_compiled(model):
    return getattr(model, "compiled", False) is True or getattr(model, "optimizer", None) is not None


def _named(name, function, package):
    """A metric as `compile` takes it, and the names that it may have in logs."""
    if isinstance(function, str):
        if function in _ACCURACY:
            # Which accuracy it is, depends on the output.
            return function, _ACCURACY
        function = package.metrics.get(function)
    if not callable(function) or hasattr(function, "update_state"):
        return function, (getattr(function, "name", name),)

    def metric(y_true, y_pred):
        return function(y_true, y_pred)

    metric.__name__ = name
    return metric, (name,)
