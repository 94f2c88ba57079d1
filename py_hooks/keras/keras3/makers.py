"""Keras 3: `make_train_function` and its siblings, which set a function on the model; it is wrapped here.

Source: keras 3.15.1, keras/src/backend/jax/trainer.py, tensorflow/trainer.py and torch/trainer.py.
"""
from __future__ import annotations

from py_hooks.engine.patch import binding
from py_hooks.keras.functions import ModelFunction
from py_hooks.keras.keras3.jax import JaxFunction
from py_hooks.keras.keras3.tensorflow import TensorFlowFunction
from py_hooks.keras.keras3.torch import TorchFunction
from py_hooks.recording import call_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FUNCTIONS = {"jax": JaxFunction, "tensorflow": TensorFlowFunction, "torch": TorchFunction}


def _maker(name: str, attribute: str, kind: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    @binding
    def advice(original: Callable[..., Any]) -> Callable[..., Any]:
        def make(model: Any, force: bool = False) -> ModelFunction:
            function = getattr(model, attribute, None)
            if isinstance(function, ModelFunction) and not force:
                return function
            original(model, force=force)
            return _wrapped(model, attribute, kind)

        return make

    advice.__name__ = name
    advice.__doc__ = f"`Model.{name}`: wraps what it sets."
    return advice


def _wrapped(model: Any, attribute: str, kind: int) -> ModelFunction:
    from keras.src import backend

    function = getattr(model, attribute)
    if not isinstance(function, ModelFunction):
        function = _FUNCTIONS[backend.backend()](model, kind, function)
        setattr(model, attribute, function)
    return function


make_train_function = _maker("make_train_function", "train_function", call_kinds.TRAIN)
make_test_function = _maker("make_test_function", "test_function", call_kinds.TEST)
make_predict_function = _maker("make_predict_function", "predict_function", call_kinds.PREDICT)
