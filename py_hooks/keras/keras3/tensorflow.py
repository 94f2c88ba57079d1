"""Keras 3, and Keras 2 on TensorFlow 2: a compute function works on the variables of TensorFlow.

Source: keras 3.15.1, keras/src/backend/tensorflow/trainer.py.
"""
from __future__ import annotations

from threading import get_ident

from py_hooks.keras.keras3.compute import VariableFunction
from py_hooks.keras.keras3.passes import DatasetPass, Skipped
from py_hooks.keras.keras3.variables import VARIABLES
from py_hooks.recording import call_kinds, recorder
from py_hooks.tensorflow.variables.functions import FUNCTIONS
from py_hooks.tensorflow.variables.resource_variables import RESOURCE_VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.recording.recorder import Calls
    from py_hooks.tensorflow.variables.functions import Effects


class TensorFlowFunction(VariableFunction):
    """On TensorFlow: `function(iterator)` (a list of elements for predict) works on the variables."""

    def __init__(self, model: Any, kind: int, function: Callable[..., Any]) -> None:
        VariableFunction.__init__(self, model, kind, function)
        self._effects: set[Effects] = set()

    def __call__(self, iterator: Any) -> Any:
        """The call of the framework's loop."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            self.pass_by(calls)
            return self._run(calls, iterator)[0]
        return self.perform(calls, lambda: self._run(calls, iterator), lambda: self.skip(iterator))

    def _run(self, calls: Calls, iterator: Any) -> tuple[Any, int]:
        """Runs the framework's function, and notes what it does to TensorFlow's variables.

        Returns:
            Its result, and how many batches it took.
        """
        if get_ident() != calls.main_thread:
            return self.function(_live(iterator)), 1
        batches = iterator.taken(self.steps_per_execution) if isinstance(iterator, DatasetPass) else 1
        known = len(self._effects)
        outer, FUNCTIONS.found = FUNCTIONS.found, self._effects
        try:
            return self.function(_live(iterator)), batches
        finally:
            FUNCTIONS.found = outer
            if len(self._effects) > known:
                self.cleaned = None

    def changed(self, calls: Calls) -> None:
        """Notes which variables a call changes: those of Keras, and those that only TensorFlow knows."""
        VariableFunction.changed(self, calls)
        wrapped = {id(variable._value) for _, variable in VARIABLES.alive()}
        RESOURCE_VARIABLES.mark_stale(variable for variable in self.written() if id(variable) not in wrapped)

    def written(self) -> list[Any]:
        """TensorFlow's variables, and the states of random ops, that the function may change."""
        return [variable for effects in self._effects for variable in effects.written_variables()]

    @staticmethod
    def _is_spread(value: Any) -> bool:
        return hasattr(value, "values")

    def _stacked(self, values: list[Any]) -> Any:
        import tensorflow

        return tensorflow.stack([value.read_value() for value in values])

    def decode(self) -> Callable[[Any], Any] | None:
        """For predict the result is tensors, on which Keras calls `.numpy()`; others are only converted to floats."""
        if self.kind != call_kinds.PREDICT:
            return None
        from keras.src.backend import convert_to_tensor

        return convert_to_tensor


def _live(iterator: Any) -> Any:
    """What the framework's function works on: the iterator of the pipeline, or real elements."""
    if isinstance(iterator, DatasetPass):
        return iterator.live()
    if isinstance(iterator, list):
        return [item.element() if isinstance(item, Skipped) else item for item in iterator]
    return iterator
