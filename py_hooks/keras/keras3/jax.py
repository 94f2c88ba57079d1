"""Keras 3 on JAX: a compute function takes the state of the model, lists of arrays, and returns it.

Source: keras 3.15.1, keras/src/backend/jax/trainer.py.
"""
from __future__ import annotations

from threading import get_ident

from py_hooks.datasets.items import Counted
from py_hooks.keras.keras3.compute import VariableFunction
from py_hooks.keras.keras3.variables import VARIABLES
from py_hooks.recording import call_kinds, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.recording.recorder import Calls

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
        if calls.steps is not None:
            calls.steps.call_begins(self.kind)
        if calls.replaying:
            return self._replay(calls, state, iterator)
        traced, ((result, state), batches) = self.make(calls, lambda: self._run(state, iterator))
        VARIABLES.in_flight, self._state = self, state
        self.record(calls, traced, result, batches)
        VARIABLES.in_flight = self._state = None
        return result, state

    def _run(self, state: State, iterator: Any) -> tuple[tuple[Any, State], int]:
        """Calls the framework's function; returns its result, and how many batches it took."""
        if self.steps_per_execution == 1:
            return self.function(state, iterator), 1
        counted = Counted(iterator)
        return self.function(state, counted), counted.taken

    def result_of(self, returned: tuple[Any, State]) -> Any:
        """Without the state."""
        return returned[0]

    def _replay(self, calls: Calls, state: State, iterator: Any) -> tuple[Any, State]:
        made, result, batches = self.replay(calls, lambda: self._run(state, iterator), iterator)
        if made is not None:
            state = made[1]
        VARIABLES.in_flight, self._state = self, state
        if self.count_answered(calls, batches):
            state = self._restored(state)
        VARIABLES.in_flight = self._state = None
        return result, state

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
