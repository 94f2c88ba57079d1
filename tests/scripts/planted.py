"""Trains a small model; where `--plant` says so, a start that resumes goes wrong in one thing.

What goes wrong is planted here, between the checkpoint and what takes it: pedl-run knows nothing of it.

    slot     one slot of the optimizer is left out: it is zero
    counter  the optimizer's count of batches is lost
    stream   the random stream of a dropout layer is one draw further
    sample   one batch is repeated
"""

import argparse
import random
import signal
import sys
import time

import keras
import numpy as np

try:
    from py_hooks.recording import checkpoints
except ImportError:
    # Plain Python.
    checkpoints = None

IS_KERAS2 = keras.__version__.startswith("2.")
Sequence = keras.utils.Sequence if IS_KERAS2 else keras.utils.PyDataset
# A part of the name of what is put in wrong.
NAMES = {
    "slot": "Adam/m_0" if IS_KERAS2 else "_momentum",
    "counter": "iteration",
    "stream": "pedl_random/2" if IS_KERAS2 else "seed_generator_state",
}

batch_size = 8
num_batches = 25
num_epochs = 4


class Batches(Sequence):
    """Noisy points, a batch at a time; drawn anew for every batch."""

    def __init__(self):
        if not IS_KERAS2:
            super().__init__()
        generator = np.random.RandomState(1)
        self.points = generator.normal(size=(num_batches, batch_size, 6)).astype("float32")
        # In a list, where changes are not seen by what watches data sets.
        self.repeats = []

    def __len__(self):
        return num_batches

    def __getitem__(self, index):
        if self.repeats:
            self.repeats.clear()
            index = (index - 1) % num_batches
        points = self.points[index] + np.float32(0.01) * np.random.normal(size=(batch_size, 6)).astype("float32")
        return points, (points.sum(axis=1) > 0).astype("float32")


class Pace(keras.callbacks.Callback):
    """So that there is time for faults."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)


class Planted:
    """A provider of state, with something done to what it gets to restore."""

    def __init__(self, name, provider, plant):
        self._name, self._provider, self._plant = name, provider, plant

    def restore(self, tensors, state):
        self._provider.restore(self._changed(dict(tensors), state or {}), state)

    def _changed(self, tensors, state):
        paths = state.get("paths", {}) if isinstance(state, dict) else {}
        planted = [key for key in sorted(tensors) if NAMES.get(self._plant, "nothing") in paths.get(key, key)]
        for key in planted[:1]:
            tensors[key] = tensors[key] + 1 if self._plant == "stream" else np.zeros_like(tensors[key])
        return tensors


def plant(what, batches):
    """Has the next resume go wrong."""
    restore = checkpoints.Checkpoints.restore

    def restore_wrong(kept):
        providers = kept._providers
        kept._providers = [(name, Planted(name, provider, what)) for name, provider in providers]
        restore(kept)
        kept._providers = providers
        batches.repeats += [what] * (what == "sample")

    checkpoints.Checkpoints.restore = restore_wrong


parser = argparse.ArgumentParser()
parser.add_argument("--plant", choices=["nothing", "slot", "counter", "stream", "sample"], default="nothing")
parser.add_argument("--ends-orderly", action="store_true", help="answer SIGTERM with `sys.exit(0)`")
arguments = parser.parse_args()
if arguments.ends_orderly:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))

random.seed(5)
np.random.seed(5)
if not IS_KERAS2:
    keras.utils.set_random_seed(5)
batches = Batches()
if arguments.plant != "nothing" and checkpoints is not None:
    plant(arguments.plant, batches)
model = keras.Sequential(
    [
        keras.layers.Dense(8, activation="relu", **({"input_shape": (6,)} if IS_KERAS2 else {})),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy")
fit = model.fit_generator if IS_KERAS2 else model.fit
callbacks = [Pace(), keras.callbacks.CSVLogger("log.csv")]
options = {"workers": 0} if IS_KERAS2 else {}
history = fit(batches, epochs=num_epochs, verbose=2, shuffle=False, callbacks=callbacks, **options)
model.save("model.h5" if IS_KERAS2 else "model.keras")
print("losses:", [float(loss) for loss in history.history["loss"]])
