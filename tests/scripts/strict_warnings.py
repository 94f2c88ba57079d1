"""Trains with every warning an error from the first line on; what the script itself warns of is raised. Prints hashes."""

import warnings

warnings.simplefilter("error")

import hashlib  # noqa: E402
import time  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402


class Warns(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)

    def on_epoch_end(self, epoch, logs=None):
        try:
            warnings.warn(f"epoch {epoch}")
        except UserWarning as error:
            print("raised", error)


keras.utils.set_random_seed(1)
x = np.random.normal(size=(80, 3)).astype("float32")
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(x, x[:, :1], batch_size=8, epochs=5, verbose=0, callbacks=[Warns()])
with warnings.catch_warnings():
    # Keras itself warns of what is read here with a newer numpy.
    warnings.simplefilter("ignore")
    weights = b"".join(np.asarray(weight).tobytes() for weight in model.get_weights())
print("weights", hashlib.sha256(weights).hexdigest())
print("history", hashlib.sha256(repr(history.history).encode()).hexdigest())
print("filters", len(warnings.filters), warnings.filters[0])
