"""How a model is validated between two batches of a fit, for each generation of Keras.

The framework's functions evaluate the model on the fit's validation data, and their test calls are recorded as usual.
Meanwhile the metrics that the epoch has gathered in variables are saved without being recorded: in a replay these
variables hold no true values, before and after.
"""
from __future__ import annotations

from py_hooks.keras import packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from py_hooks.keras.plan import Fit
    from py_hooks.recording.recorder import Calls

    # Names and values.
    Metrics = list[tuple[str, float]]

_PREFIX = "val_"


def _numbers(named: Iterable[tuple[str, Any]]) -> Metrics:
    """Metrics that are single numbers, as `(name, value)`; a list with a value for each class is left out."""
    found = []
    for name, value in named:
        try:
            found.append((name, float(value)))
        except (TypeError, ValueError):
            continue
    return found


def held_by(callbacks: Any, name: str) -> Any:
    """The `model` or the `params` of a list of callbacks, which has them itself, or only the callbacks in it do."""
    if packages.facts_of(callbacks).callback_lists_hold_model or not callbacks.callbacks:
        return getattr(callbacks, name, None)
    return getattr(callbacks.callbacks[0], name, None)


def _named(names: Iterable[str], values: Any) -> Metrics:
    values = values if isinstance(values, (list, tuple)) else [values]
    return _numbers((_PREFIX + name, value) for name, value in zip(names, values))


def _in_logs(fit: Fit, logs: dict[str, Any]) -> Metrics:
    """The metrics of the epoch's validation. Metrics of batches may have such names: alone they are not of a validation."""
    found = {name: value for name, value in logs.items() if name.startswith(_PREFIX)}
    if all(name in fit.logs for name in found):
        return []
    # A name that is in both is the validation's, which Keras writes over the other, if the validation has it.
    of_batches = {name for name in found if name in fit.logs and name[len(_PREFIX) :] not in fit.logs}
    return _numbers((name, value) for name, value in found.items() if name not in of_batches)


class EagerValidation:
    """Validation in Keras 3."""

    def of_epoch(self, fit: Fit, callbacks: Any, epoch: int, logs: dict[str, Any]) -> Metrics:
        """The metrics of the validation at the end of the epoch; empty if there was none."""
        return _in_logs(fit, logs)

    def is_last_of_epoch(self, fit: Fit, params: dict[str, Any] | None) -> bool:
        """Whether the batch was the last of its epoch, as far as the loop knows how many there are."""
        steps = (params or {}).get("steps")
        return steps is not None and fit.batch + 1 >= steps

    def between(self, calls: Calls, fit: Fit, callbacks: Any) -> Metrics | None:
        """Validates now. None if the fit has no validation data, or a generator that would be used up."""
        import numpy

        given, model = fit.arguments, fit.model
        data = self._given(given)
        if data is None or hasattr(data[0], "__next__"):
            return None
        with calls.unrecorded():
            # On JAX the loop holds the values until then.
            getattr(model, "jax_state_sync", lambda: None)()
            # A copy: on TensorFlow a value is the variable itself, on JAX memory that the test function reuses.
            kept = [(variable, numpy.array(self._value(variable))) for variable in self._metric_variables(model)]
        logs = model.evaluate(
            *data[:2],
            sample_weight=data[2],
            batch_size=given.get("validation_batch_size") or given.get("batch_size"),
            steps=given.get("validation_steps"),
            verbose=0,
            return_dict=True,
        )
        with calls.unrecorded():
            for variable, value in kept:
                variable.assign(value)
        return _numbers((_PREFIX + name, value) for name, value in logs.items())

    def _metric_variables(self, model: Any) -> list[Any]:
        return model.metrics_variables

    def _value(self, variable: Any) -> Any:
        from keras.src import backend

        return backend.convert_to_numpy(variable.value)

    def _given(self, given: dict[str, Any]) -> tuple[Any, Any, Any] | None:
        """`(x, y, sample_weight)` of the fit's validation. Source: keras 3.15.1, `Model.fit` of each backend."""
        from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils

        data = given.get("validation_data")
        if data is not None:
            return data_adapter_utils.unpack_x_y_sample_weight(data)
        split = given.get("validation_split")
        if not split:
            return None
        whole = (given.get("x"), given.get("y"), given.get("sample_weight"))
        return array_slicing.train_validation_split(whole, validation_split=split)[1]


class GraphValidation:
    """Validation in Keras 2, and in the Keras within TensorFlow 1: each fit as its package does it."""

    def of_epoch(self, fit: Fit, callbacks: Any, epoch: int, logs: dict[str, Any]) -> Metrics:
        """The metrics of the epoch's validation; it is made now if the plan's end cut the epoch short."""
        if not held_by(callbacks, "params").get("do_validation"):
            return []
        frequency = fit.arguments.get("validation_freq", 1)
        # Keras 2.2.4 and tf.keras of TensorFlow 1.13 know no frequency.
        if frequency != 1:
            utilities = packages.module(fit.model, "engine.training_utils")
            if not utilities.should_run_validation(frequency, epoch):
                return []
        return self._of(fit).of_epoch(fit, callbacks, logs)

    def between(self, calls: Calls, fit: Fit, callbacks: Any) -> Metrics | None:
        """Validates now. None if the fit has no validation data, or a generator that would be used up."""
        if not fit.validates and not held_by(callbacks, "params").get("do_validation"):
            return None
        backend = packages.module(fit.model, "backend")
        variables = _metric_variables(fit.model)
        with calls.unrecorded():
            kept = backend.batch_get_value(variables)
        metrics = self._of(fit).evaluate(fit, callbacks)
        with calls.unrecorded():
            backend.batch_set_value(list(zip(variables, kept)))
        return metrics

    def is_last_of_epoch(self, fit: Fit, params: dict[str, Any]) -> bool:
        """Whether the batch was the last of its epoch."""
        return _is_last_of_epoch(fit, params)

    @staticmethod
    def _of(fit: Fit) -> type[Keras2Validation | TensorFlowKerasValidation]:
        return Keras2Validation if packages.of(fit.model) == "keras" else TensorFlowKerasValidation


def _is_last_of_epoch(fit: Fit, params: dict[str, Any]) -> bool:
    steps = params.get("steps") or -(-params["samples"] // params["batch_size"])
    return fit.batch + 1 >= steps


def _metric_variables(model: Any) -> list[Any]:
    metrics: list[Any] = []
    for name in packages.graph_facts_of(model).attributes_with_metrics:
        held = getattr(model, name)
        metrics += (held() if callable(held) else held) or []
    return [weight for metric in metrics for weight in getattr(metric, "weights", ())]


def _evaluated_in_fit(fit: Fit, values_of: Callable[[], Any]) -> Metrics | None:
    """What `values_of()` returns, with names; None for None. `stop_training` is the same before and after."""
    # Evaluating resets it (keras 2.3.1, keras/engine/training_arrays.py, `test_loop`).
    stopped = [(model, model.stop_training) for model in fit.models()]
    try:
        values = values_of()
    finally:
        for model, is_stopped in stopped:
            model.stop_training = is_stopped
    return None if values is None else _named(fit.model.metrics_names, values)


class TensorFlowKerasValidation:
    """tf.keras of TensorFlow 1: a stopped fit does not validate, at whatever place in the epoch it was stopped.

    Source: tensorflow 1.15.5, tensorflow/python/keras/engine/training_arrays.py and training_generator.py,
    `model_iteration`.
    """

    @classmethod
    def of_epoch(cls, fit: Fit, callbacks: Any, logs: dict[str, Any]) -> Metrics:
        """See `GraphValidation`."""
        if not fit.is_over:
            return _in_logs(fit, logs)
        metrics = cls.evaluate(fit, callbacks) or []
        logs.update(metrics)
        return metrics

    @classmethod
    def evaluate(cls, fit: Fit, callbacks: Any) -> Metrics | None:
        """Evaluates the model on the fit's validation data; None for a generator, which would be used up."""
        return _evaluated_in_fit(fit, lambda: cls._evaluated(fit))

    @staticmethod
    def _evaluated(fit: Fit) -> Any:
        given, model = fit.arguments, fit.model
        data, steps = given.get("validation_data"), given.get("validation_steps")
        if hasattr(data, "__getitem__") and not isinstance(data, (list, tuple)):
            return model.evaluate_generator(_items(model, data), steps, workers=0)
        if data is None:
            data = _split_off(given)
        elif _is_pipeline(data):
            return model.evaluate(data, steps=steps, verbose=0)
        elif not isinstance(data, (list, tuple)):
            return None
        size = None if steps else given.get("batch_size") or 32
        weights = data[2] if len(data) > 2 else None
        return model.evaluate(data[0], data[1], batch_size=size, sample_weight=weights, steps=steps, verbose=0)


def _is_pipeline(data: Any) -> bool:
    """Whether this is a `tf.data.Dataset`, which begins anew each time; an iterator of one continues at its position."""
    from tensorflow.python.data.ops import dataset_ops

    return isinstance(data, dataset_ops.DatasetV2)


def _split_off(given: dict[str, Any]) -> Any:
    """`(x, y, sample_weight)` that `validation_split` takes away.

    Source: tensorflow 1.15.5, tensorflow/python/keras/engine/training_utils.py,
    `split_training_and_validation_data`.
    """
    from tensorflow.python.util import nest

    whole = given.get("x"), given.get("y"), given.get("sample_weight")
    first = nest.flatten(whole[0])[0]
    begin = int(len(first) * (1.0 - given["validation_split"]))
    return nest.map_structure(lambda array: None if array is None else array[begin:], whole)


class Keras2Validation:
    """Keras 2: a fit that is stopped inside an epoch does not validate, so this does it.

    Source: keras 2.3.1, keras/engine/training_arrays.py, `fit_loop`, and training_generator.py, `fit_generator`.
    """

    @classmethod
    def of_epoch(cls, fit: Fit, callbacks: Any, logs: dict[str, Any]) -> Metrics:
        """See `GraphValidation`."""
        params = held_by(callbacks, "params")
        # Arrays in steps are validated even if the loop was left.
        if _is_last_of_epoch(fit, params) or (_is_of_arrays(params) and params.get("steps")):
            return _in_logs(fit, logs)
        # The values in the logs are of the epoch before: `fit_generator` carries them along.
        metrics = (cls.evaluate(fit, callbacks) or []) if fit.is_over else []
        logs.update(metrics)
        return metrics

    @classmethod
    def evaluate(cls, fit: Fit, callbacks: Any) -> Metrics | None:
        """Evaluates the model on the fit's validation data; None for a generator, which would be used up."""
        return _evaluated_in_fit(fit, lambda: cls._evaluated(fit, callbacks))

    @staticmethod
    def _evaluated(fit: Fit, callbacks: Any) -> Any:
        from keras.engine.training_arrays import test_loop

        given, model = fit.arguments, fit.model
        data, steps = given.get("validation_data"), given.get("validation_steps")
        if hasattr(data, "__getitem__") and not isinstance(data, (list, tuple)):
            return model.evaluate_generator(_items(model, data), steps, workers=0)
        if hasattr(data, "__next__"):
            return None
        size = given.get("batch_size") or 32
        if not _is_of_arrays(held_by(callbacks, "params")):
            weights = data[2] if len(data) > 2 else None
            return model.evaluate(data[0], data[1], batch_size=size, sample_weight=weights, verbose=0)
        # The arrays that the fit itself made from `validation_data` or `validation_split`.
        arrays = callbacks.callbacks[0].validation_data
        return test_loop(model, model.test_function, arrays, batch_size=None if steps else size, steps=steps)


def _is_of_arrays(params: dict[str, Any]) -> bool:
    """Whether callbacks got the parameters of `fit`: those of `fit_generator` have no samples."""
    return "samples" in params


def _items(model: Any, sequence: Any) -> Any:
    """A sequence of the same items. Iterating over an image iterator continues at its position, and shuffles it."""

    class Items(packages.module(model, "utils").Sequence):  # type: ignore[misc]  # known at run time
        def __len__(self) -> int:
            return len(sequence)

        def __getitem__(self, index: int) -> Any:
            return sequence[index]

    return Items()
