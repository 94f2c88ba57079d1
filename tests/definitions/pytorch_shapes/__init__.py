"""Batches of every nesting: what the model is given, and what the losses are (rules D6 to D8)."""
import numpy as np
import pedl
import torch
from pedl.frameworks.pytorch import DataLoader, PyTorchTrial

SHAPE = pedl.get_hyperparameter("shape")


def nested(make):
    """What the hyperparameter names, made of `make()`."""
    return {
        "array": lambda: make().numpy(),
        "tensor": make,
        "tuple": lambda: (make(), make().numpy()),
        "list": lambda: [make(), make().numpy()],
        "dict": lambda: {"a": make(), "b": make().numpy()},
        "nested": lambda: {"a": [{"b": make()}, {"c": make().numpy()}], "d": (make(), [make()], {"e": make().numpy()})},
    }[SHAPE]()


def kinds_of(value):
    """The nesting, with the class of each leaf."""
    if isinstance(value, dict):
        return {name: kinds_of(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(kinds_of, value))
    return type(value).__name__


def as_tensors(value):
    """What `kinds_of` has of a batch that is on the device."""
    if isinstance(value, dict):
        return {name: as_tensors(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_tensors, value))
    return "Tensor"


def leaves(value):
    """All tensors."""
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(leaves, value), []) if isinstance(value, (list, tuple)) else [value]


class Rows(torch.utils.data.Dataset):
    """Numbers."""

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.full((2,), float(index))


def collate(rows):
    """A pair of nested input and nested target."""
    batch = torch.stack(rows)
    return nested(lambda: batch.clone()), nested(lambda: batch[:, :1].clone())


def make_data_loaders(experiment_config, hparams):
    """Two of them."""
    return [DataLoader(Rows(), batch_size=4, collate_fn=collate, num_workers=hparams["workers"]) for _ in range(2)]


class Net(torch.nn.Module):
    """Takes whatever the loader gives."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, given):
        """As many predictions as there are tensors."""
        assert kinds_of(given) == as_tensors(given), kinds_of(given)
        return {"predicted": [self.linear(one) for one in leaves(given)]}


class ShapesTrial(PyTorchTrial):
    """The loss is a scalar."""

    def build_model(self, hparams):
        """A linear one."""
        return Net()

    def optimizer(self, model):
        """A small rate."""
        return torch.optim.SGD(model.parameters(), lr=1e-4)

    def batch_size(self):
        """Not that of the loader."""
        return 5

    def losses(self, predictions, labels):
        """Of all of them."""
        assert list(predictions) == ["predicted"]
        pairs = list(zip(predictions["predicted"], leaves(labels)))
        assert len(pairs) == {"array": 1, "tensor": 1, "nested": 5}.get(SHAPE, 2)
        return sum(((one - label) ** 2).mean() for one, label in pairs)

    def validation_metrics(self, predictions, labels, losses):
        """The first of them, which is no scalar, and the loss."""
        return {"first": predictions["predicted"][0], "error": losses, "numpy": np.float32(1)}
