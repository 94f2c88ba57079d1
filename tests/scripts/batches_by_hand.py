"""Trains by hand, changes what it is given back, and goes on after batches that fail.

    batches_by_hand.py plain     Keras's metrics only
    batches_by_hand.py metric    with a metric of its own, whose Python runs between batches (Keras 3)
    batches_by_hand.py eager     with a `train_step` of its own, run as Python, which fails where `fail` exists (Keras 3)

Where `hold-1` exists in the current directory, it goes on slowly from the batch whose number is in it.
"""
import hashlib
import os
import sys
import time

import keras
import numpy as np

mode = sys.argv[1]
np.random.seed(6)
x = np.random.normal(size=(160, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
losses, seen = [], []


class Counting(keras.metrics.Mean if mode == "metric" else object):
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_pred)

    def reset_state(self):
        seen.append(len(losses))
        super().reset_state()


class Stepping(keras.models.Model):
    def train_step(self, *args):
        if len(losses) == 15 and os.path.exists("fail"):
            raise OSError("no sensor")
        return super().train_step(*args)


inputs = keras.layers.Input((6,))
outputs = keras.layers.Dense(1, activation="sigmoid")(inputs)
model = (Stepping if mode == "eager" else keras.models.Model)(inputs, outputs)
metrics = ["accuracy", Counting()] if mode == "metric" else ["accuracy"]
settings = {"run_eagerly": True} if mode == "eager" else {}
model.compile(keras.optimizers.Adam(), "binary_crossentropy", metrics=metrics, **settings)
hold_from = int(open("hold-1").read()) if os.path.exists("hold-1") else None
batch = np.empty((8, 6), "float32")
for _ in range(16):
    for start in range(0, len(x), 8):
        batch[:] = x[start : start + 8]
        try:
            if len(losses) % 20 == 5:
                model.train_on_batch(batch[:, :5], y[start : start + 8])
            results = model.train_on_batch(batch, y=y[start : start + 8])
        except Exception as error:
            losses.append(type(error).__name__)
            continue
        losses.append([float(result) for result in results])
        results[0] = 0.0
        results.append("mine")
        if len(losses) % 10 == 0:
            predicted = model.predict_on_batch(batch)
            losses.append(predicted.tolist())
            predicted *= 0
            losses.append([float(result) for result in model.test_on_batch(batch, y[start : start + 8])])
        if hold_from is not None and len(losses) >= hold_from:
            time.sleep(0.1)
text = repr((losses, seen, [weight.tolist() for weight in model.get_weights()]))
print("sha256:", hashlib.sha256(text.encode()).hexdigest())
