"""Classes and functions that are not what they have to be; the hyperparameter `wrong` says how."""
import pedl
import torch
from pedl.frameworks.pytorch import DataLoader, LRScheduler, PyTorchTrial

WRONG = pedl.get_hyperparameter("wrong")


def make_data_loaders(experiment_config, hparams):
    """A pair, or what is none."""
    data = torch.utils.data.TensorDataset(torch.rand(8, 2), torch.rand(8, 1))
    kind = torch.utils.data.DataLoader if WRONG == "loader" else DataLoader
    return kind(data, batch_size=4), kind(data, batch_size=4)


class _Base(PyTorchTrial):
    def build_model(self):
        return None if WRONG == "model" else torch.nn.Linear(2, 1)

    def optimizer(self, model):
        return "adam" if WRONG == "optimizer" else torch.optim.SGD(model.parameters(), lr=0.1)

    def create_lr_scheduler(self, optimizer):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        return scheduler if WRONG == "scheduler" else LRScheduler(scheduler, step_every_epoch=True)


def difference(batch, model):
    """Of each row."""
    return (model(batch[0]) - batch[1]) ** 2


class Good(_Base):
    """Nothing is wrong with it but what the hyperparameter says."""

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        """A loss, or what is none."""
        loss = difference(batch, model)
        return {
            "no loss": lambda: {"mse": loss.mean()},
            "no scalar": lambda: {"loss": loss},
            "number": lambda: {"loss": 1.0},
            "detached": lambda: {"loss": loss.mean().detach()},
            "None": lambda: {"loss": loss.mean(), "other": None},
            "names": lambda: {"loss": loss.mean(), f"other {batch_idx}": 1},
        }.get(WRONG, loss.mean)()

    def evaluate_batch(self, batch, model):
        """A metric, or none."""
        return 0.5 if WRONG == "evaluated" else {"error": difference(batch, model).mean()}


class Mixed(Good):
    """Of both kinds."""

    def losses(self, predictions, labels):
        """One too many."""


class Both(Good):
    """Two ways to validate."""

    def evaluate_full_dataset(self, data_loader, model):
        """One too many."""


class Neither(_Base):
    """No way to validate."""

    train_batch = Good.train_batch


class Empty(_Base):
    """Only what both kinds have."""


class Half(_Base):
    """`losses` alone."""

    def losses(self, predictions, labels):
        """A loss."""


Chosen = {"mixed": Mixed, "both": Both, "neither": Neither, "empty": Empty, "half": Half}.get(WRONG, Good)
