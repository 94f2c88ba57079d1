"""Trains with one fit, and prints as JSON what it saw of it: for runs whose length the trial's plan decides.

`--stop-at N` is what the plan does, done by hand: enough epochs, and a callback that stops after batch N.
"""
import argparse
import hashlib
import importlib
import json
import os

import numpy as np

keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
parser = argparse.ArgumentParser()
parser.add_argument("--source", choices=["arrays", "split", "sequence", "generator"], default="arrays")
parser.add_argument("--epochs", type=int)
parser.add_argument("--stop-at", type=int)
parser.add_argument("--slow", action="store_true", help="some ten batches a second, for who wants to kill it")
parser.add_argument("--fail-at", type=int, help="raise after this batch, the first time")
parser.add_argument("--fit-inside", action="store_true", help="train another model for a batch at each epoch's end")
parser.add_argument("--validate-arrays", action="store_true", help="validate on arrays, whatever is trained on")
parser.add_argument("--fits", type=int, default=1)
arguments = parser.parse_args()

IS_KERAS_2 = keras.__version__.startswith("2.")
batch_size, num_train, num_validation = 8, 8 * 20 - 3, 32
Sequence = keras.utils.Sequence

generator = np.random.RandomState(1)
np.random.seed(2)
if IS_KERAS_2:
    import tensorflow

    tensorflow.compat.v1.set_random_seed(2)
else:
    keras.utils.set_random_seed(2)
x = generator.rand(num_train + num_validation, 6).astype("float32")
y = (x.sum(1) > 3).astype("float32")
validation = x[num_train:], y[num_train:]


class Batches(Sequence):
    def __init__(self, size):
        if not IS_KERAS_2:
            super().__init__()
        self.size = size
        self.ended = 0

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rows = slice(index * batch_size, min((index + 1) * batch_size, num_train))
        return x[rows] + np.random.normal(0, 0.01, x[rows].shape).astype("float32"), y[rows]

    def on_epoch_end(self):
        self.ended += 1


def was_restarted():
    """Whether this is not the first start. A file of the script's own is taken away before the next."""
    journal = ".pedl/planned_fit/events.jsonl"
    return os.path.exists(journal) and '"restart"' in open(journal).read()


def endless():
    batches = Batches(20)
    while True:
        for index in range(len(batches)):
            yield batches[index]


class Watch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches, self.ends, self.logs, self.tests = 0, [], [], 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if arguments.slow:
            import time

            time.sleep(0.1)
        if self.batches == arguments.fail_at and not was_restarted():
            raise RuntimeError("as asked for")
        if self.batches == arguments.stop_at:
            self.model.stop_training = True

    # Before Keras 2.2.5 it has no other name.
    on_batch_end = on_train_batch_end

    def on_test_begin(self, logs=None):
        self.tests += 1

    def on_epoch_end(self, epoch, logs=None):
        if arguments.fit_inside:
            other.fit(x[:batch_size], y[:batch_size], batch_size=batch_size, epochs=1, verbose=0)
        self.ends.append(self.batches)
        self.logs.append(sorted(logs))


model = keras.models.Sequential(
    [
        keras.layers.Dense(8, activation="relu", input_shape=(6,)) if IS_KERAS_2 else keras.layers.Dense(8, activation="relu"),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])

other = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid")])
other.compile("sgd", "binary_crossentropy")

watch = Watch()
settings = {"callbacks": [watch], "verbose": 0}
if arguments.epochs:
    settings["epochs"] = arguments.epochs
for _ in range(arguments.fits):
    if arguments.source == "arrays":
        history = model.fit(x[:num_train], y[:num_train], batch_size, validation_data=validation, **settings)
    elif arguments.source == "split":
        split = num_validation / float(num_train + num_validation)
        history = model.fit(x, y, batch_size=batch_size, validation_split=split, **settings)
    else:
        fit = model.fit_generator if IS_KERAS_2 else model.fit
        if arguments.source == "generator":
            settings["steps_per_epoch"] = 20
        data = endless() if arguments.source == "generator" else Batches(20)
        history = fit(data, validation_data=validation if arguments.validate_arrays else Batches(4), **settings)

answer = {
    "epochs": history.epoch,
    "rows": {name: len(values) for name, values in history.history.items()},
    "batches": watch.batches,
    "epoch_ends": watch.ends,
    "logs": watch.logs[-1] if watch.logs else None,
    "tests_seen": watch.tests,
}
print(json.dumps(answer))
learned = repr(sorted(history.history.items())).encode() + b"".join(weight.tobytes() for weight in model.get_weights())
print("sha256:", hashlib.sha256(learned).hexdigest())
