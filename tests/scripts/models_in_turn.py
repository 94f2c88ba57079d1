"""Trains one model after another, as in a cross-validation, and prints a hash of all that they learned.

Every model is made after the one before was trained. With a seed for the graph, the seeds of its operations follow from
how many operations there are. Half-way in each training weights of samples appear.

The environment variable KERAS_PACKAGE says which Keras: `keras`, or `tensorflow.keras`.
"""

import hashlib
import importlib
import os
import time

import numpy as np
import tensorflow as tf

keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))

tf.compat.v1.set_random_seed(5)
np.random.seed(6)
x = np.random.rand(64, 6).astype("float32")
y = (x.sum(1) > 3).astype("float32")


class Batches(keras.utils.Sequence):
    def __init__(self, weights):
        self.weights = weights

    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(0.02)
        rows = slice(index * 16, (index + 1) * 16)
        batch = x[rows] + np.random.normal(0, 0.1, (16, 6)).astype("float32"), y[rows]
        return batch + (np.linspace(0, 1, 16),) if self.weights else batch


digest = hashlib.sha256()
for _ in range(3):
    layers = [keras.layers.Dense(8, input_shape=(6,)), keras.layers.Dropout(0.3), keras.layers.Dense(1, activation="sigmoid")]
    model = keras.models.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit_generator(Batches(False), epochs=6, verbose=0)
    weighted = model.fit_generator(Batches(True), epochs=6, verbose=0, validation_data=Batches(True))
    for row in history, weighted:
        digest.update(repr(sorted((name, [float(value) for value in values]) for name, values in row.history.items())).encode())
    for weight in model.get_weights():
        digest.update(weight.tobytes())
    print("trained a model")
print("sha256:", digest.hexdigest())
