"""Trains on a `tf.data` pipeline of the kind that is named, without any seed, and prints a hash of what it learned."""

import hashlib
import sys
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

kind = sys.argv[1]
rows = np.random.normal(size=(160, 6)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1]))


def with_noise(x, y):
    return x + tf.random.normal(tf.shape(x), stddev=0.1), y


drawn = set()


def add_noise(values):
    noise = np.random.normal(size=values.shape)
    drawn.add(noise[0])
    return values + noise.astype("float32")


def a_shuffled_part(part):
    return data.shard(4, part).shuffle(40)


if kind == "map-and-batch":
    data = data.apply(tf.data.experimental.map_and_batch(with_noise, 8))
elif kind == "parallel-interleave":
    sloppy = tf.data.experimental.parallel_interleave(a_shuffled_part, cycle_length=2, sloppy=True)
    data = tf.data.Dataset.range(4).apply(sloppy).batch(8)
elif kind == "without-order":
    options = tf.data.Options()
    # What is no option cannot be set.
    name = "deterministic" if hasattr(options, "deterministic") else "experimental_deterministic"
    setattr(options, name, False)
    data = data.batch(8).with_options(options)
elif kind == "gamma":
    data = data.map(lambda x, y: (x + tf.random.gamma([6], 0.5), y)).batch(8)
elif kind == "shuffles-within":
    data = tf.data.Dataset.range(4).interleave(a_shuffled_part, cycle_length=2, block_length=2).batch(8)
elif kind == "noise-within":
    data = tf.data.Dataset.range(4).interleave(lambda part: data.shard(4, part).map(with_noise), cycle_length=2).batch(8)
elif kind == "legacy-map":
    data = data.map_with_legacy_function(with_noise, num_parallel_calls=2).batch(8)
elif kind == "draws-in-python":
    data = data.map(lambda x, y: (tf.reshape(tf.compat.v1.py_func(add_noise, [x], tf.float32), [6]), y)).batch(8)

model = keras.models.Sequential([keras.layers.Dense(4, input_shape=(6,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
slowly = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: time.sleep(0.005))
settings = {"epochs": 12, "steps_per_epoch": 20, "verbose": 0, "callbacks": [slowly]}
if kind.startswith("tensors"):
    x, y = tf.compat.v1.data.make_one_shot_iterator(data.shuffle(160).batch(8).repeat()).get_next()
if kind == "tensors":
    model.fit(x, y, **settings)
elif kind == "tensors-by-hand":
    model.train_on_batch(x, y)
elif kind == "tensors-of-a-queue":
    queue = tf.queue.FIFOQueue(300, tf.float32, [8, 6])
    tf.compat.v1.keras.backend.get_session().run(queue.enqueue_many(rows[:8][None].repeat(300, 0)))
    x = queue.dequeue()
    model.fit(x, x[:, :1], **settings)
else:
    model.fit(data.repeat(), **settings)
print("different random numbers in Python:", len(drawn))
print("sha256 of the weights:", hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest())
