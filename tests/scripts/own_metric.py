"""Trains by hand on Keras 2.3, with a metric of the script's own that looks at itself before it starts anew.

Where `hold-1` exists in the current directory, it goes on slowly from the batch whose number is in it.
"""
import hashlib
import os
import time

import keras
import numpy as np
from keras import backend as K

np.random.seed(6)
x = np.random.normal(size=(160, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
seen = []


class SumOfOutputs(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="sum")
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        return [K.update_add(self.total, K.sum(y_pred))]

    def result(self):
        return self.total * 1

    def reset_states(self):
        seen.append(float(K.get_value(self.total)))
        K.set_value(self.total, 0.0)


model = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid", input_shape=(6,))])
model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=[SumOfOutputs()])
hold_from = int(open("hold-1").read()) if os.path.exists("hold-1") else None
losses = []
for _ in range(16):
    for start in range(0, len(x), 8):
        losses.append(model.train_on_batch(x[start : start + 8], y[start : start + 8]))
        if hold_from is not None and len(losses) >= hold_from:
            time.sleep(0.1)
print("sha256:", hashlib.sha256(repr((losses, seen, model.get_weights())).encode()).hexdigest())
