"""Trains a model of dense layers with dropout and batch normalisation; prints what it predicts then, as a hash.

With the word `subclass` the model is of a class of the script's own, which does not tell its architecture.
"""
import hashlib
import sys

import keras
import numpy as np
from keras import layers

rng = np.random.RandomState(5)
data, labels = rng.rand(64, 6).astype("float32"), rng.rand(64, 2).astype("float32")


class Own(keras.Model):
    """A model whose layers only its own code knows."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.first = layers.Dense(width)
        self.second = layers.Dense(2)

    def call(self, inputs):
        """Two layers, one after the other."""
        return self.second(self.first(inputs))


if "subclass" in sys.argv:
    model = Own(8)
else:
    inputs = keras.Input((6,))
    hidden = layers.BatchNormalization()(layers.Dense(8, activation="tanh")(inputs))
    model = keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.5)(hidden)))
model.compile("adam", "mse")
model.fit(data, labels, batch_size=8, epochs=3, verbose=0)
predicted = np.ascontiguousarray(model.predict(data, batch_size=64, verbose=0))
print("sha256 of what is predicted:", hashlib.sha256(predicted.tobytes()).hexdigest())
digests = sorted(hashlib.sha256(np.ascontiguousarray(weight).tobytes()).hexdigest() for weight in model.get_weights())
print("sha256 of the weights:", hashlib.sha256("".join(digests).encode()).hexdigest())
