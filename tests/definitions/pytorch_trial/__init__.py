"""Small trials of PyTorch; hyperparameters say which, and how. At its end each prints the hash of its weights."""
import atexit
import hashlib
import inspect
import io
import os
import random
import signal
import time

import numpy as np
import pedl
import torch
from pedl.callback import Callback
from pedl.frameworks.pytorch import DataLoader, LRScheduler, PyTorchTrial, reset_parameters
from pedl.frameworks.pytorch.util import error_rate

ROWS, SIZE = 52, 8
HPARAMS = {
    "trial": "batches", "workers": 0, "scheduler": "epoch", "optimizer": "adam", "loaders": "ours", "shape": "pair",
    "dataset": "rows", "downloads": "no", "clip_grad_l2_norm": None, "clip_grad_val": None,
    "draws": "no",
}  # fmt: skip


def given(name):
    """A hyperparameter, or its default."""
    try:
        return pedl.get_hyperparameter(name)
    except pedl.HyperparameterNotFound:
        return HPARAMS[name]


def note(text):
    """Writes a line where checkpoints know nothing of it."""
    if "NOTES" in os.environ:
        with io.FileIO(os.environ["NOTES"], "a") as file:
            file.write((text + "\n").encode())


def hold(moment):
    """Waits to be killed where that is asked for."""
    if os.environ.get("HOLD") == str(moment):
        note(f"holds {moment}")
        signal.pause()


atexit.register(hold, "exit")


class Rows(torch.utils.data.Dataset):
    """Rows with noise of all three generators, and what of them is asked for."""

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return ROWS if self.kind == "training" else 20

    def __getitem__(self, index):
        if self.kind == "training":
            note(f"row {os.getpid()}")
        noise = torch.rand(3) * 0.1 + np.random.rand() * 0.1 + random.random() * 0.1
        row = torch.sin(index * torch.tensor([1.0, 2.0, 3.0])) + noise
        return row, int(row.sum() > 0)


class Stream(torch.utils.data.IterableDataset):
    """The same without indices."""

    def __iter__(self):
        for index in range(ROWS):
            yield Rows("stream")[index]


def _download_data(experiment_config, hparams):
    """Makes a directory."""
    note(f"download {random.random()}")
    assert experiment_config["searcher"]["name"] == "single"
    if given("downloads") == "nothing":
        return None
    directory = os.path.abspath("downloaded")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "scale.txt"), "w") as file:
        file.write("0.5")
    with open(os.path.join(directory, "scale.txt")) as file:
        assert file.read() == "0.5"
    return directory


if given("downloads") != "no":
    download_data = _download_data


def make_data_loaders(experiment_config, hparams):
    """As the hyperparameters have it."""
    assert experiment_config["searcher"]["name"] == "single"
    note("loaders")
    if given("downloads") == "some":
        with open(os.path.join(pedl.get_download_data_dir(), "scale.txt")) as file:
            assert file.read() == "0.5"
    kind = torch.utils.data.DataLoader if given("loaders") == "torch" else DataLoader
    if given("dataset") == "stream":
        return kind(Stream(), batch_size=SIZE), kind(Rows("validation"), batch_size=SIZE)
    workers = given("workers")
    training = kind(Rows("training"), batch_size=SIZE, shuffle=True, num_workers=workers)
    return training, kind(Rows("validation"), batch_size=SIZE, num_workers=workers)


class Noting(Callback):
    """Writes down what it is told, in a file of the script's."""

    def __init__(self, trial):
        self.trial = trial
        self.file = open("callbacks.txt", "w")

    def write(self, text):
        """A line."""
        self.file.write(text + "\n")
        self.file.flush()

    def on_trial_begin(self):
        """C4."""
        self.write("trial")

    def on_train_step_end(self, step_id, metrics):
        """C6."""
        self.write(f"end {step_id} {len(metrics)} {sorted(metrics[-1])} {metrics[-1]['loss']:.9f}")

    def on_validation_step_end(self, step_id, metrics):
        """C8."""
        self.write(f"validated {step_id} {sorted((name, np.asarray(value).tolist()) for name, value in metrics.items())}")
        if step_id == 5:
            print("weights", hash_of(self.trial))


class Net(torch.nn.Module):
    """Dropout and normalization, and a state that is no parameter."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
        )
        # Before torch 1.6 all buffers are part of `state_dict`.
        is_told = "persistent" in inspect.signature(self.register_buffer).parameters
        self.register_buffer("seen", torch.zeros(1), **({"persistent": False} if is_told else {}))
        self.calls = 0

    def forward(self, rows):
        """Scores of two classes."""
        if self.training:
            self.calls += 1
            self.seen += 1
            hold(self.calls)
            time.sleep(float(os.environ.get("PAUSE", "0")))
        return self.layers(rows) * (1 + 0.001 * self.calls + 0.001 * self.seen)


class Meter:
    """An object of the trial's that remembers."""

    def __init__(self):
        self.total = 0.0
        self.last = None


class OwnState(torch.optim.SGD):
    """An optimizer that tells its state in a way of its own."""

    def _each(self):
        return [self.state[parameter] for group in self.param_groups for parameter in group["params"]]

    def state_dict(self):
        """The momenta."""
        return {"momenta": [state["momentum_buffer"] for state in self._each()]}

    def load_state_dict(self, state):
        """As `state_dict` told it."""
        for own, momentum in zip(self._each(), state["momenta"]):
            own["momentum_buffer"] = momentum


class _Base(PyTorchTrial):
    def callbacks(self, hparams):
        """What happens."""
        return [Noting(self)]

    def optimizer(self, model):
        """As the hyperparameter has it."""
        self.model = model
        kinds = {
            "adam": lambda: torch.optim.Adam(model.parameters(), lr=0.01),
            "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            "own": lambda: OwnState(model.parameters(), lr=0.05, momentum=0.9),
        }
        return kinds[given("optimizer")]()

    def create_lr_scheduler(self, optimizer):
        """As the hyperparameter has it."""
        of = torch.optim.lr_scheduler
        kind = given("scheduler")
        if kind == "none":
            return None
        if kind == "bare":
            return of.StepLR(optimizer, 1)
        if kind == "epoch":
            return LRScheduler(of.MultiStepLR(optimizer, [1, 3], gamma=0.5), step_every_epoch=True)
        if kind == "batch":
            return LRScheduler(of.OneCycleLR(optimizer, max_lr=0.05, total_steps=100), step_every_batch=True)
        self.scheduler = LRScheduler(of.ReduceLROnPlateau(optimizer, patience=1), LRScheduler.StepMode.MANUAL_STEP)
        return self.scheduler


def hash_of(trial):
    """The hash of the weights, and of all else that has to be the same."""
    digest = hashlib.sha256()
    for _, value in sorted(trial.model.state_dict().items()):
        digest.update(value.numpy().tobytes())
    digest.update(repr((trial.model.calls, trial.model.seen, torch.rand(3), np.random.rand())).encode())
    return digest.hexdigest()


class BatchesTrial(_Base):
    """`train_batch` and `evaluate_batch`."""

    def __init__(self, hparams):
        self.meter = Meter()
        self.rng = np.random.RandomState(3)
        self.history = []

    def build_model(self):
        """Built anew under the trial's seed."""
        model = Net()
        reset_parameters(model)
        return model

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        """The loss, weighted by what the trial remembers."""
        rows, labels = batch
        assert epoch_idx == batch_idx // 7, (epoch_idx, batch_idx)
        loss = torch.nn.functional.cross_entropy(model(rows), labels)
        loss = loss * (1 + 0.1 * self.rng.rand()) + 0.001 * self.meter.total
        if given("draws") == "globally":
            loss = loss * (1 + 0.1 * random.random() + 0.1 * np.random.rand())
        self.meter.total += float(loss.detach())
        self.meter.last = loss
        self.history.append(batch_idx)
        if given("scheduler") == "manual" and batch_idx % 3 == 2:
            self.scheduler.step(float(loss.detach()))
        note(f"batch {batch_idx}")
        return {"loss": loss, "seen": np.float32(self.meter.total), "rows": rows.mean(0)}

    def evaluate_batch(self, batch, model):
        """A scalar, what has a mean, and what has none."""
        rows, labels = batch
        scores = model(rows)
        assert not model.training
        return {"error": error_rate(scores, labels), "mean": scores.mean(0), "scores": scores}


class FullTrial(BatchesTrial):
    """`evaluate_full_dataset`."""

    evaluate_batch = PyTorchTrial.evaluate_batch

    def evaluate_full_dataset(self, data_loader, model):
        """Over all batches, twice."""
        errors = [float(error_rate(model(rows), labels)) for _ in range(2) for rows, labels in data_loader]
        assert len(errors) == 2 * len(data_loader) == 6
        return {"error": sum(errors) / len(errors)}


class LossesTrial(_Base):
    """`losses` and metrics of predictions, with batches of any nesting."""

    def build_model(self, hparams):
        """Takes what the loader gives as input."""
        assert hparams["trial"] == "losses"
        return Net()

    def batch_size(self):
        """As the loader's."""
        return SIZE

    def losses(self, predictions, labels):
        """Two."""
        loss = torch.nn.functional.cross_entropy(predictions, labels)
        return {"loss": loss, "half": loss / 2}

    def training_metrics(self, predictions, labels, losses):
        """One."""
        assert set(losses) == {"loss", "half"}
        return {"train_error": error_rate(predictions, labels)}

    def validation_metrics(self, predictions, labels, losses):
        """A scalar and an array."""
        return {"error": error_rate(predictions, labels), "mean": predictions.mean(0), "of_losses": losses["loss"]}


# What `entrypoint` names.
Chosen = {"batches": BatchesTrial, "full": FullTrial, "losses": LossesTrial}[given("trial")]
