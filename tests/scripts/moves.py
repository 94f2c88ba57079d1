"""Trains on a data set with as many workers as the environment says, with a best model that it goes back to; hashes."""

import hashlib
import os

import keras
import numpy as np
from keras import layers

is_keras2 = keras.__version__.startswith("2.")
workers = int(os.environ["WORKERS"])
Sequence = keras.utils.Sequence if is_keras2 else keras.utils.PyDataset
x = np.random.RandomState(1).normal(size=(320, 6)).astype("float32")
y = (x[:, :3].sum(axis=1) > 0).astype("float32")


class Rows(Sequence):
    def __init__(self):
        if not is_keras2:
            Sequence.__init__(self, workers=max(1, workers), max_queue_size=1 + workers)

    def __len__(self):
        return 20

    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        return x[rows] + np.random.normal(0, 0.2, x[rows].shape).astype("float32"), y[rows]


model = keras.models.Sequential([layers.Dense(32, activation="relu", input_shape=(6,)), layers.Dense(1)])
model.compile("adam", "mse")
os.makedirs("models", exist_ok=True)
best = "models/best.h5" if is_keras2 else "models/best.weights.h5"
callbacks = [keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True, save_weights_only=True)]
settings = {"epochs": 150, "verbose": 0, "callbacks": callbacks}
if is_keras2:
    history = model.fit_generator(Rows(), workers=workers, max_queue_size=1 + workers, **settings)
else:
    history = model.fit(Rows(), **settings)
trained = model.get_weights()
model.load_weights(best)
for name, weights in (("weights", trained), ("best weights", model.get_weights())):
    print(name, hashlib.sha256(b"".join(weight.tobytes() for weight in weights)).hexdigest())
print("history", hashlib.sha256(repr(history.history).encode()).hexdigest())
