"""Keras 2 on TensorFlow 2: the compute functions of a model, recorded and answered.

`make_train_function` and its siblings return a traced function of an iterator, and set it on the model; it is wrapped
here. It works on plain variables of TensorFlow, which `py_hooks/tensorflow/variables/resource_variables.py` keeps. The traced
graph shows which of them it changes (`py_hooks/tensorflow/variables/functions.py`), whatever a `train_step` does.

Source: keras 2.15.0, keras/src/engine/training.py.
"""
from __future__ import annotations

import importlib

from py_hooks import causes as table
from py_hooks.border import ExitCode
from py_hooks.engine.patch import binding
from py_hooks.facts.keras import EagerFacts, eager_facts
from py_hooks.keras import models, plan, sources
from py_hooks.keras.functions import MODELS, ModelFunction
from py_hooks.keras.keras3.tensorflow import TensorFlowFunction
from py_hooks.keras.validation import EagerValidation
from py_hooks.recording import call_kinds, ending, forks, recorder
from py_hooks.tensorflow.variables.resource_variables import RESOURCE_VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType
    from typing import Any

    from numpy import ndarray

    from py_hooks.recording.recorder import Calls

_MAKERS = ("make_train_function", "make_test_function", "make_predict_function")


class _Keras:
    """The Keras that is intercepted: one of a process."""

    library = "keras"

    @classmethod
    def facts(cls) -> EagerFacts:
        """Its facts."""
        return eager_facts(cls.library)

    @classmethod
    def module(cls, path: str) -> ModuleType:
        """A module of its package."""
        return importlib.import_module(f"{cls.facts().package}.{path}")


class Preparation:
    """`prepare` of a generation.

    Args:
        library: its library: "keras", or "tensorflow.keras".
    """

    def __init__(self, library: str) -> None:
        self._library = library

    def __call__(self, calls: Calls) -> None:
        """Has the entry points look at weights and devices, and fits validate, as this generation requires."""
        _Keras.library = self._library
        sources.use(ResourceWeights())
        plan.prepare(calls, ResourceValidation())
        models.prepare(calls, RESOURCE_VARIABLES.key_of)


prepare_keras = Preparation("keras")
prepare_tf_keras = Preparation("tensorflow.keras")


# -- compute functions -------------------------------------------------------------------------------------------------


def _maker(name: str, attribute: str, kind: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    @binding
    def advice(original: Callable[..., Any]) -> Callable[..., Any]:
        def make(model: Any, *args: Any, **kwargs: Any) -> Any:
            function = original(model, *args, **kwargs)
            if not isinstance(function, ModelFunction):
                function = EagerFunction(model, kind, function)
                setattr(model, attribute, function)
            return function

        return make

    advice.__name__ = name
    advice.__doc__ = f"`Model.{name}`: wraps what it makes."
    return advice


make_train_function = _maker("make_train_function", "train_function", call_kinds.TRAIN)
make_test_function = _maker("make_test_function", "test_function", call_kinds.TEST)
make_predict_function = _maker("make_predict_function", "predict_function", call_kinds.PREDICT)


class EagerFunction(TensorFlowFunction):
    """A compute function of one model: called live, or answered from the log."""

    def changed(self, calls: Calls) -> None:
        """Notes which variables a call changes."""
        RESOURCE_VARIABLES.mark_stale(self.written())

    def _metrics(self, model: Any) -> dict[str, Any]:
        return {metric.name: metric for metric in model.metrics}

    def _values(self, variables: list[Any]) -> list[Any]:
        return variables

    def _number(self, value: Any) -> float:
        return float(value.numpy())

    def decode(self) -> Callable[[Any], Any]:
        """The result is tensors: the loop converts tensors, and not numbers of numpy, to numbers of Python."""
        import tensorflow

        return tensorflow.constant

    def _metric_names(self, model: Any, result: dict[str, Any]) -> list[str]:
        """In the same order (keras 2.15.0, keras/src/engine/training.py, `flatten_metrics_in_order`)."""
        names = [name for name in model.metrics_names if name in result]
        return names + sorted(set(result) - set(names))


def metrics_result(original: Callable[..., Any], model: Any, logs: Any) -> Any:
    """`Model._validate_and_get_metrics_result`: reads metric variables, which an answered call does not update."""
    calls = recorder.CALLS
    if not calls.begun or not calls.recordable():
        return original(model, logs)
    identity = calls.trial.intern(f"metrics of model {MODELS.number(model)}")
    return calls.perform(call_kinds.METRICS, identity, lambda: original(model, logs))


def graph_mode(original: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    """`fit` and its siblings of a model of TensorFlow 1's graph mode: not intercepted, so not let through."""
    if recorder.CALLS.is_child:
        forks.trains(recorder.CALLS.trial)
        return original(model, *args, **kwargs)
    return ending.stop(
        recorder.CALLS,
        ExitCode.UNSUPPORTED,
        "Keras in the graph mode of TensorFlow 1 is not something pedl-run can intercept on TensorFlow 2\n"
        f"  called: `{original.__name__}` of a `{type(model).__name__}`\n"
        "  the script was stopped before it trained",
        "leave `tf.compat.v1.disable_eager_execution()`, or `disable_v2_behavior()`, out; or pass `--no-hooks` "
        "to train without checkpoints and resume",
    )


# -- what the generation knows of weights and devices ------------------------------------------------------------------


class ResourceWeights:
    """Weights that are variables of TensorFlow 2."""

    sources = frozenset([sources.GENERATORS, sources.PIPELINES, sources.PROCESSES])
    # If one execution has several steps, it does not report how many there were.
    counts_steps = False
    trains_otherwise_without_workers = False

    def is_stale(self, weight: Any) -> bool:
        """Whether training changed the weight since Python last wrote it."""
        return RESOURCE_VARIABLES.is_stale(weight)

    def steps_per_execution(self, model: Any) -> int:
        """How many batches a call of the model's training function takes: a variable, if there is more than one."""
        steps = model._steps_per_execution if _Keras.facts().models_have_steps_per_execution else None
        return 1 if steps is None else int(self.values(model, [steps])[0])

    def is_intercepted(self) -> bool:
        """Whether there are compute functions, and they are intercepted."""
        return True

    def values(self, model: Any, weights: Iterable[Any]) -> list[ndarray]:
        """The values of weights, read without being recorded."""
        calls = recorder.CALLS
        with calls.unrecorded():
            return [weight.numpy() for weight in weights]

    def loaded(self, model: Any) -> None:
        """Notes that a model's weights now have values that only a file has."""
        optimizer = getattr(model, "optimizer", None)
        held = [getattr(optimizer, name, ()) for name in ("_variables", "_weights")]
        RESOURCE_VARIABLES.mark_stale([*sources.weights_of(model), *held[0], *held[1]])

    def causes(self, model: Any) -> list[table.Told]:
        """Causes in the devices, and in the way the model computes, why it cannot be resumed exactly."""
        found = []
        # Checked late: TensorFlow may import Keras before it is completely imported, and intercepted, itself.
        if not recorder.CALLS.checkpoints.keeps(RESOURCE_VARIABLES):
            found.append(table.NO_HOOKS_VARIABLES())
        found.extend(sources.distribution_causes(model.distribute_strategy))
        found.extend(sources.tensorflow_device_causes())
        if model.run_eagerly:
            found.append(table.RUNS_EAGERLY())
        found.extend(
            table.OWN_MAKER(name=name) for name in _MAKERS if not hasattr(getattr(type(model), name), "_pedl_original")
        )
        return found


# -- validation --------------------------------------------------------------------------------------------------------


class ResourceValidation(EagerValidation):
    """Keras 2 on TensorFlow 2. Source: keras 2.15.0, keras/src/engine/training.py, `Model.fit`."""

    def _metric_variables(self, model: Any) -> list[Any]:
        # Each rank has a part of a variable of a strategy.
        variables = [variable for metric in model.metrics for variable in metric.variables]
        return [part for variable in variables for part in getattr(variable, "values", (variable,))]

    def _value(self, variable: Any) -> Any:
        return variable.numpy()

    def _given(self, given: dict[str, Any]) -> tuple[Any, Any, Any] | None:
        adapters = _Keras.module("engine.data_adapter")
        data = given.get("validation_data")
        if data is not None:
            return adapters.unpack_x_y_sample_weight(data)
        split = given.get("validation_split")
        if not split:
            return None
        whole = (given.get("x"), given.get("y"), given.get("sample_weight"))
        return adapters.train_validation_split(whole, validation_split=split, **_Keras.facts().options_of_split)[1]
