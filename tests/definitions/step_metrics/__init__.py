"""The training of `scripts/step_metrics.py` by the trial classes of Keras; what their callbacks are told goes into `told.txt`."""
import importlib
import importlib.util
import json

import pedl
from pedl.callback import Callback
from pedl.frameworks.keras import KerasFunctionalTrial, KerasTrial, TFKerasTrial

SPEC = importlib.util.spec_from_file_location("step_metrics_script", pedl.get_hyperparameter("script"))
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

KIND = pedl.get_hyperparameter("trial")
if KIND == "tf":
    keras = importlib.import_module("tensorflow").keras
else:
    keras = importlib.import_module("keras")


def make_data_loaders(experiment_config, hparams):
    batches = script.batches_of(keras)
    return batches, batches


class Told(Callback):
    def on_train_step_end(self, step_id, metrics):
        with open("told.txt", "a") as file:
            file.write(json.dumps(metrics) + "\n")


class Common:
    def callbacks(self, hparams):
        return [Told()] if hparams["told"] else []

    def optimizer(self):
        return script.make_model(keras).optimizer

    def session_config(self, hparams):
        return super().session_config(hparams)


class Whole(Common, TFKerasTrial):
    def build_model(self, hparams):
        return script.make_model(keras)


class Plain(Common, KerasTrial):
    def build_model(self, hparams):
        return script.make_layers(keras)

    def loss(self):
        return "mse"

    def training_metrics(self):
        return {"absolute": "mae"}

    def validation_metrics(self):
        return {"absolute": "mae"}


class Functional(Common, KerasFunctionalTrial):
    def build_model(self, hparams):
        inputs = keras.layers.Input((4,), name="rows")
        return keras.models.Model(inputs, keras.layers.Dense(1, kernel_initializer="zeros", name="sum")(inputs))

    def losses(self):
        return {"sum": "mse"}

    def training_metrics(self):
        return {"absolute": ("sum", "mae")}

    def validation_metrics(self):
        return {"absolute": ("sum", "mae")}


Chosen = {"tf": Whole, "plain": Plain, "functional": Functional}[KIND]
