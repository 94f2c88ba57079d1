"""Trains a model whose step does something besides computing with variables, as named: TensorFlow 2."""
import sys

import numpy as np
import tensorflow as tf
from tensorflow import keras

kind = sys.argv[1]
others = iter(tf.data.Dataset.range(1000).map(lambda number: tf.cast(number, tf.float32)).repeat())
table = tf.lookup.experimental.DenseHashTable if hasattr(tf.lookup.experimental, "DenseHashTable") else None
table = table(tf.int64, tf.float32, default_value=1.0, empty_key=-1, deleted_key=-2)


@tf.function
def within():
    return next(others)


def of_python(value):
    return value * 2


class Odd(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs, training=None):
        weight = 1.0
        if kind == "iterator":
            weight = next(others)
        elif kind == "iterator-within":
            weight = tf.cond(tf.reduce_sum(inputs) > 0, within, lambda: 1.0)
        elif kind == "table":
            table.insert(tf.constant([1], tf.int64), tf.constant([2.0]))
        elif kind == "reads-table":
            weight = tf.reshape(table.lookup(tf.constant([1], tf.int64)), [])
        elif kind == "python":
            weight = tf.reshape(tf.numpy_function(of_python, [np.float32(0.5)], tf.float32), [])
        return self.dense(inputs) * weight


model = Odd()
model.compile("sgd", "mse")
model.fit(np.ones((32, 3), "float32"), np.ones((32, 1), "float32"), batch_size=8, epochs=2, verbose=0)
print("trained")
