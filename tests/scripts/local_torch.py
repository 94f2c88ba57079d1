"""Tries a `PyTorchTrial` of each kind that stands in the script itself, by `pedl.local`."""
import numpy as np
import torch

import pedl
from pedl.frameworks.pytorch import DataLoader, LRScheduler, PyTorchTrial


def rows(count):
    x = torch.sin(torch.arange(count * 4.0)).reshape(count, 4)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def make_data_loaders(experiment_config, hparams):
    return DataLoader(rows(40), batch_size=8, shuffle=True, num_workers=hparams["workers"]), DataLoader(rows(16), batch_size=8)


class Base(PyTorchTrial):
    def build_model(self, hparams):
        return torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.1)


class Batches(Base):
    def build_model(self):
        return super().build_model(None)

    def create_lr_scheduler(self, optimizer):
        return LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5), step_every_epoch=True)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        assert epoch_idx == batch_idx // 5
        x, y = batch
        return {"loss": torch.nn.functional.mse_loss(model(x), y)}

    def evaluate_batch(self, batch, model):
        x, y = batch
        return {"loss": torch.nn.functional.mse_loss(model(x), y)}


class Losses(Base):
    def batch_size(self):
        return 8

    def losses(self, predictions, labels):
        return torch.nn.functional.mse_loss(predictions, labels)

    def validation_metrics(self, predictions, labels, losses):
        return {"loss": losses}


config = {"reproducibility": {"experiment_seed": 7}, "batches_per_step": 12}
for trial in (Batches, Losses):
    result = pedl.local(trial, {"workers": 2}, config)
    print("RESULT", sorted(result.training_metrics), len(result.batch_metrics), sorted(result.validation_metrics))
    saved = torch.load(result.checkpoint, weights_only=True)
    model = torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 1)).eval()
    model.load_state_dict(saved["model_state_dict"])
    x, y = rows(16).tensors
    measured = float(torch.nn.functional.mse_loss(model(x), y).detach())
    print("SAME LOSS", abs(measured - result.validation_metrics["loss"]) < 1e-5)
    print("RATE", saved["optimizer_state_dict"]["param_groups"][0]["lr"], sorted(saved))
    again = pedl.local(trial, {"workers": 0}, config)
    print("REPEATED", np.isclose(again.validation_metrics["loss"], result.validation_metrics["loss"], rtol=0))
