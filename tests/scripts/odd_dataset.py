"""Trains on a data set whose items are not functions of their index, in the way that is named.

    python odd_dataset.py KIND WORKERS [EPOCHS]

WORKERS are threads, and processes where a `p` follows.
"""

import hashlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

kind, workers, in_processes = sys.argv[1], int(sys.argv[2].rstrip("p")), sys.argv[2].endswith("p")
epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 2
if kind == "splits-key":
    import jax
is_keras2 = keras.__version__.startswith("2.")
Sequence = keras.utils.Sequence if is_keras2 else keras.utils.PyDataset


class Rows(Sequence):
    def __init__(self):
        if not is_keras2:
            Sequence.__init__(self, workers=max(1, workers), use_multiprocessing=in_processes)
        self.built, self.log = 0, []
        if kind == "splits-key":
            self.key = jax.random.PRNGKey(5)
        elif kind == "draws-in-layer":
            self.noise = keras.layers.GaussianNoise(0.1, seed=5)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        x = np.full((4, 3), index, "float32")
        if kind == "counts":
            self.built += 1
            x += self.built
        elif kind == "counts-late":
            self.built += index == 5
        elif kind == "remembers":
            self.log.append(index)
            x += len(self.log)
        elif kind == "draws-elsewhere":
            x += os.urandom(1)[0]
        elif kind == "draws-in-threads":
            with ThreadPoolExecutor(3) as pool:
                x += sum(pool.map(lambda _: np.random.normal(), range(3)))
        elif kind == "splits-key":
            self.key, part = jax.random.split(self.key)
            x += np.asarray(jax.random.normal(part, x.shape))
        elif kind == "draws-in-layer":
            x = np.asarray(self.noise(x, training=True))
        return x, np.ones((4, 1), "float32")


model = keras.models.Sequential([keras.layers.Dense(2, input_shape=(3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
slowly = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: time.sleep(0.005 if epochs > 2 else 0))
if is_keras2:
    model.fit_generator(Rows(), epochs=epochs, workers=workers, use_multiprocessing=in_processes, verbose=0, shuffle=False)
else:
    model.fit(Rows(), epochs=epochs, verbose=0, callbacks=[slowly])
print("trained")
weights = b"".join(np.asarray(weight).tobytes() for weight in model.get_weights())
print("sha256 of the weights:", hashlib.sha256(weights).hexdigest())
