"""Trains a small model with callbacks that look at its weights while it trains, each in another way.

Where `hold-1` or `hold-2` exists in the current directory, the first or the second fit goes on slowly from the batch
whose number is in it.
"""
import hashlib
import itertools
import os
import time

import keras
import numpy as np
from keras import backend as K
from keras import layers

is_keras2 = keras.__version__.startswith("2.")
np.random.seed(5)
x = np.random.normal(size=(320, 6)).astype("float32")
y = (x[:, :3].sum(axis=1) > 0).astype("float32")
sample = np.linspace(-1, 1, 24).reshape(4, 6).astype("float32")

model = keras.models.Sequential(
    [
        layers.Dense(8, activation="relu", input_shape=(6,)),
        layers.BatchNormalization(),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    ]
)
seen = hashlib.sha256()
fits, batches = itertools.count(1), itertools.count(1)


def see(*arrays):
    """Takes note of what a callback got."""
    for array in arrays:
        seen.update(np.ascontiguousarray(array).tobytes())


def call_model():
    """The outputs for a sample, past `predict`."""
    if is_keras2:
        return K.function([model.input], [model.layers[0].output, model.output])([sample])
    return [keras.ops.convert_to_numpy(model(sample, training=False))]


def read_kernel():
    kernel = model.layers[0].kernel
    return K.get_value(kernel) if is_keras2 else kernel.numpy()


def sync(model):
    """Brings the weights back to the model, which Keras 3 on JAX keeps elsewhere while an epoch runs."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


class Look(keras.callbacks.Callback):
    """Reads, at some batches and at the end of every epoch."""

    def on_train_batch_end(self, batch, logs=None):
        sync(self.model)
        if batch % 16 == 3:
            see(read_kernel())
        if batch % 16 == 7:
            see(*self.model.get_weights())
        if batch % 16 == 11:
            see(*call_model())

    def on_epoch_end(self, epoch, logs=None):
        see(self.model.predict(sample, verbose=0), *call_model())
        if not is_keras2:
            see(*[keras.ops.convert_to_numpy(variable) for variable in self.model.optimizer.variables])


class Hold(keras.callbacks.Callback):
    """Leaves time for a kill in a fit."""

    def on_train_begin(self, logs=None):
        path = f"hold-{next(fits)}"
        self.batch = int(open(path).read()) if os.path.exists(path) else None

    def on_train_batch_end(self, batch, logs=None):
        number = next(batches)
        if self.batch is not None and number >= self.batch:
            time.sleep(0.1)


class MovingAverage(keras.callbacks.Callback):
    """Keeps an exponential moving average of the weights, and trains on from it at the end of every third epoch."""

    def on_train_begin(self, logs=None):
        self.average = self.model.get_weights()

    def on_train_batch_end(self, batch, logs=None):
        sync(self.model)
        pairs = zip(self.average, self.model.get_weights())
        self.average = [0.9 * average + 0.1 * weight for average, weight in pairs]

    def on_epoch_end(self, epoch, logs=None):
        if epoch % 3 == 2:
            self.model.set_weights(self.average)


for optimizer in (keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05, momentum=0.9)):
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=8, epochs=8, verbose=0, callbacks=[Look(), MovingAverage(), Hold()])

see(*model.get_weights())
print("sha256 of all that was seen:", seen.hexdigest())
