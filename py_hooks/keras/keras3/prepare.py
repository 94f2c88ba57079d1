"""Wires Keras 3: the only place that knows all of its parts.

After the rows of the generation were installed, `prepare` has the variables kept in checkpoints, and tells the entry points,
the models' descriptions and the trial's plan how Keras 3 answers them.
"""
from __future__ import annotations

from py_hooks.keras import models, plan, sources
from py_hooks.keras.keras3 import torch
from py_hooks.keras.keras3.variables import VARIABLES
from py_hooks.keras.keras3.weights import Weights
from py_hooks.keras.validation import EagerValidation
from py_hooks.tensorflow.variables.resource_variables import RESOURCE_VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from py_hooks.recording.recorder import Calls


def prepare(calls: Calls) -> None:
    """Has the variables kept in checkpoints, and makes fits follow the trial's plan."""
    from keras.src import backend

    calls.checkpoints.keep("keras", VARIABLES)
    RESOURCE_VARIABLES.wrapped_by(VARIABLES)
    sources.use(Weights())
    models.prepare(calls, VARIABLES.key_of)
    plan.prepare(calls, EagerValidation())
    if backend.backend() == "torch":
        torch.prepare(calls)
