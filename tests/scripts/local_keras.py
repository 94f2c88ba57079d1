"""Tries a `KerasTrial` that stands in the script itself, by `pedl.local`; `KIND` says in what it differs."""
import os

import keras
import numpy as np

import pedl
from pedl.callback import Callback
from pedl.frameworks.keras import KerasTrial
from pedl.frameworks.keras.data import InMemorySequence

KIND = os.environ.get("KIND")


def make_data_loaders(experiment_config, hparams):
    print("LOADERS", experiment_config["data"], sorted(hparams.items()), pedl.get_trial_id())
    x = np.sin(np.arange(120.0)).reshape(40, 3).astype("float32")
    y = x.sum(1, keepdims=True)
    training = InMemorySequence(x, y, batch_size=8)
    return training if KIND == "one" else (training, InMemorySequence(x[:16], y[:16], batch_size=8))


class Noting(Callback):
    def on_train_step_begin(self, step_id):
        print("begin", step_id)

    def on_train_step_end(self, step_id, metrics):
        print("end", step_id, len(metrics), sorted(metrics[0]))

    def on_validation_step_end(self, step_id, metrics):
        print("validated", step_id, sorted(metrics))


class Small(KerasTrial):
    def build_model(self, hparams):
        if KIND == "no model":
            return None
        inputs = keras.layers.Input((3,))
        hidden = keras.layers.Dense(pedl.get_hyperparameter("units"), activation="tanh")(inputs)
        return keras.models.Model(inputs, keras.layers.Dense(1)(keras.layers.Dropout(0.2)(hidden)))

    def optimizer(self):
        return keras.optimizers.SGD(0.05)

    def loss(self):
        return "mse"

    def batch_size(self):
        return 8

    def training_metrics(self):
        return {"distance": "mae"}

    def validation_metrics(self):
        return {"error": "mae"} if KIND == "other" else {"distance": "mae"}

    def callbacks(self, hparams):
        return [Noting()]


if __name__ == "__main__":
    # What the process had before is there afterwards.
    mine = keras.models.Sequential([keras.layers.InputLayer((3,)), keras.layers.Dense(2)])
    before = mine.predict(np.ones((1, 3)), verbose=0)
    config = {
        "hyperparameters": {"units": {"type": "int", "minval": 2, "maxval": 9}, "rate": 0.5, "size": {"type": "const", "val": 8}},
        "data": {"path": "here"},
        "reproducibility": {"experiment_seed": 7},
    }
    result = pedl.local(Small, {"units": 4}, config, batches_per_step=12, directory="kept")
    print("RESULT", sorted(result.training_metrics), len(result.batch_metrics), sorted(result.validation_metrics))
    mean = np.mean([batch["loss"] for batch in result.batch_metrics])
    assert abs(result.training_metrics["loss"] - mean) < 1e-6
    loaded = keras.models.load_model(result.checkpoint, compile=False)
    x = np.sin(np.arange(120.0)).reshape(40, 3).astype("float32")[:16]
    # Not the loss: `evaluate_generator` of Keras 2.3 makes a mean of its running means.
    measured = np.mean(np.abs(loaded.predict(x, verbose=0) - x.sum(1, keepdims=True)))
    print("SAME ERROR", abs(measured - result.validation_metrics["distance"]) < 1e-5)
    again = pedl.local(Small, {"units": 4}, config, batches_per_step=12)
    print("REPEATED", again.validation_metrics == result.validation_metrics, again.checkpoint != result.checkpoint)
    print("UNTOUCHED", np.array_equal(before, mine.predict(np.ones((1, 3)), verbose=0)))
    try:
        print(pedl.get_hyperparameter("units"))
    except pedl.Error as error:
        print("OUTSIDE", type(error).__name__)
