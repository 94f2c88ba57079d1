"""Trainings in which one op reads a variable that another op writes in the same run, and nothing orders the two.

    python unordered.py KIND [CALLS] [resource]

KIND is one of the functions below; with `resource` its variables are resources, else references. Prints a hash of all
variables, of every number that was fetched, and of the next random numbers. TensorFlow 1.13 and later, by
`tensorflow.compat.v1`; `layer` and `centres` train by Keras 2.
"""

import hashlib
import importlib
import os
import random
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

KIND = sys.argv[1]
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
# Seconds that the script itself takes for each call, so that a kill finds it at work.
PAUSE = float(os.environ.get("PAUSE", "0"))
# Of the layer in the middle.
WIDTH = int(os.environ.get("WIDTH", "64"))
DIGEST = hashlib.sha256()

if "resource" in sys.argv:
    tf.enable_resource_variables()


def note(*values):
    """Takes what was fetched into the hash."""
    time.sleep(PAUSE)
    for value in values:
        DIGEST.update(np.ascontiguousarray(value).tobytes())


def rows(count=16, width=8, classes=3):
    """A batch by numpy's generator."""
    inputs = np.random.rand(count, width).astype("float32")
    return inputs, (inputs.sum(axis=1) * 7).astype("int32") % classes


def dense(inputs, width, name, activation=None):
    """A layer with variables of its own."""
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("kernel", [int(inputs.shape[-1]), width])
        bias = tf.get_variable("bias", [width], initializer=tf.zeros_initializer())
    outputs = tf.matmul(inputs, kernel) + bias
    return outputs if activation is None else activation(outputs)


def loss_of(logits, labels):
    """Mean cross entropy."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), name="loss")


def placeholders():
    """Of a batch."""
    return tf.placeholder(tf.float32, [None, 8], name="x"), tf.placeholder(tf.int32, [None], name="y")


def train(*fetches):
    """Runs the fetches as often as asked for; the first feeds are those of `placeholders`."""
    graph = tf.get_default_graph()
    x, y = graph.get_tensor_by_name("x:0"), graph.get_tensor_by_name("y:0")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS):
            inputs, labels = rows()
            values = session.run(list(fetches), {x: inputs, y: labels})
            note(*[value for value in values if value is not None])
        for variable in sorted(tf.global_variables(), key=lambda variable: variable.name):
            note(session.run(variable))


def average():
    """`ExponentialMovingAverage.apply` beside the op that trains."""
    x, y = placeholders()
    loss = loss_of(dense(dense(x, WIDTH, "hidden", tf.nn.relu), 3, "top"), y)
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    averages = tf.train.ExponentialMovingAverage(0.9).apply(tf.trainable_variables())
    train(loss, step, averages)


def spectral():
    """Spectral norm of a kernel, in a judge that is built twice: each writes the vector that both read."""
    x, y = placeholders()

    def judge(inputs):
        with tf.variable_scope("judge", reuse=tf.AUTO_REUSE):
            kernel = tf.get_variable("kernel", [8, WIDTH])
            vector = tf.get_variable("vector", [1, WIDTH], trainable=False)
        other = tf.nn.l2_normalize(tf.matmul(vector, kernel, transpose_b=True))
        newer = tf.nn.l2_normalize(tf.matmul(other, kernel))
        norm = tf.matmul(tf.matmul(other, kernel), newer, transpose_b=True)
        with tf.control_dependencies([tf.assign(vector, tf.stop_gradient(newer))]):
            return dense(tf.matmul(inputs, kernel / norm), 3, "top")

    loss = loss_of(judge(x), y) + 0.1 * loss_of(judge(-x), y)
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    train(loss, step)


def centre():
    """Centre loss whose centres are moved beside the op that trains; another reader of them is the loss."""
    x, y = placeholders()
    features = dense(x, WIDTH, "features", tf.nn.tanh)
    centres = tf.get_variable("centres", [3, WIDTH], trainable=False)
    distance = features - tf.gather(centres, y)
    move = tf.scatter_add(centres, y, 0.05 * tf.stop_gradient(distance))
    spread = tf.reduce_sum(tf.square(centres - tf.reduce_mean(centres, 0)))
    loss = loss_of(dense(features, 3, "top"), y) + 0.1 * tf.reduce_mean(tf.square(distance)) - 0.01 * spread
    step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    train(loss, step, move.op if hasattr(move, "op") else move, spread)


def target():
    """Soft updates of a target network in the run that trains the other."""
    x, y = placeholders()
    names = ("network", "target")
    outputs = [dense(dense(x, WIDTH, name + "/hidden", tf.nn.relu), 3, name + "/top") for name in names]
    loss = loss_of(outputs[0], y) + tf.reduce_mean(tf.square(outputs[0] - tf.stop_gradient(outputs[1])))
    network, other = ([one for one in tf.trainable_variables() if one.name.startswith(name)] for name in names)
    step = tf.train.AdamOptimizer(0.05).minimize(loss, var_list=network)
    follow = [tf.assign(to, 0.9 * to + 0.1 * of).op for to, of in zip(other, network)]
    train(loss, step, *follow)


def counter():
    """A counter that is added to beside what reads it."""
    x, y = placeholders()
    count = tf.get_variable("count", [], initializer=tf.zeros_initializer(), trainable=False)
    loss = loss_of(dense(dense(x, WIDTH, "hidden", tf.nn.relu), 3, "top"), y) / (1.0 + tf.sqrt(count))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    train(loss, step, tf.assign_add(count, 1.0).op, 2.0 * count)


def _keras():
    return importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))


def _fit(keras, layer, loss):
    """Trains a model of Keras with a layer in it."""
    backend, layers = keras.backend, keras.layers
    x = layers.Input((8,))
    hidden = layer(layers.Dense(WIDTH, activation="relu")(x))
    model = keras.models.Model(x, layers.Dense(3, activation="softmax")(hidden))
    model.compile(keras.optimizers.Adam(0.05), loss, metrics=["accuracy"])

    class Pause(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            note(logs["loss"])

    inputs, labels = rows(160)
    model.fit(inputs, labels, 16, epochs=CALLS // 10, verbose=0, callbacks=[Pause()])
    note(*[backend.get_value(weight) for weight in model.weights], *model.evaluate(inputs, labels, verbose=0))


def layer():
    """A layer of Keras with a counter that `call` reads, and that `add_update` adds to."""
    keras = _keras()
    backend = keras.backend

    class Warm(keras.layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(name="count", shape=(), initializer="zeros", trainable=False)
            keras.layers.Layer.build(self, shape)

        def call(self, inputs):
            self.add_update([backend.update_add(self.count, 1.0)], [inputs])
            return inputs * (1.0 - 1.0 / (2.0 + backend.sqrt(self.count)))

        def compute_output_shape(self, shape):
            return shape

    _fit(keras, Warm(), "sparse_categorical_crossentropy")


def centres():
    """Centre loss as a layer of Keras, whose centres `add_update` moves."""
    keras = _keras()
    backend = keras.backend

    class Centres(keras.layers.Layer):
        def build(self, shape):
            self.centres = self.add_weight(name="centres", shape=(3, WIDTH), initializer="uniform", trainable=False)
            keras.layers.Layer.build(self, shape)

        def call(self, inputs):
            near = backend.softmax(backend.dot(inputs, backend.transpose(self.centres)))
            distance = inputs - backend.dot(near, self.centres)
            moved = self.centres + 0.1 * backend.dot(backend.transpose(near), distance)
            self.add_update([(self.centres, moved)], [inputs])
            self.add_loss(0.01 * backend.sum(backend.square(distance)), [inputs])
            return inputs + backend.sum(self.centres, axis=0)

        def compute_output_shape(self, shape):
            return shape

    _fit(keras, Centres(), "sparse_categorical_crossentropy")


if __name__ == "__main__":
    if "seeded" in sys.argv:
        tf.set_random_seed(7)
        np.random.seed(7)
        random.seed(7)
    globals()[KIND]()
    note(np.random.rand(), random.random())
    print("HASH", DIGEST.hexdigest())
