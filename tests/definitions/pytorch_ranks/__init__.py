"""A trial that several ranks train. With `noise` each row, and each call of the model, draws random numbers."""
import hashlib
import io
import os
import signal
import time

import numpy as np
import pedl
import torch
from pedl.callback import Callback
from pedl.frameworks.pytorch import DataLoader, LRScheduler, PyTorchTrial

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
WITH_NOISE = pedl.get_hyperparameter("noise")


def note(text):
    """Writes a line where checkpoints know nothing of it."""
    with io.FileIO(os.environ["NOTES"], "a") as file:
        file.write((text + "\n").encode())


def die():
    """Dies, once all ranks have a checkpoint to go on from: checkpoints are written while they train."""
    trials = os.environ["TRIALS"].split(os.pathsep)
    while not all(os.path.lexists(os.path.join(trial, "latest")) for trial in trials):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


class Rows(torch.utils.data.Dataset):
    """52 rows."""

    def __len__(self):
        return 52

    def __getitem__(self, index):
        note(f"row {RANK} {index}")
        row = torch.sin(index * torch.tensor([1.0, 2.0, 3.0]))
        if WITH_NOISE:
            row = row + 0.1 * torch.rand(3) + 0.1 * np.random.rand()
        return row, int(row.sum() > 0)


class Stream(torch.utils.data.IterableDataset):
    """No indices."""

    def __iter__(self):
        return iter([])


def make_data_loaders(experiment_config, hparams):
    """Batches which together have the size that the hyperparameter says."""
    size = hparams["global_batch_size"] // SIZE
    if hparams.get("wrong") == "stream":
        return DataLoader(Stream(), batch_size=size), DataLoader(Rows(), batch_size=size)
    generator = torch.Generator().manual_seed(RANK) if hparams.get("wrong") == "order" else None
    return DataLoader(Rows(), batch_size=size, shuffle=True, generator=generator), DataLoader(Rows(), batch_size=20)


class Ending(Callback):
    """Prints the hash of all that was learned."""

    def __init__(self, trial):
        self.trial = trial

    def on_validation_step_end(self, step_id, metrics):
        """At the end."""
        if step_id == 4:
            digest = hashlib.sha256()
            for value in self.trial.model.state_dict().values():
                digest.update(value.numpy().tobytes())
            digest.update(repr(sorted(metrics.items())).encode())
            print("weights", digest.hexdigest())


class RanksTrial(PyTorchTrial):
    """With buffers, momentum and a schedule."""

    def __init__(self, hparams):
        self.hparams = hparams
        self.seen = 0

    def callbacks(self, hparams):
        """One."""
        return [Ending(self)]

    def build_model(self):
        """With noise it draws, and normalizes by its batches."""
        layers = [torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3)] if WITH_NOISE else []
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 8), *layers, torch.nn.Tanh(), torch.nn.Linear(8, 2))
        return self.model

    def optimizer(self, model):
        """With momentum."""
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def create_lr_scheduler(self, optimizer):
        """By epochs."""
        return LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9), step_every_epoch=True)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        """The loss of this rank's share."""
        note(f"batch {RANK} {batch_idx}")
        if self.hparams.get("wrong") == "model":
            model = self.model
        if self.hparams.get("wrong") == f"raises {RANK} {batch_idx}":
            raise RuntimeError("the connection to the database is lost")
        rows, labels = batch
        self.seen += len(rows)
        if os.environ.get("KILL") == f"{RANK} {batch_idx}":
            die()
        return {"loss": torch.nn.functional.cross_entropy(model(rows), labels), "seen": self.seen}

    def evaluate_batch(self, batch, model):
        """The loss of validation data."""
        note(f"validated {RANK}")
        rows, labels = batch
        return {"error": torch.nn.functional.cross_entropy(model(rows), labels)}
