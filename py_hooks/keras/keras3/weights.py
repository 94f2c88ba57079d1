"""Keras 3: what the entry points ask about weights, devices and data (`sources.engine`)."""
from __future__ import annotations

import sys

from py_hooks import causes
from py_hooks.keras import sources
from py_hooks.keras.keras3 import torch
from py_hooks.keras.keras3.variables import VARIABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _distribution_of(model: Any) -> Any:
    """What spreads a training over devices: a strategy of TensorFlow, or a distribution of Keras on JAX; None without."""
    # A model has a strategy on TensorFlow only.
    strategy = getattr(model, "distribute_strategy", None)
    return sys.modules["keras"].distribution.distribution() if strategy is None else strategy


class Weights:
    """Answers for the entry points about weights, devices and sources: those of Keras 3."""

    sources = frozenset([sources.GENERATORS, sources.PIPELINES, sources.PROCESSES, sources.LOADERS])
    counts_steps = True
    trains_otherwise_without_workers = False

    def is_stale(self, weight: Any) -> bool:
        """Whether training changed the weight since Python last wrote it."""
        return VARIABLES.is_stale(weight)

    def values(self, model: Any, weights: list[Any]) -> list[Any]:
        """The values of weights of a model."""
        return [weight.numpy() for weight in weights]

    def steps_per_execution(self, model: Any) -> int:
        """How many batches a call of the model's training function takes."""
        return getattr(model, "steps_per_execution", None) or 1

    def is_intercepted(self) -> bool:
        """Whether there are compute functions, and they are intercepted."""
        return True

    def loaded(self, model: Any) -> None:
        """Notes that a model's weights now have values that only a file has."""
        VARIABLES.mark_stale(model.variables)

    def causes(self, model: Any) -> list[causes.Told]:
        """Causes in the devices why a model cannot be resumed exactly."""
        distribution = sources.distribution_causes(_distribution_of(model))
        if distribution:
            return distribution
        jax = sys.modules.get("jax")
        if jax is not None and sources.backend() == "jax" and jax.default_backend() != "cpu":
            return [causes.DEVICE(device=jax.default_backend())]
        if "tensorflow" in sys.modules and sources.backend() == "tensorflow":
            return sources.tensorflow_device_causes()
        if sources.backend() == "torch":
            return torch.causes_of(model)
        return []
