"""Replaces `py_hooks/torch/trials.py` for one step without the host, for the loop of a `PyTorchTrial`.

Batches come directly from the loaders, and random numbers from the process.
"""
import contextlib
import importlib

from pedl._trials.local import One


class Training:
    """See `py_hooks/torch/trials.py`.

    Attributes:
        ranks: one process.
    """

    def __init__(self):
        self.ranks = _One()

    def compare(self, described):
        pass

    def causes(self):
        return []

    def provide(self, trial, model, optimizer, scheduler, others):
        pass

    def alone(self, *_key):
        return contextlib.nullcontext()

    def of_batch(self, _number):
        return _Drawing()

    def passes(self, loader, is_shared=False):
        return _Passes(loader)


class _Drawing:
    """A batch draws from the generators of the process (`BatchDrawing` of `py_hooks/torch/generator.py`)."""

    def __enter__(self):
        return self

    def compute(self):
        pass

    def __exit__(self, *_exception):
        pass


class _One(One):
    """One process (`py_hooks/torch/ranks.py`)."""

    def wrapped(self, model, _device):
        return model

    def device(self):
        torch = importlib.import_module("torch")
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def compare_resumption(self):
        pass

    def level(self, _model, _wrapped, measured):
        return measured

    def share(self, live):
        return live()


class _Passes:
    """The passes over a `DataLoader`.

    Attributes:
        loader: the user's loader.
        length: the number of batches in a pass; None if that is not known.
    """

    def __init__(self, loader):
        self.loader = loader
        try:
            self.length = len(loader)
        except TypeError:
            self.length = None

    def begin(self):
        return iter(self.loader)

    def end(self):
        pass

    def close(self):
        pass
