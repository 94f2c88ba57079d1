"""Trains, and has other threads and processes do something at each end of an epoch: `WAY`, or several.

saves       a thread saves the model
predicts    a thread predicts with it
appends     a forked child appends a line to `log.txt`
spawns      a process is started by `spawn`
computes    a forked child computes, and prints
prepares    a forked child writes a file before there is any training
"""
import hashlib
import importlib
import multiprocessing
import os
import sys
import threading

keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
import numpy as np  # noqa: E402

WAYS = sys.argv[1:]
fork = multiprocessing.get_context("fork")


def append(line, name="log.txt"):
    with open(name, "a") as file:
        file.write(line + "\n")


def run(start):
    start.start()
    start.join()
    assert getattr(start, "exitcode", 0) == 0


class Leaves(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if "saves" in WAYS:
            run(threading.Thread(target=self.model.save_weights, args=("epoch-%d.weights.h5" % epoch,)))
        if "predicts" in WAYS:
            run(threading.Thread(target=self.model.predict, args=(x[:8],)))
        if "appends" in WAYS:
            run(fork.Process(target=append, args=("epoch %d" % epoch,)))
        if "spawns" in WAYS:
            run(multiprocessing.get_context("spawn").Process(target=print, args=("spawned",)))
        if "computes" in WAYS:
            run(fork.Process(target=print, args=(sum(range(epoch)),)))


if __name__ == "__main__":
    if "prepares" in WAYS:
        run(fork.Process(target=append, args=("prepared", "prepared.txt")))
    np.random.seed(5)
    x = np.random.normal(size=(64, 4)).astype("float32")
    model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(4,))])
    model.compile("sgd", "mse")
    model.set_weights([np.ones((4, 1)), np.zeros(1)])
    model.fit(x, x[:, :1], batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[Leaves()])
    weights = b"".join(np.asarray(each).tobytes() for each in model.get_weights())
    print("sha256 of the weights:", hashlib.sha256(weights).hexdigest())
