"""TensorFlow 2: its variables by creation number, what a replay knows of their values, and the doors of reads and writes.

In a replay a variable that a recorded call changed holds no true value: it is *stale*. It is true again once Python has
written it, or has read its value outside a recorded call. Such a read is a recorded call, and a replay puts the recorded
value into the variable before anybody sees it. So whatever Python does with a variable then, with a `GradientTape` or
without, it does with the true value.

There are three doors: the methods by which Python reads and writes; the handle, by which an op reads a variable among its
arguments (`Handle`); and the call of a traced function (`functions.py`), which uses variables without either. Inside a
function that is being traced nothing is read or written yet.

With Keras 3 most variables are wrapped by a Keras variable, and `py_hooks/keras/keras3/variables.py` keeps those; it says so
(`ResourceVariables.wrapped_by`).

Source: tensorflow 2.0.0 to 2.21.0, tensorflow/python/ops/resource_variable_ops.py.
"""
from __future__ import annotations

import weakref
from threading import get_ident

from py_hooks import causes
from py_hooks.engine.patch import binding, shortcut
from py_hooks.own_account import own_account
from py_hooks.recording import call_kinds, fingerprint, recorder
from py_hooks.recording.variable_differs import VariableDiffers
from py_hooks.tensorflow.files import event_files
from py_hooks.tensorflow.random_ops import random_ops, random_states
from py_hooks.tensorflow.sessions import sessions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import Any, Protocol

    from numpy import ndarray

    from py_hooks.recording.recorder import Calls

    class _Wrapper(Protocol):
        """A library whose variables wrap those of TensorFlow; see `_NoWrapper`."""

        def is_stale(self, variable: Any) -> bool: ...
        def alive(self) -> Iterable[tuple[object, Any]]: ...

# `BaseResourceVariable.__init__` also makes the result of an assignment, which is the variable itself.
_RESULT = "_UnreadVariable"


class _NoWrapper:
    """The library whose variables wrap those of TensorFlow, while there is none."""

    def is_stale(self, variable: Any) -> bool:
        """Whether a recorded call changed the variable that wraps this one, since Python last wrote it."""
        return False

    def alive(self) -> Iterable[tuple[object, Any]]:
        """`(number, variable)` of the variables that wrap others; each has the other one as `_value`."""
        return ()


class ResourceVariables:
    """TensorFlow's variables by creation number; in a checkpoint, those that no variable of another library wraps.

    Attributes:
        wrapper: the library that keeps the values of those that it wraps.
        left_out: variables that are not part of a checkpoint, because a replay makes their values again: `id(variable)` ->
            variable.
    """

    def __init__(self) -> None:
        self.wrapper: _Wrapper = _NoWrapper()
        self.left_out: dict[int, Any] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._created = 0
        self._by_handle: dict[int, weakref.ref[Any]] = {}
        self._numbers: dict[int, int] = {}
        self._unnumbered: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._stale: set[int] = set()

    def wrapped_by(self, wrapper: _Wrapper) -> None:
        """Another library wraps variables of TensorFlow, and keeps their values; see `_NoWrapper`."""
        self.wrapper = wrapper

    def leave_out(self, variable: Any) -> None:
        """Notes a variable that was made by loading or saving a model, which a replay does not do."""
        self._unnumbered[id(_handle_of(variable))] = variable

    def add(self, variable: Any) -> None:
        """Numbers a variable that was just made."""
        number, handle = self._created, id(_handle_of(variable))
        self._created += 1
        self._numbers[handle] = number

        def forget(reference: weakref.ref[Any]) -> None:
            self._references.pop(number, None)
            if self._by_handle.get(handle) is reference:
                del self._by_handle[handle], self._numbers[handle]
                self._stale.discard(handle)

        self._references[number] = self._by_handle[handle] = weakref.ref(variable, forget)
        self._stale.discard(handle)

    def key_of(self, variable: Any) -> str | None:
        """The name of a variable's value in a checkpoint; None if it has none."""
        number = self._numbers.get(id(_handle_of(variable)))
        return None if number is None else f"tensorflow/{number}"

    def of_handle(self, handle: Any) -> weakref.ref[Any] | None:
        """A weak reference to the variable, or state of a random op, whose handle this is; None for other handles."""
        variable = self._unnumbered.get(id(handle))
        if variable is not None and _handle_of(variable) is handle:
            recorder.CALLS.exactness.refuse(causes.MADE_WHILE_LOADED(name=variable.name))
        return self._by_handle.get(id(handle)) or random_states.STATES.of_handle(handle)

    # -- staleness -------------------------------------------------------------------------------------------------

    def is_stale(self, variable: Any) -> bool:
        """Whether a recorded call changed the variable since Python last wrote it, or read it."""
        return id(_handle_of(variable)) in self._stale

    def mark_stale(self, variables: Iterable[Any]) -> None:
        """Notes that a recorded call changed the variables."""
        self._stale.update(id(_handle_of(variable)) for variable in variables)

    def known(self, variable: Any) -> None:
        """Notes that the variable holds its true value, in a replay too."""
        self._stale.discard(id(_handle_of(variable)))
        recorder.CALLS.cleaned += 1

    # -- state in a checkpoint ---------------------------------------------------------------------------------------

    def _alive(self) -> Iterator[tuple[str, Any]]:
        for number, reference in sorted(self._references.items()):
            variable = reference()
            if variable is not None:
                yield str(number), variable

    def name_of(self, handle: Any) -> str:
        """The name of the variable with this handle; empty if it is none of these."""
        return next((variable.name for _, variable in self._alive() if _handle_of(variable) is handle), "")

    def rebuilt_by_pipelines(self, handles: Collection[Any]) -> None:
        """Leaves variables out of checkpoints, because a replay makes their values again."""
        for _, variable in self._alive():
            if any(_handle_of(variable) is handle for handle in handles):
                self.left_out[id(variable)] = variable

    def _unwrapped(self) -> Iterator[tuple[str, Any]]:
        wrapped = {id(variable._value) for _, variable in self.wrapper.alive()}
        for number, variable in self._alive():
            if id(variable) not in wrapped and id(variable) not in self.left_out:
                yield number, variable

    def capture(self) -> tuple[list[tuple[str, ndarray]], None]:
        """The values of the variables that have one."""
        from tensorflow.python.framework import dtypes, errors_impl

        tensors = []
        for number, variable in self._unwrapped():
            if variable.dtype == dtypes.string:
                recorder.CALLS.exactness.refuse(causes.STRINGS())
            elif variable.dtype.is_numpy_compatible:
                try:
                    tensors.append((number, variable.numpy()))
                except errors_impl.FailedPreconditionError:
                    # It was made inside a function, and has no value yet.
                    continue
        return tensors, None

    def restore(self, tensors: dict[str, ndarray], state: object) -> None:
        """Assigns saved values. Stale variables stay stale: the records must not depend on the point of the resume."""
        for number, variable in self._unwrapped():
            if number in tensors:
                if not variable.shape.is_compatible_with(tensors[number].shape):
                    raise VariableDiffers(number, variable.name, tensors[number].shape, variable)
                variable.assign(tensors[number])


RESOURCE_VARIABLES = ResourceVariables()


def _handle_of(variable: Any) -> Any:
    """The handle of a variable, or of a random op's state, without the door. A strategy's variable gives that of its part."""
    variable = getattr(variable, "_primary", variable)
    handle = variable.__dict__.get("_handle")
    if handle is not None:
        return handle
    calls = recorder.CALLS
    with calls.unrecorded():
        return variable.handle


class Handle:
    """`BaseResourceVariable._handle`, instead of an attribute of each variable: whoever takes it may read the value.

    An op with a variable as an argument reads it in C++, with this handle, without any method of the variable
    (tensorflow 2.15.1, tensorflow/python/eager/pywrap_tfe_src.cc, `ReadVariableOp`).
    """

    def __get__(self, variable: Any, owner: type | None = None) -> Any:
        if variable is None:
            return self
        calls = recorder.CALLS
        if calls.begun and calls.is_outside() and "_handle" in variable.__dict__:
            make_true(calls, variable)
        try:
            return variable.__dict__["_handle"]
        except KeyError:
            raise AttributeError("_handle") from None

    def __set__(self, variable: Any, handle: Any) -> None:
        variable.__dict__["_handle"] = handle


def prepare(calls: Calls) -> None:
    """Has variables and the states of random ops kept in checkpoints, and gives pipeline shuffles the number of the pass."""
    from tensorflow.python.ops import resource_variable_ops

    resource_variable_ops.BaseResourceVariable._handle = Handle()
    calls.checkpoints.keep("tensorflow", RESOURCE_VARIABLES)
    sessions.provide(calls, "tensorflow-sessions")
    random_states.prepare(calls)
    calls.streams.at_pass.append(_PassNumber.set)
    event_files.prepare(calls)


def created(original: Callable[..., Any], variable: Any, *args: Any, **kwargs: Any) -> None:
    """`BaseResourceVariable.__init__`: numbers the variable, unless a graph has it, or saving a model makes it."""
    original(variable, *args, **kwargs)
    if type(variable).__name__ == _RESULT or variable._in_graph_mode:
        return
    if recorder.CALLS.in_composite:
        RESOURCE_VARIABLES.leave_out(variable)
    else:
        RESOURCE_VARIABLES.add(variable)


class _PassNumber:
    """The number of the running pass, as a variable that pipelines read."""

    variable: Any = None

    @classmethod
    def read(cls) -> Any:
        """The number, inside a pipeline's function."""
        import tensorflow

        if cls.variable is None:
            with tensorflow.init_scope(), tensorflow.device("cpu:0"):
                cls.variable = tensorflow.Variable(0, dtype=tensorflow.int64, trainable=False, name="pedl_pass")
            RESOURCE_VARIABLES.left_out[id(cls.variable)] = cls.variable
        return cls.variable.read_value()

    @classmethod
    def set(cls, ordinal: int) -> None:
        """A pass begins."""
        if cls.variable is None:
            return
        calls = recorder.CALLS
        # The script does not make this write.
        with calls.unrecorded():
            cls.variable.assign(ordinal)


def random_shuffle(
    original: Callable[..., Any], value: Any, seed: int | None = 0, seed2: int | None = 0, name: str | None = None
) -> Any:
    """`gen_random_ops.random_shuffle`: in the array pipelines of Keras 3, without a seed, keyed by trial and pass.

    With a seed TensorFlow gives every pass the same order, and this does too. Elsewhere it is an op like others.
    """
    import tensorflow

    streams = recorder.CALLS.streams
    if streams.in_array_pipeline and not seed and not seed2 and recorder.CALLS.on_main_thread():
        key = streams.next_op_seed() % (1 << 31)
        return tensorflow.random.experimental.stateless_shuffle(value, seed=[key, _PassNumber.read()])
    return random_ops.random_shuffle(original, value, seed=seed, seed2=seed2, name=name)


# -- the doors ---------------------------------------------------------------------------------------------------------


def _unless_inside(original: Callable[..., Any], intercepted: Callable[..., Any]) -> Callable[..., Any]:
    """Nothing is done for what a recorded call does inside, in its thread."""

    def called(variable: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        is_inside = calls.depth and get_ident() == calls.main_thread
        return (original if is_inside else intercepted)(variable, *args, **kwargs)

    return called


@shortcut(_unless_inside)
@binding
def read(original: Callable[..., Any]) -> Callable[..., Any]:
    """`BaseResourceVariable._read_variable_op` and other reads: a variable that is read becomes true."""

    def read_variable(variable: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if calls.begun and calls.is_outside():
            make_true(calls, variable)
        return original(variable, *args, **kwargs)

    return read_variable


@shortcut(_unless_inside)
@binding
def write(original: Callable[..., Any]) -> Callable[..., Any]:
    """`BaseResourceVariable.assign`: a write by Python is made, and checked against its record."""

    def assign(variable: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if calls.depth or not calls.begun or get_ident() != calls.main_thread or not _is_eager():
            return original(variable, value, *args, **kwargs)
        return _written(calls, original, variable, value, args, kwargs)

    return assign


@shortcut(_unless_inside)
@binding
def update(original: Callable[..., Any]) -> Callable[..., Any]:
    """`assign_add`, `scatter_update` and the like: they change the present value, which becomes true first."""

    def updated(variable: Any, *args: Any, **kwargs: Any) -> Any:
        calls = recorder.CALLS
        if calls.begun and calls.is_outside():
            make_true(calls, variable)
        return original(variable, *args, **kwargs)

    return updated


def _written(
    calls: Calls, original: Callable[..., Any], variable: Any, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    import numpy

    with own_account():
        checksum = fingerprint.checksum(numpy.asarray(value))
    with calls.unrecorded():
        result = original(variable, value, *args, **kwargs)
    RESOURCE_VARIABLES.known(variable)
    calls.checked(call_kinds.WRITE, calls.trial.intern(f"write variable {variable.name}"), checksum)
    return result


def make_true(calls: Calls, variable: Any) -> None:
    """Puts into a stale variable, or a random op's state, the value that it had, by a recorded call."""
    is_wrapped = RESOURCE_VARIABLES.wrapper.is_stale(variable)
    if not (is_wrapped or RESOURCE_VARIABLES.is_stale(variable)) or not _is_eager():
        return
    if not calls.on_main_thread():
        calls.read_in_thread()
        return
    identity = calls.trial.intern(f"read variable {variable.name}")

    def put(value: Any) -> None:
        with calls.unrecorded():
            variable.assign(value)

    calls.perform(call_kinds.READ, identity, variable.numpy, put=put)
    if not is_wrapped:
        RESOURCE_VARIABLES.known(variable)


def _is_eager() -> bool:
    from tensorflow.python.eager import context

    return context.executing_eagerly()
