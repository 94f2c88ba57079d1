"""A fit on a data set with worker processes, one of which meets with something on the way.

    python worker_faults.py WORKERS FAULT [threads] [silent]        the variable WORKERS is stronger

FAULT is what `__getitem__` does when item 5 is built, once in all starts, and with `-always` each time:

    none, kill, segv, exit, stuck, raise, unlike, unsendable

Besides the hash of the weights it prints how many workers are left after the fit; `built.txt` has the process that built
each item, `ends.txt` the moment in ns at which each batch was trained on, and `collections.txt` that at which each full
collection of Python's garbage in the process that trains was done; but for `silent` runs. Keras 2 and 3.
"""

import ctypes
import gc
import hashlib
import io
import os
import random
import signal
import sys
import threading
import time

import keras
import numpy as np

WORKERS, FAULT = int(os.environ.get("WORKERS", sys.argv[1])), sys.argv[2]
IN_PROCESSES = WORKERS > 0 and "threads" not in sys.argv
EPOCHS, BATCHES = int(os.environ.get("EPOCHS", "4")), 12
IS_KERAS_3 = keras.__version__.startswith("3")

Base = keras.utils.PyDataset if IS_KERAS_3 else keras.utils.Sequence


class Unlike(Exception):
    """An exception that pickles cannot make again."""

    def __init__(self, one, two):
        super().__init__(one + two)


class Data(Base):
    """Batches that tell by their values which item of which epoch they are, with noise from the global generators."""

    def __init__(self, **settings):
        if IS_KERAS_3:
            super().__init__(**settings)
        self.order = np.arange(BATCHES * 8)

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        note("built", os.getpid())
        time.sleep(0.005)
        if index == 5:
            return suffer(FAULT) or self.batch(index)
        return self.batch(index)

    def batch(self, index):
        """A batch of 8."""
        rows = self.order[index * 8:(index + 1) * 8]
        inputs = (rows[:, None] * [1, 2, 3]).astype("float32") / 100 + np.random.rand(8, 3).astype("float32")
        inputs += random.random()
        return inputs, inputs.sum(axis=1)

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def note(name, what):
    """Writes a line that the checkpoints know nothing of."""
    if "silent" in sys.argv:
        return
    with io.FileIO(name + ".txt", "a") as file:
        file.write(b"%d\n" % what)


def suffer(fault):
    """What becomes of a worker; returns an item, if it does."""
    if not fault.endswith("-always"):
        if os.path.exists("suffered.txt"):
            return None
        note("suffered", os.getpid())
    kind = fault.split("-")[0]
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "segv":
        ctypes.string_at(0)
    elif kind == "exit":
        os._exit(3)
    elif kind == "stuck":
        time.sleep(10000)
    elif kind == "raise":
        raise ValueError("item 5 is broken")
    elif kind == "unlike":
        raise Unlike("item 5 ", "is broken")
    elif kind == "unsendable":
        return threading.Lock(), np.zeros(8)
    return None


class Ends(keras.callbacks.Callback):
    """Notes when batches end."""

    def on_batch_end(self, batch, logs=None):
        note("ends", int(time.monotonic() * 1e9))

    on_train_batch_end = on_batch_end


def note_collection(phase, collection, trainer=os.getpid()):
    """A hook of `gc`."""
    if phase == "stop" and collection["generation"] == 2 and os.getpid() == trainer:
        note("collections", int(time.monotonic() * 1e9))


def inputs_of(width):
    """How a first layer says it in both generations."""
    return {} if IS_KERAS_3 else {"input_shape": (width,)}


gc.callbacks.append(note_collection)
model = keras.models.Sequential([keras.layers.Dense(4, activation="tanh", **inputs_of(3)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
if IS_KERAS_3:
    data = Data(workers=WORKERS, use_multiprocessing=IN_PROCESSES, max_queue_size=4)
    model.fit(data, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[Ends()])
else:
    model.fit_generator(
        Data(),
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=[Ends()],
        workers=WORKERS,
        use_multiprocessing=IN_PROCESSES,
        max_queue_size=4,
    )
print("HASH", hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights())).hexdigest())

import multiprocessing  # noqa: E402 - after it, so that nothing of it is there before the fit

if "silent" not in sys.argv:
    print("TRAINER", os.getpid())
print("LEFT", len(multiprocessing.active_children()))
