"""`tf_keras`: reports at the first training call of a model that nothing is intercepted.

Source: tf_keras 2.21.0, tf_keras/src/engine/training.py, `Model.fit` and `Model.train_on_batch`.
"""
from __future__ import annotations

import functools

from py_hooks.recording import forks, loops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.boot.process import _Process


def watch(process: _Process, module: Any) -> None:
    """`tf_keras.src.engine.training` was imported: reports the first training call of a model."""
    for name in ("fit", "train_on_batch"):
        setattr(module.Model, name, _telling(process, getattr(module.Model, name)))


def _telling(process: _Process, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        if process.trial.is_child:
            forks.trains(process.trial)
        else:
            loops.tell(process, "`tf_keras` is not intercepted", "run it without `--exact`, or train with `keras`")
        return original(*args, **kwargs)

    return train
