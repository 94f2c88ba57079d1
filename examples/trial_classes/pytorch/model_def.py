"""Tells kinds of signals apart: a `PyTorchTrial`.

    pedl-run --config const.yaml .              # 12 steps of 25 batches; accuracy comes to more than 0.9
    pedl checkpoint export .pedl/pytorch --output signals.pt

It shows a loader with worker processes that draw random numbers, a scheduler of the learning rate, and gradients that are
clipped (the hyperparameter `clip_grad_l2_norm`). Kill it at any moment and run the same command again: it ends with the same
weights. `torch.load("signals.pt", weights_only=True)["model_state_dict"]` is for `load_state_dict` of `network.Network`.
"""

import torch
from pedl.frameworks.pytorch import DataLoader, LRScheduler, PyTorchTrial, reset_parameters

from .data import KINDS, Signals
from .network import Network


def make_data_loaders(experiment_config, hparams):
    """Signals to train on, recorded by worker processes, and signals to validate on."""
    data = experiment_config["data"]
    training = Signals(data["num_training"], data["noise"], seed=1, is_augmented=True)
    validation = Signals(data["num_validation"], data["noise"], seed=2, is_augmented=False)
    return (
        DataLoader(training, batch_size=hparams["batch_size"], shuffle=True, num_workers=data["workers"]),
        DataLoader(validation, batch_size=100),
    )


class SignalsTrial(PyTorchTrial):
    """A small convolutional network."""

    def __init__(self, hparams):
        self.hparams = hparams

    def build_model(self):
        network = Network(len(KINDS), self.hparams["dropout"])
        reset_parameters(network)
        return network

    def optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.hparams["learning_rate"])

    def create_lr_scheduler(self, optimizer):
        return LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7), step_every_epoch=True)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        signals, labels = batch
        scores = model(signals)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        return {"loss": loss, "train_accuracy": accuracy(scores, labels)}

    def evaluate_batch(self, batch, model):
        signals, labels = batch
        return {"accuracy": accuracy(model(signals), labels)}


def accuracy(scores, labels):
    """Which part of the labels has the highest score."""
    return (scores.argmax(1) == labels).float().mean()
