"""Trains a model whose layers draw from the generators of `random` and numpy in `call`, and from two of their own.

    python drawing_layers.py

On torch their Python runs for every batch. Nothing is seeded but the generators of the layers. Prints the hash of the
weights, and what all generators give after it.
"""

import hashlib
import random
import time

import keras
import numpy as np

ROWS, BATCH, EPOCHS = 64, 8, 4

of_the_script = np.random.RandomState(1)


class Noise(keras.layers.Layer):
    """Is left out at times, and else noisy."""

    def __init__(self):
        super().__init__()
        self.own = np.random.default_rng(2)

    def call(self, inputs, training=None):
        if not training or random.random() < 0.3:
            return inputs
        return inputs * float(1 + np.random.rand() * 0.1 + self.own.random() * 0.1 + of_the_script.rand() * 0.1)


class Slowly(keras.callbacks.Callback):
    """Leaves time for a kill."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)


rows = np.random.rand(ROWS, 8).astype("float32")
noise = Noise()
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), noise, keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(rows, rows.sum(1), batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Slowly()])
print("DRAWN", np.random.rand(), random.random(), noise.own.random(), of_the_script.rand())
print("HASH", hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights())).hexdigest())
