"""Trains a model whose layers draw from the generators of `random` and numpy in `call`, and from some of their own.

    python drawing_layers.py [WORD ...]

On torch their Python runs for every batch. Nothing is seeded but the generators of the script's own. Prints the hash of
the weights, and what all generators give after it. The words:

    nested    an object that a layer holds draws
    helper    a function that `call` calls draws
    lambda    the function of a `Lambda` draws
    activation, loss, metric
              a function of the script's draws that is one for the model
    epoch     a callback gives a layer another generator for each epoch
    within    a callback gives the object that a layer holds another generator, in the middle of each epoch
    global    a callback gives the script another generator for each epoch
    makes     a layer makes its generator in the first `call` that needs it
"""

import hashlib
import random
import sys
import time

import keras
import numpy as np

ROWS, BATCH, EPOCHS = 64, 8, 4

words = sys.argv[1:]
of_the_script = np.random.RandomState(1)
of_functions = np.random.default_rng(3)


def noisy(inputs):
    """Inputs times a number drawn from the generator of functions."""
    return inputs * float(1 + of_functions.random() * 0.1)


def noisy_loss(truth, predictions):
    """The mean of the squares, as one of the functions."""
    return noisy(keras.ops.mean(keras.ops.square(truth - predictions), axis=-1))


class Scale:
    """Draws from a generator that it holds."""

    def __init__(self):
        self.rng = np.random.default_rng(4)

    def __call__(self, inputs):
        return inputs * float(1 + self.rng.random() * 0.1)


class Noise(keras.layers.Layer):
    """Is left out at times, and else noisy."""

    def __init__(self):
        super().__init__()
        self.own = None if "makes" in words else np.random.default_rng(2)
        self.scale = Scale()

    def call(self, inputs, training=None):
        if not training or random.random() < 0.3:
            return inputs
        if self.own is None:
            self.own = np.random.default_rng(2)
        if "nested" in words or "within" in words:
            inputs = self.scale(inputs)
        if "helper" in words:
            inputs = noisy(inputs)
        return inputs * float(1 + np.random.rand() * 0.1 + self.own.random() * 0.1 + of_the_script.rand() * 0.1)


class Slowly(keras.callbacks.Callback):
    """Leaves time for a kill, and replaces generators."""

    def on_epoch_begin(self, epoch, logs=None):
        global of_functions
        if "epoch" in words:
            noise.own = np.random.default_rng(epoch)
        if "global" in words:
            of_functions = np.random.default_rng(epoch)

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)
        if "within" in words and batch == 2:
            noise.scale.rng = np.random.default_rng(random.randrange(100))


rows = np.random.rand(ROWS, 8).astype("float32")
noise = Noise()
between = [keras.layers.Lambda(noisy)] if "lambda" in words or "global" in words else []
last = keras.layers.Dense(1, activation=noisy if "activation" in words else None)
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), noise, *between, last])
model.compile(
    "adam",
    loss=noisy_loss if "loss" in words else "mse",
    metrics=[noisy_loss] if "metric" in words else [],
)
history = model.fit(rows, rows.sum(1), batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Slowly()]).history
print("DRAWN", np.random.rand(), random.random(), noise.own.random(), of_the_script.rand(), of_functions.random())
print("DRAWN", noise.scale.rng.random(), history)
print("HASH", hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights())).hexdigest())
