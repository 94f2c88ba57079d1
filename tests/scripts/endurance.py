"""Trains a tiny model for very many batches, with a metric and validations.

    endurance.py WAY BATCHES

WAY is `fit` (one, of epochs of 100 batches), `train_on_batch` (a loop), `fits` (one of each epoch, of one model) or
`folds` (each of 10 epochs, of a new model). Where there are the pipes ENDURANCE_SAY and ENDURANCE_GO, the number of
batches goes into the one at each hundredth, and a byte is waited for in the other. The last line is the hash of what was
learned.
"""

import hashlib
import os
import sys

import keras
import numpy as np

EPOCH, ROWS = 100, 4
EPOCHS_OF_A_FOLD = 10

way, batches = sys.argv[1], int(sys.argv[2])
epochs = batches // EPOCH
# Open in both ways, so that it waits for nobody.
pipes = [os.open(os.environ[name], os.O_RDWR) for name in ("ENDURANCE_SAY", "ENDURANCE_GO") if name in os.environ]
x = np.random.RandomState(1).rand(EPOCH * ROWS, 4).astype("float32")
y = x[:, :1].copy()
digest = hashlib.sha256()
keras.utils.set_random_seed(1)


def build():
    inputs = keras.layers.Input((4,))
    model = keras.models.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    return model


def tell(epoch):
    """An epoch is over. A hundred of them are told."""
    if pipes and (epoch * 100) // epochs != ((epoch - 1) * 100) // epochs:
        os.write(pipes[0], b"%d\n" % (epoch * EPOCH))
        os.read(pipes[1], 1)


class Tell(keras.callbacks.Callback):
    def __init__(self, first=0):
        super().__init__()
        self.first = first

    def on_epoch_end(self, epoch, logs=None):
        tell(self.first + epoch + 1)


def fit(model, count, first):
    history = model.fit(
        x, y, batch_size=ROWS, epochs=count, validation_data=(x[:8], y[:8]), verbose=0, callbacks=[Tell(first)]
    )
    digest.update(repr(history.history["val_loss"][-1]).encode())


model = build()
if way == "fit":
    fit(model, epochs, 0)
elif way == "fits":
    for number in range(epochs):
        fit(model, 1, number)
elif way == "folds":
    for number in range(0, epochs, EPOCHS_OF_A_FOLD):
        model = build()
        fit(model, min(EPOCHS_OF_A_FOLD, epochs - number), number)
elif way == "train_on_batch":
    for number in range(epochs):
        for start in range(0, len(x), ROWS):
            values = model.train_on_batch(x[start : start + ROWS], y[start : start + ROWS])
        digest.update(repr([float(value) for value in values]).encode())
        model.test_on_batch(x[:8], y[:8])
        tell(number + 1)
for weight in model.get_weights():
    digest.update(weight.tobytes())
print("learned", digest.hexdigest())
