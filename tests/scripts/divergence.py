"""Trains a small model in two fits; what it is told to take from the clock, a set or a file is not the same twice.

    python divergence.py WHAT [--data arrays|files|by-hand]

Where `changed` exists in the current directory, WHAT is in effect; `clock` gets the times that were used, `columns`
the orders of columns. Where `hold-1` or `hold-2` exists, the first or the second fit goes on slowly from the batch
whose number is in it.
"""
import argparse
import hashlib
import io
import json
import os
import random
import sys
import time

import keras
import numpy as np
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("what")
parser.add_argument("--data", choices=["arrays", "files", "by-hand"], default="arrays")
arguments = parser.parse_args()
what = arguments.what
changed = os.path.exists("changed")


def note(name, text):
    """Adds a line to a file, unseen: one that the script makes is withdrawn when it is started again."""
    with io.FileIO(name, "a") as file:
        file.write(text.encode() + b"\n")


def clock():
    """Milliseconds: of the real clock, or what the environment says it was."""
    now = int(os.environ.get("CLOCK") or time.time() * 1000)
    note("clock", str(now))
    return now


class Column:
    """Hashed by its address: in a set, columns stand in an order that no hash seed decides."""

    def __init__(self, number):
        self.number = number


random.seed(4)
np.random.seed(4)
epochs, rate, batch_size = 8, 0.05, 8
columns = list(range(6))
if what == "epochs":
    epochs = 8 + clock() % 50
if what == "rate":
    rate = 0.05 / (1 + clock() % 1000)
if what == "hashed-columns":
    columns = [int(name) for name in {"0", "1", "2", "3", "4", "5"}]
if what == "addressed-columns":
    columns = [column.number for column in {Column(number) for number in range(6)}]
    columns = json.loads(os.environ.get("COLUMNS_ARE") or json.dumps(columns))
    note("columns", json.dumps(columns))
if what == "unseen-data":
    with io.FileIO("data.npy") as file:
        data = np.load(io.BytesIO(file.readall()))
else:
    data = np.load("data.npy")
x = data[:, columns].astype("float32")
y = (data[:, :3].sum(axis=1) > 0).astype("float32")


class Files(getattr(keras.utils, "PyDataset", keras.utils.Sequence)):
    """Batches that are read when they are asked for."""

    def __len__(self):
        return len(x) // batch_size

    def __getitem__(self, index):
        rows = slice(index * batch_size, (index + 1) * batch_size)
        batch = np.load("data.npy", mmap_mode="r")[rows]
        return batch.astype("float32"), y[rows]


def hold():
    """Leaves time for a kill in this fit."""
    if hold_from is not None and len(losses) >= hold_from:
        time.sleep(0.1)


class Watch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        losses.append(float(logs["loss"]))
        hold()

    def on_epoch_begin(self, epoch, logs=None):
        if what == "rate-in-callback":
            optimizer = self.model.optimizer
            if hasattr(optimizer, "learning_rate") and not hasattr(optimizer, "lr"):
                optimizer.learning_rate = 0.05 / (1 + clock() % 1000)
            else:
                keras.backend.set_value(optimizer.lr, 0.05 / (1 + clock() % 1000))
        if what == "predict-in-callback" and changed and epoch == 1:
            self.model.predict(x[:8], verbose=0)
        if what == "draw-in-callback" and changed and epoch == 1:
            np.random.rand()
        if what == "raise-in-callback" and changed and epoch == 1:
            raise ValueError("what the callback needs is gone")


def train():
    global fit, hold_from
    fit += 1
    hold_from = None
    if os.path.exists(f"hold-{fit}"):
        hold_from = int(open(f"hold-{fit}").read())
    if arguments.data == "arrays":
        model.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0, callbacks=[Watch()])
    elif arguments.data == "files":
        fit_sequence = getattr(model, "fit_generator", model.fit)
        fit_sequence(Files(), epochs=epochs, verbose=0, callbacks=[Watch()])
    else:
        for _ in range(epochs):
            for start in range(0, len(x), batch_size):
                losses.append(float(model.train_on_batch(x[start : start + batch_size], y[start : start + batch_size])))
                hold()


fit = 0
losses = []
model = keras.models.Sequential(
    [
        layers.Dense(8, activation="relu", input_shape=(6,)),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(keras.optimizers.SGD(rate), "binary_crossentropy")
if what == "predict" and changed:
    model.predict(x[:8], verbose=0)
if what == "draw" and changed:
    np.random.rand()
if what == "python-draw" and changed:
    random.random()
if changed and what in ("exit", "exit-code", "exit-message"):
    print("nothing to do")
    sys.exit({"exit": 0, "exit-code": 3}.get(what, "the data is gone"))
train()
if what == "exit-between" and changed:
    sys.exit()
if what == "predict-between" and changed:
    model.predict(x[:8], verbose=0)
if what == "draw-between" and changed:
    np.random.rand()
model.compile(keras.optimizers.SGD(0.02), "mse")
train()

digest = hashlib.sha256(repr(losses).encode())
for weight in model.get_weights():
    digest.update(np.ascontiguousarray(weight).tobytes())
digest.update(np.random.rand(3).tobytes() + repr(random.random()).encode())
print("sha256:", digest.hexdigest())
