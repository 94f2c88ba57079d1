"""Fits with `steps_per_epoch` on a data set that changes when an epoch ends, which falls into the middle of a pass.

    python changes_between_epochs.py WORKERS [processes]
"""

import hashlib
import sys
import time

import keras
import numpy as np

BATCHES, STEPS_PER_EPOCH, EPOCHS = 20, 7, 6


class Drifting(keras.utils.PyDataset):
    """Batches whose inputs grow with every epoch."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.offset = np.zeros(1)

    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        time.sleep(0.002)
        inputs = np.random.RandomState(index).rand(8, 4).astype("float32") + self.offset[0]
        return inputs, inputs.sum(axis=1, keepdims=True)

    def on_epoch_end(self):
        self.offset = self.offset + 0.1


class Losses(keras.callbacks.Callback):
    """Keeps the loss of each batch."""

    def on_train_batch_end(self, batch, logs=None):
        losses.append(float(logs["loss"]))
        time.sleep(0.03)


losses = []
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = Drifting(workers=int(sys.argv[1]), use_multiprocessing="processes" in sys.argv, max_queue_size=5)
model.fit(data, steps_per_epoch=STEPS_PER_EPOCH, epochs=EPOCHS, callbacks=[Losses()], shuffle=False, verbose=0)
print("HASH", hashlib.sha256(np.array(losses).tobytes()).hexdigest())
