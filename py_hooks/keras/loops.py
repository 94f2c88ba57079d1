"""Keras 3: training loops of the script (`py_hooks/tensorflow/loops.py`).

Source: keras 3.15.1, keras/src/optimizers/base_optimizer.py: `apply_gradients` and `stateless_apply` call `apply`.
"""
from __future__ import annotations

from py_hooks.tensorflow.loops import step_of_optimizer


def _is_on_tensorflow() -> bool:
    from keras.src import backend

    return backend.backend() == "tensorflow"


applied = step_of_optimizer(_is_on_tensorflow)
applied.__doc__ = "`BaseOptimizer.apply` of Keras 3: a step of an optimizer, by Keras or by the script."
