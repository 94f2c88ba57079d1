"""Keras 3: every variable, by creation number; its state in a checkpoint; and the interception of reads and writes.

In a replay the variables that training changes do not hold true values. So a read of one outside a recorded call is
itself a recorded call, and a write by Python is checked against its record. A variable is *stale* from the training
call that changed it until Python writes it; variables that only Python writes are never stale.

Source: keras 3.15.1, keras/src/backend/common/variables.py; for JAX, which keeps the state of a running epoch outside
the variables, keras/src/backend/jax/trainer.py, `_purge_model_variables` and `jax_state_sync`.
"""
from __future__ import annotations

import weakref
from threading import get_ident

from py_hooks import causes
from py_hooks.engine.patch import binding, shortcut
from py_hooks.own_account import on_own_account
from py_hooks.recording import call_kinds, fingerprint, recorder
from py_hooks.recording.variable_differs import VariableDiffers
from py_hooks.tensorflow.variables.resource_variables import RESOURCE_VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    import numpy

    from py_hooks.keras.keras3.jax import JaxFunction
    from py_hooks.recording.recorder import Calls


class Variables:
    """The variables of this process.

    Attributes:
        in_flight: on JAX, while a batch's checkpoint may be taken or restored, the `JaxFunction` that knows the values
            outside the variables; else None.
        restored: values restored by a resume, for those that are in flight: `id(variable)` -> array.
        stale: keys of the variables that are stale; always the same set.
    """

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.in_flight: JaxFunction | None = None
        self.restored: dict[int, Any] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self.stale: set[int] = set()
        self._values: dict[int, int] = {}
        self._created = 0

    # -- creation ------------------------------------------------------------------------------------------------

    def add(self, variable: Any) -> None:
        """Numbers a variable that was just made."""
        number, key = self._created, id(variable)
        self._created += 1
        self.numbers[key] = number

        def forget(_: object) -> None:
            if self.numbers.get(key) == number:
                del self.numbers[key]
                self.stale.difference_update((key, self._values.pop(key, key)))
            self._references.pop(number, None)

        self._references[number] = weakref.ref(variable, forget)

    def key_of(self, variable: Any) -> str | None:
        """The name of a variable's value in a checkpoint; None if it has none."""
        number = self.numbers.get(id(variable))
        return None if number is None else f"keras/{number}"

    # -- staleness -------------------------------------------------------------------------------------------------

    def is_stale(self, variable: Any) -> bool:
        """Whether training changed a variable since Python last wrote it: one of Keras, or TensorFlow's variable in it."""
        return id(variable) in self.stale

    def mark_stale(self, variables: Iterable[Any]) -> None:
        """Notes that a training call changed the variables."""
        for variable in variables:
            self.stale.update(self._keys(variable))

    def written(self, variable: Any) -> None:
        """Notes that Python wrote the variable: its value is true, in a replay too."""
        self.stale.difference_update(self._keys(variable))
        recorder.CALLS.cleaned += 1

    def _keys(self, variable: Any) -> tuple[int, int]:
        """The keys of a variable among the stale: itself, and on TensorFlow the resource variable that it wraps."""
        key, value = id(variable), variable._value
        # Looked up on its class: a variable that is spread over devices has no handle outside of its replicas, and raises.
        if hasattr(type(value), "handle"):
            self._values[key] = id(value)
        return key, self._values.get(key, key)

    # -- state in a checkpoint ---------------------------------------------------------------------------------------

    def alive(self) -> Iterator[tuple[int, Any]]:
        """`(number, variable)` of all variables that are still in use, in order of creation."""
        for number, reference in sorted(self._references.items()):
            variable = reference()
            if variable is not None:
                yield number, variable

    def _kept(self) -> list[tuple[int, Any]]:
        """As `alive`, without variables that are left out of checkpoints."""
        return [pair for pair in self.alive() if id(getattr(pair[1], "_value", None)) not in RESOURCE_VARIABLES.left_out]

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, Any]]:
        """The values of all variables that have one. They are views if the backend allows: the recorder copies them."""
        tensors, paths, in_flight = [], {}, self._values_in_flight()
        for number, variable in self._kept():
            value = in_flight.get(id(variable), getattr(variable, "_value", None))
            if value is None and getattr(variable, "_initializer", None) is None:
                recorder.CALLS.exactness.refuse(causes.NESTED_TRAINING())
            if value is not None:
                tensors.append((str(number), view_of(value)))
                paths[str(number)] = variable.path
        return tensors, {"paths": paths}

    def restore(self, tensors: dict[str, numpy.ndarray], state: dict[str, Any]) -> None:
        """Restores saved values. Those of variables whose value is in flight are put into `restored`.

        Stale variables stay stale: what is recorded must not depend on where a run was resumed.
        """
        variables = {str(number): variable for number, variable in self._kept()}
        in_flight = self._values_in_flight()
        for number, value in tensors.items():
            variable = variables.get(number)
            if variable is None:
                continue
            if variable.path != state["paths"][number] or tuple(variable.shape) != value.shape:
                raise VariableDiffers(number, state["paths"][number], value.shape, variable)
            tensor = own_copy(variable, value)
            if id(variable) in in_flight or variable._value is None:
                self.restored[id(variable)] = tensor
            if variable._value is not None:
                variable._direct_assign(tensor)

    def _values_in_flight(self) -> dict[int, Any]:
        return self.in_flight.values_in_flight() if self.in_flight is not None else {}


VARIABLES = Variables()


def view_of(value: Any) -> numpy.ndarray:
    """A value as numpy sees it, without a copy if possible; valid until the variable changes."""
    import numpy
    from keras.src import backend

    kind = backend.backend()
    if kind == "jax" and value.dtype in ("float32", "float64", "int32", "int64"):
        # A JAX array keeps the numpy form that it was asked for, and then cannot be donated without a copy.
        return numpy.from_dlpack(value)
    if kind == "tensorflow" and hasattr(value, "read_value"):
        return numpy.asarray(value.read_value())
    return numpy.asarray(backend.convert_to_numpy(value))


def own_copy(variable: Any, value: numpy.ndarray) -> Any:
    """A tensor of the backend with separate memory: a buffer that is donated later may share that of numpy."""
    from keras.src import backend

    if backend.backend() == "jax":
        import jax
        import numpy

        value = numpy.asarray(value, dtype=variable._dtype)
        tensor = jax.device_put(value)
        # JAX may use the memory of an array as its own; `may_alias=False` does not prevent that.
        is_shared = tensor.unsafe_buffer_pointer() == value.ctypes.data
        return jax.numpy.array(tensor, copy=True) if is_shared else tensor
    return backend.convert_to_tensor(value, dtype=variable._dtype)


def created(original: Callable[..., Any], variable: Any, *args: Any, **kwargs: Any) -> None:
    """`Variable.__init__`: numbers the variable, except those of the reference objects that saving a model makes.

    Source: keras 3.15.1, keras/src/saving/saving_lib.py, `_walk_saveable`.
    """
    original(variable, *args, **kwargs)
    if not recorder.CALLS.in_composite:
        VARIABLES.add(variable)


def _unless_read_outside(original: Callable[..., Any], intercepted: Callable[..., Any]) -> Callable[..., Any]:
    stale = VARIABLES.stale

    def value(variable: Any) -> Any:
        calls = recorder.CALLS
        if id(variable) not in stale or (calls.depth and get_ident() == calls.main_thread):
            return original(variable)
        return intercepted(variable)

    return value


@shortcut(_unless_read_outside)
@binding
def read(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Variable.value` on JAX: a read of a stale variable outside a recorded call is a recorded call."""

    def value(variable: Any) -> Any:
        calls = recorder.CALLS
        if not VARIABLES.is_stale(variable) or not calls.is_outside() or _is_tracing():
            return original(variable)
        if not calls.on_main_thread():
            calls.read_in_thread()
            return original(variable)
        return calls.perform(
            call_kinds.READ, _identity(calls, "read", variable), lambda: original(variable), decode=_as_backend_tensor
        )

    return value


def _unless_written_outside(original: Callable[..., Any], intercepted: Callable[..., Any]) -> Callable[..., Any]:
    def assign(variable: Any, value: Any) -> Any:
        return original(variable, value) if recorder.CALLS.depth else intercepted(variable, value)

    return assign


@shortcut(_unless_written_outside)
@binding
def write(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Variable.assign`: a write by Python is made, and checked against its record."""

    def assign(variable: Any, value: Any) -> Any:
        calls = recorder.CALLS
        if calls.depth or not calls.begun or not calls.recordable() or _is_tracing():
            return original(variable, value)
        return _written(calls, original, variable, value)

    return assign


def _written(calls: Calls, original: Callable[..., Any], variable: Any, value: Any) -> Any:
    with calls.unrecorded():
        result = original(variable, value)
    VARIABLES.written(variable)
    calls.checked(call_kinds.WRITE, _identity(calls, "write", variable), _checksum(value))
    return result


@on_own_account
def _checksum(value: Any) -> int:
    import numpy

    return fingerprint.checksum(numpy.asarray(value))


def _identity(calls: Calls, verb: str, variable: Any) -> int:
    return calls.trial.intern(f"{verb} variable {VARIABLES.numbers.get(id(variable))} {variable.path}")


def _is_tracing() -> bool:
    """Whether values are symbols at present: in a function of JAX, or of TensorFlow, that the script has."""
    from keras.src import backend
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    if in_stateless_scope() or backend.backend() != "tensorflow":
        return in_stateless_scope()
    from tensorflow.python.eager import context

    return not context.executing_eagerly()


def _as_backend_tensor(array: numpy.ndarray) -> Any:
    from keras.src import backend

    return backend.convert_to_tensor(array)


@binding
def not_the_scripts(original: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the framework that reads and writes variables for itself: nothing in it is recorded."""

    def unrecorded(*args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        with calls.unrecorded():
            return original(*args, **kwargs)

    return unrecorded
