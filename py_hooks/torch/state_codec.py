"""What `state_dict` gives, as JSON and tensors, without pickle: a checkpoint is read by nothing that runs code.

    held = Encoder()
    text = held.encode({"lr": 0.1, "exp_avg": tensor}, "optimizer")   # JSON; the tensors are in `held.tensors`
    decode(text, dict(held.tensors))                                  # equal, and of the same types

Numbers, texts and lists represent themselves; everything else is an object with one member, which names its kind.
"""
from __future__ import annotations

import collections
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    import numpy

_PLAIN = (type(None), bool, int, str)


class Unencodable(Exception):
    """A value that cannot be kept.

    Args:
        path: where it is.
        value: the value.
    """

    def __init__(self, path: str, value: object) -> None:
        super().__init__(path)
        self.path = path
        self.kind = f"{type(value).__module__}.{type(value).__qualname__}"


class Encoder:
    """Encodes values, and collects the tensors in them.

    Attributes:
        tensors: `(name, array)` of all tensors so far.
    """

    def __init__(self) -> None:
        self.tensors: list[tuple[str, numpy.ndarray]] = []

    def encode(self, value: Any, path: str) -> Any:
        """The JSON of a value.

        Args:
            value: what is kept.
            path: where it is; its tensors get this name.

        Raises:
            Unencodable: it is, or holds, something that cannot be kept.
        """
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        encode = _ENCODERS.get(kind)
        if encode is not None:
            return encode(self, value, path)
        return self._of_library(value, path)

    def _of_library(self, value: Any, path: str) -> dict[str, Any]:
        import numpy
        import torch

        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if type(value) is torch.Size:
            return {"size": list(value)}
        if type(value) is torch.dtype:
            return {"dtype": str(value).rpartition(".")[2]}
        if type(value) is torch.device:
            return {"device": str(value)}
        if type(value) is numpy.ndarray and value.dtype.kind in "biufc":
            self.tensors.append((path, value))
            return {"array": path}
        if isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
            self.tensors.append((path, numpy.asarray(value)))
            return {"scalar": path}
        raise Unencodable(path, value)

    def _tensor(self, tensor: Any, path: str) -> dict[str, Any]:
        import torch

        if tensor.layout is not torch.strided or tensor.is_quantized or getattr(tensor, "is_meta", False):
            raise Unencodable(path, tensor)
        told = {"tensor": path, "dtype": str(tensor.dtype).rpartition(".")[2]}
        self.tensors.append((path, _bits_of(tensor.detach().cpu())))
        return told

    def _elements(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.encode(value, f"{path}.{place}") for place, value in enumerate(values)]

    def _pairs(self, values: dict[Any, Any], path: str) -> list[list[Any]]:
        return [[self.encode(key, path), self.encode(value, f"{path}.{key}")] for key, value in values.items()]


def _bits_of(tensor: Any) -> numpy.ndarray:
    """A tensor on the CPU as an array; for a type that NumPy lacks, an array of its bits."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    try:
        return tensor.numpy()
    except TypeError:
        width = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        try:
            return tensor.contiguous().view(width).numpy()
        except TypeError:
            # Before torch 1.7 the bits cannot be read; the only such type is bfloat16, each number of which is a float32.
            return tensor.float().numpy()


# Only these exact types: a subclass may hold more.
_ENCODERS: dict[type, Callable[[Encoder, Any, str], Any]] = {
    list: lambda held, value, path: held._elements(value, path),
    tuple: lambda held, value, path: {"tuple": held._elements(value, path)},
    dict: lambda held, value, path: {"dict": held._pairs(value, path)},
    collections.OrderedDict: lambda held, value, path: {"ordered": held._pairs(value, path)},
    collections.Counter: lambda held, value, path: {"counter": held._pairs(value, path)},
    collections.deque: lambda held, value, path: {"deque": held._elements(value, path), "longest": value.maxlen},
    complex: lambda held, value, path: {"complex": held._elements((value.real, value.imag), path)},
}


def decode(told: Any, tensors: dict[str, numpy.ndarray]) -> Any:
    """The value that was encoded.

    Args:
        told: its JSON.
        tensors: arrays by their names.
    """
    if isinstance(told, list):
        return [decode(one, tensors) for one in told]
    if not isinstance(told, dict):
        return told
    kind = next(kind for kind in _DECODERS if kind in told)
    return _DECODERS[kind](told, tensors)


def _pairs_of(told: list[list[Any]], tensors: dict[str, numpy.ndarray]) -> list[tuple[Any, Any]]:
    return [(decode(key, tensors), decode(value, tensors)) for key, value in told]


def _tensor_of(told: dict[str, Any], tensors: dict[str, numpy.ndarray]) -> Any:
    import torch

    dtype = getattr(torch, told["dtype"])
    tensor = torch.from_numpy(tensors[told["tensor"]].copy())
    if told["dtype"].startswith("complex"):
        return torch.view_as_complex(tensor)
    if tensor.dtype is dtype:
        return tensor
    return tensor.to(dtype) if tensor.dtype is torch.float32 else tensor.view(dtype)


def _of_torch(name: str) -> Any:
    import torch

    return getattr(torch, name)


_DECODERS: dict[str, Callable[[dict[str, Any], dict[str, numpy.ndarray]], Any]] = {
    "tensor": _tensor_of,
    "dict": lambda told, tensors: dict(_pairs_of(told["dict"], tensors)),
    "ordered": lambda told, tensors: collections.OrderedDict(_pairs_of(told["ordered"], tensors)),
    "counter": lambda told, tensors: collections.Counter(dict(_pairs_of(told["counter"], tensors))),
    "tuple": lambda told, tensors: tuple(decode(told["tuple"], tensors)),
    "deque": lambda told, tensors: collections.deque(decode(told["deque"], tensors), told["longest"]),
    "float": lambda told, tensors: float(told["float"]),
    "complex": lambda told, tensors: complex(*decode(told["complex"], tensors)),
    "size": lambda told, tensors: _of_torch("Size")(told["size"]),
    "dtype": lambda told, tensors: _of_torch(told["dtype"]),
    "device": lambda told, tensors: _of_torch("device")(told["device"]),
    "array": lambda told, tensors: tensors[told["array"]].copy(),
    "scalar": lambda told, tensors: tensors[told["scalar"]][()],
}
