"""Seeds numpy, and not `random`, as many scripts do: prints what a `Sequence` has delivered, with any workers.

Under plain python each item is the same in every run, too: what draws from `random` has another seed there.
"""

import importlib
import os
import random

import numpy as np

np.random.seed(11)
keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))

BATCHES = 6


class Rows(keras.utils.Sequence):
    """Draws from numpy's global generator and from one of its own; with `unseeded` from `random`, too."""

    def __init__(self, unseeded=False, **settings):
        if settings:
            super().__init__(**settings)
        self.generator = np.random.RandomState(5)
        self.own = random.Random(6)
        self.unseeded = unseeded

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        drawn = np.random.normal(size=(4, 2)) + self.generator.normal() + self.own.random()
        if self.unseeded:
            drawn += random.random()
        return drawn.astype("float32"), np.full((4, 1), index, "float32")

    def on_epoch_end(self):
        self.generator = np.random.RandomState(np.random.randint(1000))


def losses_of(workers, in_processes, unseeded=False):
    """The losses of a model without a random number of its own."""
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,), kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    losses = []

    class Watch(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            losses.append(float(logs["loss"]))

        on_train_batch_end = on_batch_end

    settings = {"workers": workers, "use_multiprocessing": in_processes}
    fit = {"epochs": 2, "shuffle": False, "callbacks": [Watch()], "verbose": 0}
    if hasattr(model, "fit_generator"):
        model.fit_generator(Rows(unseeded), **fit, **settings)
    else:
        model.fit(Rows(unseeded, **settings), **fit)
    return losses


for workers, in_processes in ((0, False), (1, False), (2, False), (2, True)):
    print("SAME", workers, in_processes, losses_of(workers, in_processes))
print("OTHER", losses_of(0, False, unseeded=True))
