"""Trains a small model on `data.npy`.

Where `slow` exists every batch takes a while, where `chatty` does each is told, and where `hold` does it stays at one.
"""
import hashlib
import os
import time

import keras
import numpy as np
from keras import layers

HELD_BATCH = 160

keras.utils.set_random_seed(3)
data = np.load("data.npy")


class Hold(keras.callbacks.Callback):
    """Gives a test the time to do something at a known batch."""

    batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1
        if os.path.exists("slow"):
            time.sleep(0.05)
        if os.path.exists("chatty"):
            print("batch", self.batches, "." * 200, flush=True)
        if self.batches == HELD_BATCH and os.path.exists("hold"):
            print("holding", flush=True)
            while os.path.exists("hold"):
                time.sleep(0.01)


model = keras.Sequential(
    [layers.Input((64,)), layers.Dense(256, activation="tanh"), layers.Dense(256), layers.Dropout(0.1), layers.Dense(8)]
)
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
model.fit(data, data[:, :8], batch_size=8, epochs=4, callbacks=[Hold()], verbose=0)
digest = hashlib.sha256(b"".join(np.ascontiguousarray(weight).tobytes() for weight in model.get_weights()))
print("sha256 of the weights:", digest.hexdigest())
