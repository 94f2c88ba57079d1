"""The trial class, data loader and scheduler for models of PyTorch."""
from __future__ import annotations

from pedl.frameworks.pytorch import data as data
from pedl.frameworks.pytorch import util as util
from pedl.frameworks.pytorch.lr_scheduler import LRScheduler as LRScheduler
from pedl.frameworks.pytorch.pytorch_trial import PyTorchTrial as PyTorchTrial
from pedl.frameworks.pytorch.pytorch_trial import reset_parameters as reset_parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pedl.frameworks.pytorch.data import DataLoader as DataLoader


def __getattr__(name: str) -> Any:
    """`DataLoader`, which is made at its first use, because its base is torch's."""
    if name == "DataLoader":
        return data.DataLoader
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
