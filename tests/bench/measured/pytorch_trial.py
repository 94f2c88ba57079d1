"""A loop over a `DataLoader` of PyTorch."""
import pedl
import torch
from pedl.frameworks.pytorch import DataLoader, PyTorchTrial

from . import CLASSES, COLUMNS, HIDDEN, PARTS, ROWS, data, of_trial


def rows(batches):
    """The rows as a data set."""
    return torch.utils.data.TensorDataset(*map(torch.from_numpy, data(batches)))


def build():
    """The model."""
    layers = torch.nn.Linear(COLUMNS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU()
    return torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN, CLASSES))


class Trial(PyTorchTrial):
    """As `plain`."""

    def build_model(self, hparams):
        return build()

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), 0.01)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        inputs, labels = batch
        return {"loss": torch.nn.functional.cross_entropy(model(inputs), labels)}

    def evaluate_batch(self, batch, model):
        inputs, labels = batch
        return {"loss": torch.nn.functional.cross_entropy(model(inputs), labels)}

    def callbacks(self, hparams):
        return of_trial()


def make_data_loaders(experiment_config, hparams):
    return DataLoader(rows(pedl.get_hyperparameter("batches")), ROWS, shuffle=True), DataLoader(rows(1), ROWS)


def plain(parts):
    """The loop."""
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(rows(parts.batches), ROWS, shuffle=True)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(PARTS + 1):
        parts.begins()
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            loss.item()
        parts.ended()
