"""Trains with several steps in each execution, on data whose length is no multiple of them; prints hashes."""

import hashlib
import sys

import keras
import numpy as np
from keras import layers

source = sys.argv[1]
keras.utils.set_random_seed(4)
x = np.random.normal(size=(16 * 23 + 5, 6)).astype("float32")
y = (x[:, 0] > 0).astype("float32")


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return -(-len(x) // 16)

    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        return x[rows] + np.random.normal(0, 0.1, x[rows].shape).astype("float32"), y[rows]


def generate():
    while True:
        for index in range(len(rows)):
            yield rows[index]


rows = Rows(workers=3)
model = keras.Sequential([layers.Input((6,)), layers.Dense(8), layers.Dropout(0.2), layers.Dense(1)])
model.compile("adam", "mse", steps_per_execution=5)
losses = []


class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        losses.append((batch, float(logs["loss"])))


settings = {"epochs": 60, "verbose": 0, "callbacks": [Watch()]}
if source == "arrays":
    history = model.fit(x, y, batch_size=16, validation_split=0.2, **settings).history
elif source == "sequence":
    history = model.fit(rows, validation_data=rows, **settings).history
else:
    history = model.fit(generate(), steps_per_epoch=22, **settings).history
print("losses", hashlib.sha256(repr(losses).encode()).hexdigest())
print("history", hashlib.sha256(repr(history).encode()).hexdigest())
print("weights", hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest())
