"""What a checkpoint contains of a trial of PyTorch, and how it is restored.

- the model: its `state_dict`, buffers that are not part of it, and which parameters are trained;
- the optimizer and the learning rate scheduler: their `state_dict`;
- attributes that have changed since training began: of the trial, of the modules, and of objects of the user's classes that
  the trial holds. An attribute that holds more than numbers, texts, arrays, tensors and containers of them is kept by its
  `state_dict`, if it has one; else such a change is a cause for not being exact.

Random numbers are no state: each batch has separate streams (`trials.py`).
"""
from __future__ import annotations

import types
import zlib

from py_hooks import causes, places
from py_hooks.border import ExitCode
from py_hooks.recording import recorder
from py_hooks.refusal import Refusal
from py_hooks.torch.state_codec import Encoder, Unencodable, decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Protocol

    import numpy

    class _HasState(Protocol):
        """Such as a scheduler of torch: a state, and how it is restored."""

        def state_dict(self) -> dict[str, Any]: ...

        def load_state_dict(self, __state: dict[str, Any]) -> object: ...

# Types of values without state.
_STATELESS = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)


class TrialState:
    """The state provider.

    Args:
        trial: an instance of the user's class.
        model: its model.
        optimizer: its optimizer.
        scheduler: has the state of its learning rate; None if it has none.
        others: other objects that belong to pedl-run, or are resumed in another way.
    """

    def __init__(self, trial: Any, model: Any, optimizer: Any, scheduler: _HasState | None, others: Iterable[Any] = ()) -> None:
        self._model = model
        self._optimizer = optimizer
        self._scheduler = scheduler
        known = [model, optimizer, *([scheduler] if scheduler is not None else []), *others]
        self._attributes = _Attributes(trial, model, known)

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, Any]]:
        """The tensors, and the rest as JSON."""
        import torch

        held, model = Encoder(), self._model
        state = {
            "model": self._told(held, model.state_dict(), "model"),
            "buffers": self._told(held, _other_buffers(model), "buffers"),
            "frozen": [name for name, parameter in model.named_parameters() if not parameter.requires_grad],
            "optimizer": self._told(held, _numbered(self._optimizer.state_dict()), "optimizer"),
            "scheduler": None if self._scheduler is None else self._told_in_parts(held, self._scheduler.state_dict()),
            "attributes": self._attributes.changed(held),
            "threads": torch.get_num_threads(),
        }
        return held.tensors, state

    @staticmethod
    def _told(held: Encoder, state: Any, what: str) -> Any:
        try:
            return held.encode(state, what)
        except Unencodable as error:
            recorder.CALLS.exactness.refuse(causes.STATE_OF_TRIAL(what=what, kind=error.kind, path=error.path))
            return None

    def _told_in_parts(self, held: Encoder, state: dict[str, Any]) -> dict[str, Any]:
        """The state of a scheduler, without values that have no state and exist in each start, such as functions."""
        told = []
        for name, value in state.items():
            if not isinstance(value, _STATELESS):
                told.append([name, self._told(held, value, f"scheduler.{name}")])
        return {"dict": told}

    def restore(self, tensors: dict[str, numpy.ndarray], state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint.

        Raises:
            Refusal: the model or the optimizer differs from the recorded one.
        """
        try:
            self._restore(tensors, state)
        except (KeyError, RuntimeError, ValueError) as error:
            what = "\n  ".join(str(error).strip().splitlines()[:3])
            refusal = Refusal(
                "the replay differs from the record: the state of the checkpoint does not fit to the model, its optimizer or "
                f"its scheduler\n  {what}\n  the run was stopped; the checkpoint and the log are kept",
                "build the same model, or begin a new trial with `--fresh`",
            )
            refusal.exit_code = ExitCode.DIVERGED
            raise refusal from error

    def _restore(self, tensors: dict[str, numpy.ndarray], state: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(state["threads"])
        model = self._model
        model.load_state_dict(decode(state["model"], tensors))
        _set_buffers(model, decode(state["buffers"], tensors))
        frozen = set(state["frozen"])
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name not in frozen)
        _load_optimizer(self._optimizer, decode(state["optimizer"], tensors))
        if self._scheduler is not None:
            self._scheduler.load_state_dict({**self._scheduler.state_dict(), **decode(state["scheduler"], tensors)})
        self._attributes.restore(state["attributes"], tensors)


def _other_buffers(model: Any) -> dict[str, Any]:
    """The buffers that are not part of `state_dict`."""
    kept = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name not in kept}


def _set_buffers(model: Any, buffers: dict[str, Any]) -> None:
    modules = dict(model.named_modules())
    for name, value in buffers.items():
        owner, _, last = name.rpartition(".")
        there = modules[owner]._buffers[last]
        modules[owner]._buffers[last] = value.to(there.device) if there is not None else value


def _numbered(state: dict[str, Any]) -> dict[str, Any]:
    """The state of an optimizer, with parameters named by their order. Before torch 1.5 their addresses name them."""
    if not _is_as_torch_tells(state):
        return state
    numbers: dict[Any, int] = {}
    for group in state["param_groups"]:
        for name in group["params"]:
            numbers.setdefault(name, len(numbers))
    groups = [{**group, "params": [numbers[name] for name in group["params"]]} for group in state["param_groups"]]
    return {**state, "state": {numbers.get(name, name): value for name, value in state["state"].items()}, "param_groups": groups}


def _is_as_torch_tells(state: dict[str, Any]) -> bool:
    """Whether the state of an optimizer has torch's form; an optimizer of the user may have another."""
    return "state" in state and "param_groups" in state


def _load_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """`load_state_dict` converts all values to the type of their parameters; this restores their types."""
    optimizer.load_state_dict(state)
    if not _is_as_torch_tells(state):
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for number, parameter in zip(numbers, parameters):
        for name, value in state["state"].get(number, {}).items():
            there = optimizer.state[parameter].get(name)
            if hasattr(value, "dtype") and getattr(there, "dtype", None) != value.dtype:
                optimizer.state[parameter][name] = value.to(there.device)


# -- attributes --------------------------------------------------------------------------------------------------------


class _Attributes:
    """The attributes of a trial, of its modules and of the user's objects in it, as they were when training began."""

    def __init__(self, trial: Any, model: Any, known: Iterable[Any]) -> None:
        self._roots = [("trial", trial)]
        self._roots += [(f"module {name}".rstrip(), module) for name, module in model.named_modules()]
        self._known = {id(one) for one in [trial, *known, *model.modules()]}
        self._begun = {path: mark for path, _, _, mark, _ in self._each(Encoder())}

    def changed(self, held: Encoder) -> dict[str, Any]:
        """The JSON of the attributes that have changed since, by their paths; their tensors go to `held`."""
        found = {}
        for path, _, value, mark, told in self._each(held):
            if self._begun.get(path) == mark:
                continue
            if told is None:
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                recorder.CALLS.exactness.refuse(causes.CHANGED_IN_TRIAL(path=path, kind=kind))
            found[path] = told
        return found

    def restore(self, state: dict[str, Any], tensors: dict[str, numpy.ndarray]) -> None:
        """Restores the attributes."""
        for path, owner, there, _, _ in list(self._each(Encoder())):
            if path in state:
                _put(owner, path.rpartition(".")[2], there, decode(state.pop(path), tensors))
        owners = dict(self._roots)
        for path, told in state.items():
            # The attribute was created while the trial trained.
            root, _, name = path.rpartition(".")
            if root in owners:
                setattr(owners[root], name, decode(told, tensors))

    def _each(self, held: Encoder) -> Iterator[tuple[str, Any, Any, Any, Any]]:
        """`(path, owner, value, mark, JSON)` of each attribute; JSON is None if it cannot be kept."""
        waiting, seen = list(self._roots), set(self._known)
        for root, owner in waiting:
            for name, value in sorted(vars(owner).items()):
                path = f"{root}.{name}"
                if id(value) in seen or (name.startswith("_") and root.startswith("module")):
                    continue
                own = Encoder()
                try:
                    told = own.encode(_state_of(value), path)
                except Unencodable:
                    if places.is_user_module(type(value).__module__) and hasattr(value, "__dict__"):
                        seen.add(id(value))
                        waiting.append((path, value))
                        continue
                    yield path, owner, value, id(value), None
                    continue
                mark = repr(told), [zlib.crc32(array.tobytes()) for _, array in own.tensors]
                if self._is_changed(path, mark):
                    held.tensors.extend(own.tensors)
                yield path, owner, value, mark, told

    def _is_changed(self, path: str, mark: object) -> bool:
        begun = getattr(self, "_begun", None)
        return begun is not None and begun.get(path) != mark


def _state_of(value: Any) -> Any:
    """The value itself, or its `state_dict`."""
    has_state = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    return value.state_dict() if has_state and not isinstance(value, type) else value


def _put(owner: Any, name: str, there: Any, value: Any) -> None:
    """Gives an attribute a value: in place, if others may hold it too."""
    import numpy
    import torch

    if hasattr(there, "load_state_dict"):
        there.load_state_dict(value)
    elif isinstance(there, torch.Tensor) and isinstance(value, torch.Tensor) and _is_like(there, value):
        there.data.copy_(value)
    elif type(there) is numpy.ndarray and type(value) is numpy.ndarray and _is_like(there, value):
        there[...] = value
    elif isinstance(there, torch.Tensor) and isinstance(value, torch.Tensor):
        setattr(owner, name, value.to(there.device))
    else:
        setattr(owner, name, value)


def _is_like(there: Any, value: Any) -> bool:
    return there.shape == value.shape and there.dtype == value.dtype


# -- exports -----------------------------------------------------------------------------------------------------------


class ModelState:
    """What a checkpoint contains of a model, for exports (`py_hooks/verbs/export.py`).

    Args:
        model: a module of torch.
        name: name of the state provider that holds its tensors.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], list[dict[str, Any]]]:
        """No tensors; the names of the weights, and their names in the checkpoint."""
        import torch

        weights = [
            [name, f"{self._name}/model.{name}"]
            for name, value in self._model.state_dict().items()
            if isinstance(value, torch.Tensor)
        ]
        kind = type(self._model)
        model = {
            "number": 0,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "framework": "torch",
            "version": torch.__version__,
            "backend": "torch",
            "weights": weights,
            "architecture": None,
            "why_not": "a module of torch is Python code",
        }
        return [], [model]

    def restore(self, tensors: dict[str, numpy.ndarray], state: object) -> None:
        """Does nothing: the trial makes its model itself."""
