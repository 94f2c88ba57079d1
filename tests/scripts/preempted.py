"""Trains a small model in two fits, and can be met by a signal at any place, with a handler of the script's own.

    preempted.py [--handler HANDLER] [--when WHEN] [--units N]

It waits at the places that are names of files in the current directory, and there makes a file of that name with
`-reached` behind it: `batch-N`, `compute` (on JAX), `evaluate`, `validate-N` (after batch N), `between` (the fits),
`after`, `handler`. The last lines of its output are hashes of what it has learned.
"""
import argparse
import hashlib
import inspect
import os
import posix
import signal
import sys
import time

import keras
import numpy as np
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--handler", choices=["none", "exit", "flag", "stop", "note", "ignore", "hang"], default="none")
parser.add_argument("--signal", default="SIGTERM")
parser.add_argument("--when", choices=["import", "fit"], default="import", help="when the handler is installed")
parser.add_argument("--units", type=int, default=16)
arguments = parser.parse_args()

number = getattr(signal, arguments.signal)
came = []


def wait_at(place):
    """Stays here while there is a file of this name; `os.path.exists` would say in a replay what it said at first."""
    if posix.access(place, os.F_OK):
        with open(f"{place}-reached", "w"):
            pass
    while posix.access(place, os.F_OK):
        time.sleep(0.01)


def handle(number, frame):
    """What scripts do in handlers."""
    came.append(int(number))
    with open("handled", "a") as file:
        file.write(f"{int(number)} after batch {watch.batches}\n")
    if arguments.handler == "exit":
        sys.exit(0)
    if arguments.handler == "stop":
        model.stop_training = True
    if arguments.handler == "hang":
        wait_at("handler")


def install():
    """Installs the handler that was asked for, and looks whether Python tells what it would tell."""
    before = signal.getsignal(number)
    assert before == signal.SIG_DFL, before
    if arguments.handler == "ignore":
        signal.signal(number, signal.SIG_IGN)
    elif arguments.handler != "none":
        signal.signal(number, handle)
        assert signal.getsignal(number) is handle


class Watch(keras.callbacks.Callback):
    """Counts batches, and waits at some."""

    batches = 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.batches == 0 and arguments.when == "fit":
            install()

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        with open("batches", "a") as file:
            file.write(f"{self.batches}\n")
        wait_at(f"batch-{self.batches}")
        if arguments.handler == "flag" and came:
            self.model.stop_training = True

    def on_test_batch_end(self, batch, logs=None):
        if batch == 5:
            wait_at("evaluate")
            wait_at(f"validate-{self.batches}")


def slow(x):
    """The identity, which waits."""
    if keras.backend.backend() != "jax":
        return x
    import jax

    def wait(value):
        if os.path.exists("batches") and os.path.getsize("batches") > 60:
            wait_at("compute")
        return np.asarray(value)

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


class Slow(layers.Layer):
    """Where `compute` is a file, a training pass takes as long as it is there."""

    def call(self, inputs, training=None):
        return inputs + 0 * keras.ops.stop_gradient(slow(keras.ops.stop_gradient(inputs))) if training else inputs


if arguments.when == "import":
    install()
np.random.seed(3)
if hasattr(keras.utils, "set_random_seed"):
    keras.utils.set_random_seed(3)
data = np.random.normal(size=(480, 12)).astype("float32")
model = keras.models.Sequential()
model.add(layers.Dense(arguments.units, activation="tanh", input_shape=(12,)))
if os.path.exists("compute"):
    model.add(Slow())
model.add(layers.Dropout(0.2))
model.add(layers.Dense(3))
model.compile("adam", "mse")
watch = Watch()
history = model.fit(data, data[:, :3], batch_size=8, epochs=1, callbacks=[watch], verbose=0).history
# Keras before 2.3 tells callbacks nothing of an evaluation.
tells = {"callbacks": [watch]} if "callbacks" in inspect.signature(model.evaluate).parameters else {}
loss = model.evaluate(data[:80], data[:80, :3], batch_size=8, verbose=0, **tells)
wait_at("between")
if arguments.handler == "flag" and came:
    print("stopped by a flag", flush=True)
    sys.exit(0)
held_out = (data[:80], data[:80, :3])
second = model.fit(data, data[:, :3], batch_size=8, epochs=2, validation_data=held_out, callbacks=[watch], verbose=0).history
digest = hashlib.sha256(b"".join(np.ascontiguousarray(weight).tobytes() for weight in model.get_weights()))
print("sha256 of the weights:", digest.hexdigest())
rest = repr([float(loss)] + [[float(value) for name in sorted(each) for value in each[name]] for each in (history, second)])
print("sha256 of the losses:", hashlib.sha256(rest.encode()).hexdigest(), "after batch", watch.batches)
wait_at("after")
