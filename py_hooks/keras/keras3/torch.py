"""Keras 3 on torch: compute functions that get their batch as a list, run eagerly, and draw from torch's generator.

Layers without a seed draw from torch's global generator. The Python code of a layer, which runs in every call here, may draw
from the generators of `random` and numpy, and from generators that it holds; so may a function that a layer calls, a loss
and a metric. An answered call would leave these generators unchanged. So every compute call draws from separate streams,
made from the state of torch's global generator and the number of the call (`py_hooks/torch/generator.py`). A generator that
a call makes would not exist after answered calls: with it exact resume is refused.

What a script does with the parameters of a torch module without Keras (`parameters()`, `state_dict()`) cannot be seen.

Source: keras 3.15.1, keras/src/backend/torch/trainer.py, layer.py and random.py;
keras/src/trainers/data_adapters/array_data_adapter.py, `ArrayDataAdapter.get_torch_dataloader`.
"""
from __future__ import annotations

import functools
import types
from threading import get_ident

from py_hooks import causes, places
from py_hooks.engine.patch import binding
from py_hooks.keras import packages
from py_hooks.keras.keras3 import passes
from py_hooks.keras.keras3.compute import VariableFunction
from py_hooks.keras.keras3.variables import VARIABLES, own_copy
from py_hooks.random_numbers.watched_generators import WatchedGenerators
from py_hooks.recording import call_kinds, recorder
from py_hooks.torch.generator import TorchGenerator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from py_hooks.recording.recorder import Calls

    # What begins a pass: it returns the pass's iterator and its `skip`.
    Begin = Callable[[], tuple[Iterator[Any], Callable[[], object]]]

GENERATOR = TorchGenerator()

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def prepare(calls: Calls) -> None:
    """Has the generator kept in checkpoints."""
    calls.checkpoints.keep("torch", GENERATOR)


def causes_of(model: Any) -> list[causes.Told]:
    """Causes in a model and its device why it cannot be resumed exactly."""
    from keras.src.backend.torch.core import get_device

    found = []
    if get_device() != "cpu":
        found.append(causes.DEVICE(device=get_device()))
    if next(model.buffers(), None) is not None:
        found.append(causes.BUFFERS())
    for name in ("train_step", "test_step", "predict_step"):
        kind = next(kind for kind in type(model).__mro__ if name in vars(kind))
        if not packages.is_frameworks(kind.__module__):
            # On other backends it is traced, so its Python code runs once.
            found.append(causes.OWN_STEP_ON_TORCH(name=name))
    return found


class TorchFunction(VariableFunction):
    """`function(data)`, where `data` is a list of one batch, works on the variables."""

    # Generators in the script's code that the call runs; None until the first call, before which all of it is built.
    _generators: WatchedGenerators | None = None

    def __call__(self, data: Any) -> Any:
        """The call of the framework's loop."""
        calls = recorder.CALLS
        if calls.depth or get_ident() != calls.main_thread:
            self.pass_by(calls)
            return self._run(data) if get_ident() == calls.main_thread else self.function(data)
        return self.perform(calls, lambda: (self._run(data), 1), self.skip_batch)

    def _run(self, data: Any) -> Any:
        watched = self._generators
        if watched is None:
            watched = self._generators = WatchedGenerators(lambda: _of_the_script(self.model()))
        watched.look()
        with GENERATOR.own_state(watched.found):
            result = self.function(data)
        if watched.look():
            recorder.CALLS.exactness.refuse(causes.GENERATOR_IN_LAYER())
        return result

    def _stacked(self, values: list[Any]) -> Any:
        import torch

        return torch.stack([value.detach() for value in values])

    def decode(self) -> Callable[[Any], Any]:
        """The recorded result is tensors, as torch returns them."""
        from keras.src.backend import convert_to_tensor

        return convert_to_tensor

    def skip_batch(self) -> int:
        """A call is answered: the generators of torch are as after it."""
        GENERATOR.skip()
        return 1


def _of_the_script(model: Any) -> list[Any]:
    """What belongs to the script in a compute call: layers, the optimizer, losses, metrics, functions of layers."""
    held = [one for part in (*model._flatten_layers(), model.optimizer) for one in _own_parts(part)]
    metrics = model._compile_metrics
    asked = (metrics._user_metrics, metrics._user_weighted_metrics) if metrics is not None else ()
    return [*held, model.loss, *asked]


def _own_parts(part: Any) -> list[Any]:
    """A layer or an optimizer if the script defines it; else those of its attributes that the script defines, and functions."""
    if part is None or not packages.is_frameworks(type(part).__module__):
        return [part]
    return [one for one in vars(part).values() if isinstance(one, _FUNCTIONS) or places.is_user_module(type(one).__module__)]


@binding
def read(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Variable.value`: a read of a stale variable outside a recorded call is a recorded call.

    In a replay the value is put into the variable, and the variable itself is returned: a script may ask for gradients.
    """

    def value(variable: Any) -> Any:
        calls = recorder.CALLS
        if VARIABLES.is_stale(variable) and calls.is_outside() and not in_stateless_scope():
            _make_true(calls, variable)
        return original(variable)

    return value


def _make_true(calls: Calls, variable: Any) -> None:
    from keras.src.backend import convert_to_numpy

    if not calls.on_main_thread():
        calls.read_in_thread()
        return
    identity = calls.trial.intern(f"read variable {VARIABLES.numbers.get(id(variable))} {variable.path}")

    def put(value: Any) -> None:
        with calls.unrecorded():
            variable._direct_assign(own_copy(variable, value))

    calls.perform(call_kinds.READ, identity, lambda: convert_to_numpy(variable._value), put=put)


def in_stateless_scope() -> bool:
    """Whether values are symbols at present."""
    from keras.src.backend.common import stateless_scope

    return stateless_scope.in_stateless_scope()


def parameters(original: Callable[..., Any], layer: Any, *args: Any, **kwargs: Any) -> Any:
    """`TorchLayer.named_parameters`: whoever holds a parameter can read and write it without being seen."""
    calls = recorder.CALLS
    if calls.batches and calls.recordable():
        calls.exactness.refuse(causes.PARAMETERS())
    return original(layer, *args, **kwargs)


# -- passes over data --------------------------------------------------------------------------------------------------

# Represents a batch that nothing reads.
_SKIPPED = object()


class _Building:
    """Whether a model is being built from the first batch of a pass, which must then be a real one."""

    count = 0


def build(original: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """`Trainer._symbolic_build`."""
    _Building.count += 1
    try:
        return original(trainer, *args, **kwargs)
    finally:
        _Building.count -= 1


class LoaderPass:
    """One pass over a `DataLoader`: in a replay its batches are not built.

    Args:
        iterator: iterator of the loader.
        skip: advances the iterator by one batch, and draws what building it would have drawn.
    """

    def __init__(self, iterator: Iterator[Any], skip: Callable[[], object]) -> None:
        self._iterator = iterator
        self._skip = skip

    def __iter__(self) -> LoaderPass:
        return self

    def __next__(self) -> Any:
        if recorder.CALLS.skips_data and not _Building.count:
            self._skip()
            return _SKIPPED
        return next(self._iterator)


class _Passes:
    """Replaces a loader: its iterators are `LoaderPass`es.

    Args:
        begin: begins a pass; returns its iterator and its `skip`.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    def __iter__(self) -> LoaderPass:
        return LoaderPass(*self._begin())


def array_loader(original: Callable[..., Any], adapter: Any) -> _Passes:
    """`ArrayDataAdapter.get_torch_dataloader`: in a replay only the orders are drawn."""
    loader = original(adapter)

    def begin() -> tuple[Iterator[Any], Callable[[], object]]:
        iterator = iter(loader)
        return iterator, iterator._next_index

    return _Passes(begin)


def own_loader(original: Callable[..., Any], adapter: Any) -> Any:
    """`TorchDataLoaderAdapter.get_torch_dataloader`: uses worker processes of a pool; in a replay nothing is built."""
    if not passes.is_for_pool(adapter):
        return original(adapter)

    def begin() -> tuple[Iterator[Any], Callable[[], object]]:
        source = adapter._pedl_loader.begin()
        return iter(source), source.skip

    return _Passes(begin)


def sequence_loader(original: Callable[..., Any], adapter: Any) -> Any:
    """`PyDatasetAdapter.get_torch_dataloader`: in a replay items are not built."""
    if not passes.is_ours(adapter):
        return original(adapter)
    source = adapter._get_iterator()
    adapter._get_iterator = lambda: source
    try:
        loader = original(adapter)
    finally:
        del adapter._get_iterator
    return _Passes(lambda: (iter(loader), source.skip))
