"""Replaces `py_hooks/torch/trials.py` for one step without the host, for the loop of a `PyTorchTrial`.

Batches come directly from the loaders, and random numbers from the process.
"""
from __future__ import annotations

import contextlib
import importlib

from pedl._local.one_process import OneProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any


class Training:
    """See `py_hooks/torch/trials.py`.

    Attributes:
        ranks: one process.
    """

    def __init__(self) -> None:
        self.ranks = _OneProcess()

    def compare(self, described: dict[str, str]) -> None:
        pass

    def causes(self) -> list[Any]:
        return []

    def provide(self, trial: Any, model: Any, optimizer: Any, scheduler: Any, others: Any) -> None:
        pass

    def alone(self, *_key: object) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def of_batch(self, _number: int) -> _Drawing:
        return _Drawing()

    def passes(self, loader: Any, is_shared: bool = False) -> _Passes:
        return _Passes(loader)


class _Drawing:
    """A batch draws from the generators of the process (`BatchDrawing` of `py_hooks/torch/generator.py`)."""

    def __enter__(self) -> _Drawing:
        return self

    def compute(self) -> None:
        pass

    def __exit__(self, *_exception: Any) -> None:
        pass


class _OneProcess(OneProcess):
    """One process (`py_hooks/torch/ranks.py`)."""

    def wrapped(self, model: Any, _device: Any) -> Any:
        return model

    def device(self) -> Any:
        torch = importlib.import_module("torch")
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def compare_resumption(self) -> None:
        pass

    def level(self, _model: Any, _wrapped: Any, measured: dict[str, Any]) -> dict[str, Any]:
        return measured

    def share(self, live: Callable[[], Any]) -> Any:
        return live()


class _Passes:
    """The passes over a `DataLoader`.

    Attributes:
        loader: the user's loader.
        length: the number of batches in a pass; None if that is not known.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        try:
            self.length: int | None = len(loader)
        except TypeError:
            self.length = None

    def begin(self) -> Iterator[Any]:
        return iter(self.loader)

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass
