"""Learns to read digits: a `KerasTrial`, for Keras 2.2 to 3.

    pedl-run --config const.yaml .              # 16 steps of 100 batches; val_accuracy comes to more than 0.9
    pedl checkpoint export .pedl/keras --output digits.h5

Kill it at any moment and run the same command again: it ends with the same weights.
"""

import numpy as np
from pedl.frameworks.keras import KerasTrial
from pedl.frameworks.keras.data import InMemorySequence, KerasDataAdapter

import keras
from keras import layers

from .data import make_images


class Shuffled(InMemorySequence):
    """Goes through the images in another order in each epoch."""

    def __init__(self, images, labels, batch_size):
        super().__init__(images, labels, batch_size)
        self.images, self.labels, self.size = images, labels, batch_size
        self.order = np.arange(len(images))

    def __getitem__(self, index):
        rows = self.order[index * self.size : (index + 1) * self.size]
        return self.images[rows], self.labels[rows]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def make_data_loaders(experiment_config, hparams):
    """The data set to train on, built by two processes, and the one to validate on."""
    data = experiment_config["data"]
    training = make_images(data["num_training"], data["noise"], seed=1)
    validation = make_images(data["num_validation"], data["noise"], seed=2)
    shuffled = Shuffled(*training, batch_size=hparams["batch_size"])
    workers = {"workers": data["workers"], "use_multiprocessing": True}
    return KerasDataAdapter(shuffled, **workers), InMemorySequence(*validation, batch_size=100)


class DigitsTrial(KerasTrial):
    """A small convolutional network."""

    def __init__(self, hparams):
        self.hparams = hparams

    def build_model(self, hparams):
        return keras.models.Sequential(
            [
                layers.Conv2D(16, 3, activation=hparams["activation"], input_shape=(12, 10, 1)),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dropout(hparams["dropout"]),
                layers.Dense(64, activation=hparams["activation"]),
                layers.Dense(10, activation="softmax"),
            ]
        )

    def optimizer(self):
        return keras.optimizers.Adam(self.hparams["learning_rate"])

    def loss(self):
        return "categorical_crossentropy"

    def batch_size(self):
        return self.hparams["batch_size"]

    def training_metrics(self):
        return {"accuracy": "accuracy"}

    def validation_metrics(self):
        return {"accuracy": "accuracy"}
