"""Trains, and has callbacks called around its steps; writes down what they are told, and prints hashes of it.

    python step_callbacks.py KIND

KIND: `fit` validates at the end of each epoch; `by-hand` calls `train_on_batch`; `session` runs a graph of TensorFlow 1.
Mistakes: `late` gives a callback after training, `no-callback` something else, `evaluates` and `evaluates-by-hand` call the
model in a hook.
"""
import hashlib
import importlib
import io
import os
import sys
import time

import numpy as np

import pedl
from pedl.callback import Callback

KIND = sys.argv[1]
BATCHES, SIZE = 7, 8


class Noting(Callback):
    """Writes down what it is told, in a file of the script's, and in one that checkpoints know nothing of."""

    def __init__(self, name="a"):
        self.name = name
        self.total = 0.0

    def write(self, text):
        with open("callbacks.txt", "a") as file:
            file.write(f"{self.name} {text}\n")
        with io.FileIO(os.environ["NOTES"], "a") as file:
            file.write(f"{os.getpid()} {self.name} {text}\n".encode())
        print(self.name, hashlib.sha256(f"{text} {self.total}".encode()).hexdigest())

    def on_trial_begin(self):
        self.write("trial")

    def on_train_step_begin(self, step_id):
        self.write(f"begin {step_id}")

    def on_train_step_end(self, step_id, metrics):
        self.total += sum(one["loss"] for one in metrics)
        self.write(f"end {step_id} {[sorted(one.items()) for one in metrics]} {np.random.rand():.9f}")
        if KIND.startswith("evaluates") and step_id == 2 and self.name == "a":
            self.model.evaluate(x, y, verbose=0)

    def on_validation_step_begin(self, step_id):
        self.write(f"validation {step_id}")

    def on_validation_step_end(self, step_id, metrics):
        self.write(f"validated {step_id} {sorted(metrics.items())}")


x = np.sin(np.arange(BATCHES * SIZE * 3.0)).reshape(-1, 3).astype("float32")
y = x.sum(1, keepdims=True)


def by_keras():
    keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
    # The generator of torch is seeded by no other function of Keras.
    getattr(keras.utils, "set_random_seed", np.random.seed)(3)
    inputs = keras.layers.Input((3,))
    hidden = keras.layers.Dropout(0.2)(keras.layers.Dense(4, activation="tanh")(inputs))
    model = keras.models.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    noting.model = model
    slow = type("Slow", (keras.callbacks.Callback,), {"on_batch_end": lambda self, batch, logs=None: time.sleep(PAUSE)})()
    if KIND.endswith("by-hand"):
        for batch in range(3 * BATCHES):
            rows = slice(batch % BATCHES * SIZE, (batch % BATCHES + 1) * SIZE)
            model.train_on_batch(x[rows], y[rows])
            time.sleep(PAUSE)
    else:
        model.fit(x, y, batch_size=SIZE, epochs=3, verbose=0, callbacks=[slow], validation_data=(x[:16], y[:16]))
    if KIND == "late":
        pedl.callbacks(Noting())


def by_session():
    import tensorflow.compat.v1 as tf

    tf.set_random_seed(3)
    weights = tf.get_variable("weights", [3, 1], initializer=tf.ones_initializer())
    given, wanted = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 1])
    loss = tf.reduce_mean((tf.matmul(tf.nn.dropout(given, 0.8), weights) - wanted) ** 2, name="loss")
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for batch in range(3 * BATCHES):
            rows = slice(batch % BATCHES * SIZE, (batch % BATCHES + 1) * SIZE)
            session.run([train, loss], {given: x[rows], wanted: y[rows]})
            time.sleep(PAUSE)


PAUSE = float(os.environ.get("PAUSE", "0"))
noting = Noting()
if KIND == "no-callback":
    pedl.callbacks(noting, 3)
if KIND != "unasked":
    pedl.callbacks(noting, Noting("b"))
if KIND == "session":
    by_session()
else:
    by_keras()
