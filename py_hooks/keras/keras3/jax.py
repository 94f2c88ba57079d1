"""Keras 3 on JAX: a compute function takes the state of the model, lists of arrays, and returns it.

Source: keras 3.15.1, keras/src/backend/jax/trainer.py.
"""
from __future__ import annotations

from threading import get_ident

from py_hooks.datasets.item_passes import Counted
from py_hooks.keras.keras3.compute import VariableFunction
from py_hooks.keras.keras3.variables import VARIABLES
from py_hooks.recording import call_kinds, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


    # A list of arrays for each group of variables.
    State = tuple[list[Any], ...]


class JaxFunction(VariableFunction):
    """On JAX: `function(state, iterator)` returns `(result, state)`; the variables may be empty meanwhile."""

    _state: State | None = None
    _stack: Callable[..., Any] | None = None

    def __call__(self, state: State, iterator: Any) -> tuple[Any, State]:
        """The call of the framework's loop."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            self.pass_by(calls)
            return self.function(state, iterator)
        result = self.perform(calls, lambda: self._compute(state, iterator), lambda: self._skip(state, iterator))
        state, self._state, VARIABLES.in_flight = self._state, None, None
        return result, state

    def _compute(self, state: State, iterator: Any) -> tuple[Any, int]:
        """Calls the framework's function; returns its result, and how many batches it took."""
        if self.steps_per_execution == 1:
            batches = 1
            result, state = self.function(state, iterator)
        else:
            counted = Counted(iterator)
            result, state = self.function(state, counted)
            batches = counted.taken
        VARIABLES.in_flight, self._state = self, state
        return result, batches

    def _skip(self, state: State, iterator: Any) -> int:
        batches = self.skip(iterator)
        VARIABLES.in_flight, self._state = self, state
        return batches

    def returned(self, made: tuple[Any, int]) -> tuple[Any, State]:
        """What the framework's function returned: its result, and the state."""
        state, self._state, VARIABLES.in_flight = self._state, None, None
        return made[0], state

    def resumed(self) -> None:
        """The state of the checkpoint was put in: training continues with its values."""
        # After a call of the script on one batch, the variables hold them.
        if self._state is not None:
            self._state = self._restored(self._state)

    def _values(self, variables: list[Any]) -> list[Any]:
        if self._state is None:
            return VariableFunction._values(self, variables)
        in_flight = {id(variable): value for variable, value in zip(self.model().metrics_variables, self._state[-1])}
        return [in_flight.get(id(variable)) for variable in variables]

    def _stacked(self, values: list[Any]) -> Any:
        """A copy: the next training call reuses the memory of the values."""
        if self._stack is None:
            import jax

            JaxFunction._stack = staticmethod(jax.jit(lambda *values: jax.numpy.stack(values)))
        return self._stack(*values)

    def _groups(self) -> list[list[Any]]:
        """The model's variables in the order of the lists in the state."""
        model = self.model()
        groups = [model.trainable_variables, model.non_trainable_variables]
        if self.kind == call_kinds.TRAIN:
            groups.append(model.optimizer.variables)
        if self.kind != call_kinds.PREDICT:
            groups.append(model.metrics_variables)
        return groups

    def values_in_flight(self) -> dict[int, Any]:
        """`id(variable)` -> value in the running epoch's state, while a batch's checkpoint may be taken or restored."""
        return {
            id(variable): value
            for variables, values in zip(self._groups(), self._state)
            for variable, value in zip(variables, values)
        }

    def _restored(self, state: State) -> State:
        """The state with the values of the checkpoint."""
        restored, VARIABLES.restored = VARIABLES.restored, {}
        return tuple(
            [restored.get(id(variable), value) for variable, value in zip(variables, values)]
            for variables, values in zip(self._groups(), state)
        )
