"""Learns whether a review is good: a `TFKerasTrial`, for the Keras within TensorFlow 1.13 to 2.15.

    pedl-run --config const.yaml .              # 8 steps of 100 batches; val_accuracy comes to more than 0.9
    pedl checkpoint export .pedl/tf_keras --output reviews.h5

It shows a data set of one's own that two threads build, a model that is compiled, and callbacks of Keras. Kill it at any moment
and run the same command again: it ends with the same weights.
"""

import numpy as np
import tensorflow as tf
from pedl.frameworks.keras import TFKerasTrial
from pedl.frameworks.keras.data import InMemorySequence, KerasDataAdapter

from .data import LENGTH, VOCABULARY, make_reviews


class Reviews(tf.keras.utils.Sequence):
    """Reviews with a word left out here and there, in another order in each epoch."""

    def __init__(self, reviews, labels, batch_size, left_out):
        self.reviews, self.labels, self.size = reviews, labels, batch_size
        self.left_out = left_out
        self.order = np.arange(len(reviews))

    def __len__(self):
        return len(self.reviews) // self.size

    def __getitem__(self, index):
        rows = self.order[index * self.size : (index + 1) * self.size]
        reviews = self.reviews[rows]
        return np.where(np.random.rand(*reviews.shape) < self.left_out, 0, reviews), self.labels[rows]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def make_data_loaders(experiment_config, hparams):
    """The data set to train on, built by two threads, and the one to validate on."""
    data = experiment_config["data"]
    reviews, labels = make_reviews(data["num_training"], seed=1)
    training = Reviews(reviews, labels, hparams["batch_size"], hparams["left_out"])
    validation = make_reviews(data["num_validation"], seed=2)
    return KerasDataAdapter(training, workers=2), InMemorySequence(*validation, batch_size=100)


class ReviewsTrial(TFKerasTrial):
    """The mean of the vectors of all words, and two layers on it."""

    def build_model(self, hparams):
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Embedding(len(VOCABULARY), hparams["embedding"], input_length=LENGTH),
                layers.GlobalAveragePooling1D(),
                layers.Dense(16, activation="relu"),
                layers.Dropout(hparams["dropout"]),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        optimizer = tf.keras.optimizers.Adam(hparams["learning_rate"])
        model.compile(optimizer, loss="binary_crossentropy", metrics=["accuracy"])
        return model

    def keras_callbacks(self, hparams):
        """Halves the learning rate where the loss of validations gets no better."""
        return [tf.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1, verbose=1)]
