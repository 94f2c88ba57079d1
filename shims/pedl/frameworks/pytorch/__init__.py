"""The trial class, data loader and scheduler for models of PyTorch."""
from pedl.frameworks.pytorch import data as data
from pedl.frameworks.pytorch import util as util
from pedl.frameworks.pytorch.lr_scheduler import LRScheduler as LRScheduler
from pedl.frameworks.pytorch.pytorch_trial import PyTorchTrial as PyTorchTrial
from pedl.frameworks.pytorch.pytorch_trial import reset_parameters as reset_parameters


def __getattr__(name):
    """`DataLoader`, which is made at its first use, because its base is torch's."""
    if name == "DataLoader":
        return data.DataLoader
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
