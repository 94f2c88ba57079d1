"""Its callbacks draw from torch's global generator after each step, as its data and its batches do meanwhile."""
import torch
from pedl.callback import Callback
from pedl.frameworks.pytorch import DataLoader, PyTorchTrial


class Rows(torch.utils.data.Dataset):
    """Rows that draw."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(2), torch.rand(1)


class Draws(Callback):
    """Prints whether all that is drawn between batches is one stream, whatever was trained."""

    def on_trial_begin(self):
        """Has a second generator that is where the global one is."""
        self._expected = torch.Generator()
        self._expected.set_state(torch.default_generator.get_state())

    def on_train_step_end(self, step_id, metrics):
        """After some batches."""
        self._draw("step", step_id)

    def on_validation_step_begin(self, step_id):
        """Before batches are validated."""
        self._draw("before validation", step_id)

    def on_validation_step_end(self, step_id, metrics):
        """After they were."""
        self._draw("validation", step_id)

    def _draw(self, *where):
        is_expected = torch.equal(torch.rand(3), torch.rand(3, generator=self._expected))
        print(*where, "as expected" if is_expected else "OTHERWISE", flush=True)


class Trial(PyTorchTrial):
    """A model with a layer that draws."""

    def build_model(self, hparams):
        """Rows of two."""
        return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(2, 1))

    def optimizer(self, model):
        """Plain."""
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch, model, epoch_idx, batch_idx):
        """The mean square."""
        return {"loss": ((model(batch[0]) - batch[1]) ** 2).mean()}

    def evaluate_batch(self, batch, model):
        """The same."""
        return {"error": ((model(batch[0]) - batch[1]) ** 2).mean()}

    def callbacks(self, hparams):
        """One."""
        return [Draws()]


def make_data_loaders(experiment_config, hparams):
    """Two batches each."""
    return DataLoader(Rows(), batch_size=4, shuffle=True), DataLoader(Rows(), batch_size=4)
