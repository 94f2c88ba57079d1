"""A trial of `tf.keras` that several ranks train. With `noise` each row, and each call of the model, draws random numbers."""
import hashlib
import io
import json
import os
import signal

import numpy as np
import pedl
import tensorflow as tf
from pedl.frameworks.keras import TFKerasTrial, data, wrap_dataset

CONFIGURATION = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}, "cluster": {"worker": [""]}}'))
RANK, SIZE = CONFIGURATION["task"]["index"], len(CONFIGURATION["cluster"]["worker"])
WITH_NOISE = pedl.get_hyperparameter("noise")
# Models that were made out of place.
EARLY = []


def note(text):
    """Writes a line where checkpoints know nothing of it."""
    with io.FileIO(os.environ["NOTES"], "a") as file:
        file.write((text + "\n").encode())


class Rows(tf.keras.utils.Sequence):
    """52 rows in batches, in an order that it shuffles itself."""

    def __init__(self, size, is_shuffled=True):
        self.size = size
        self.order = np.arange(52)
        self.is_shuffled = is_shuffled

    def __len__(self):
        return -(-52 // self.size)

    def __getitem__(self, index):
        rows = self.order[index * self.size : (index + 1) * self.size, None]
        x = np.sin(rows * [[1.0, 2.0, 3.0]])
        if WITH_NOISE:
            x = x + 0.1 * np.random.rand(*x.shape)
        return x.astype("float32"), x.sum(1, keepdims=True).astype("float32")

    def on_epoch_end(self):
        """Another order, which does not depend on the size of batches."""
        if self.is_shuffled:
            np.random.shuffle(self.order)


def make_data_loaders(experiment_config, hparams):
    """Batches which together have the size that the hyperparameter says."""
    size = hparams["global_batch_size"] // SIZE
    if hparams.get("wrong") == "model":
        EARLY.append(RanksTrial(hparams).made())
    if hparams.get("loaders") == "dataset":
        whole = wrap_dataset(tf.data.Dataset.from_tensor_slices(Rows(52)[0]))
        return whole.shuffle(52).batch(size), whole.batch(20)
    rows = Rows(size)
    if hparams.get("loaders") == "processes":
        rows = data.KerasDataAdapter(rows, workers=2, use_multiprocessing=True)
    return rows, Rows(20, is_shuffled=False)


class Ending(tf.keras.callbacks.Callback):
    """Notes batches, dies where it is told to, and prints the hash of all that was learned."""

    batches = 0

    def on_train_batch_begin(self, batch, logs=None):
        """Before a batch."""
        if os.environ.get("KILL") == f"{RANK} {self.batches}":
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, batch, logs=None):
        """After a batch, which may have been answered."""
        self.batches += 1
        note(f"batch {RANK} {self.batches}")

    def on_train_end(self, logs=None):
        """At the end."""
        weights = [*self.model.get_weights(), *(variable.numpy() for variable in self.model.optimizer.variables)]
        digest = hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in weights))
        print("weights", digest.hexdigest())


class RanksTrial(TFKerasTrial):
    """With momentum and moving means."""

    def __init__(self, hparams):
        self.wrong = hparams.get("wrong")
        if self.wrong == "early":
            tf.constant(1)

    def keras_callbacks(self, hparams):
        """One."""
        return [Ending()]

    def made(self):
        """With noise it draws, and normalizes by its batches."""
        first, last = (tf.keras.initializers.GlorotUniform(seed) for seed in (1, 2))
        layers = [tf.keras.layers.BatchNormalization(), tf.keras.layers.Dropout(0.3)] if WITH_NOISE else []
        hidden = tf.keras.layers.Dense(8, activation="tanh", kernel_initializer=first, input_shape=(3,))
        model = tf.keras.Sequential([hidden, *layers, tf.keras.layers.Dense(1, kernel_initializer=last)])
        model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        return model

    def build_model(self, hparams):
        """Compiled."""
        return EARLY[0] if self.wrong == "model" else self.made()
