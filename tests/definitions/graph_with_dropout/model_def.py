"""A graph with dropout, as `TensorFlowTrial`s have it. `data.kind` in the configuration says in what it differs.

Prints a hash of all metrics that its callbacks are given, the weights among them.
"""

import hashlib
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

import pedl
from pedl.callback import Callback
from pedl.frameworks.tensorflow import TensorFlowTrial, wrap_dataset, wrap_optimizer

KIND = pedl.get_data_config().get("kind")
# Seconds that a step and, of kind `slow`, a batch of a validation takes, so that a kill finds them at work.
PAUSE = float(os.environ.get("PAUSE", "0"))
CLASSES = 3


def rows(count, width=8):
    """Rows of numbers, and of which class each is."""
    inputs = np.random.rand(count, width).astype("float32")
    return {"inputs": inputs, "labels": (inputs.sum(axis=1) * 7).astype("int32") % CLASSES}


def slow_batches(data, size):
    """A data set whose batches take time."""

    def make():
        for first in range(0, 28, size):
            time.sleep(PAUSE)
            yield {name: array[first:first + size] for name, array in data.items()}

    shapes = {"inputs": [None, 8], "labels": [None]}
    return tf.data.Dataset.from_generator(make, {"inputs": tf.float32, "labels": tf.int32}, shapes)


def changed(validation):
    """The data set to validate on, where its elements are others than those to train on."""
    change = {
        "structure": lambda row: (row["inputs"], row["labels"]),
        "types": lambda row: dict(row, labels=tf.cast(row["labels"], tf.int64)),
        "shapes": lambda row: dict(row, inputs=row["inputs"][:5]),
    }.get(KIND)
    return validation if change is None else validation.map(change)


def make_data_loaders(experiment_config, hparams):
    print("LOADERS", experiment_config["data"].get("path"), hparams)
    size = hparams["batch_size"]
    training = tf.data.Dataset.from_tensor_slices(rows(100)).shuffle(100)
    held_out = rows(28)
    validation = changed(tf.data.Dataset.from_tensor_slices(held_out))
    if KIND == "unbatched":
        return training, validation
    if KIND == "rows":
        return training.map(lambda row: row["inputs"]).repeat(), validation.map(lambda row: row["inputs"])
    if KIND == "arrays":
        return rows(100), held_out
    if KIND == "one":
        return training.batch(size)
    if KIND == "nothing":
        return training.batch(size), validation.take(0).batch(size)
    validation = slow_batches(held_out, size) if KIND == "slow" else validation.batch(size)
    return wrap_dataset(training.batch(size, drop_remainder=KIND != "leftovers").prefetch(2)), wrap_dataset(validation)


class Trial(TensorFlowTrial):
    def __init__(self, hparams):
        self.hparams = hparams

    def callbacks(self, hparams):
        return [Hashes()]

    def optimizer(self):
        return "adam" if KIND == "no optimizer" else wrap_optimizer(tf.train.AdamOptimizer(self.rate))

    def build_graph(self, record, is_training):
        print("BUILT", sorted(record), is_training.dtype.name, is_training.shape)
        hidden = tf.layers.dense(record["inputs"], self.hparams["units"], tf.nn.relu, name="hidden")
        hidden = tf.layers.batch_normalization(hidden, training=is_training)
        hidden = tf.layers.dropout(hidden, 0.5, training=is_training)
        logits = tf.layers.dense(hidden, CLASSES, name="top")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=record["labels"], logits=logits)
        right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), record["labels"])
        self.rate = tf.train.exponential_decay(0.01, self.training_counter(), 10, 0.9)
        with tf.device("/cpu:1"):
            # There is one, unless the session is configured otherwise.
            placed = tf.reduce_mean(losses, name="placed")
        outputs = {
            "loss": placed,
            "accuracy": tf.reduce_mean(tf.cast(right, tf.float32)),
            "rows of batch": tf.shape(logits)[0],
            "training": tf.cast(is_training, tf.float32),
            "first label": tf.cast(record["labels"][0], tf.float32),
            "losses": losses,
            "kernel": tf.trainable_variables()[0],
            "counter": self.training_counter(),
        }
        if KIND == "no loss":
            del outputs["loss"]
        if KIND == "losses":
            outputs["loss"] = losses
        return [outputs] if KIND == "list" else outputs

    def training_metrics(self):
        other = {"loss in metrics": ["loss"], "unknown training metric": ["accuracies"], "text": "accuracy"}
        return other.get(KIND, ["accuracy", "rows of batch", "training", "losses"])

    def validation_metrics(self):
        if KIND == "unknown validation metric":
            return ["loss", "val_loss"]
        return ["loss", "accuracy", "rows of batch", "training", "first label", "losses", "kernel", "counter"]

    def session_config(self):
        config = super().session_config()
        if KIND == "hard placement":
            config.allow_soft_placement = False
        return config


class Defaults(TensorFlowTrial):
    """Nothing but what has to be there."""

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(0.1)

    def build_graph(self, record, is_training):
        logits = tf.layers.dense(record["inputs"], CLASSES)
        return {"loss": tf.losses.sparse_softmax_cross_entropy(record["labels"], logits)}

    def validation_metrics(self):
        return ["loss"]


class Incomplete(TensorFlowTrial):
    def validation_metrics(self):
        return ["loss"]


class Hashes(Callback):
    def __init__(self):
        self.digest = hashlib.sha256()

    def note(self, metrics):
        for name in sorted(metrics):
            self.digest.update(name.encode() + np.ascontiguousarray(metrics[name]).tobytes())

    def on_train_step_end(self, step_id, metrics):
        for each in metrics:
            self.note(each)
        print("STEP", step_id, len(metrics), sorted(metrics[0]))
        time.sleep(PAUSE)

    def on_validation_step_begin(self, step_id):
        print("VALIDATES", step_id, flush=True)

    def on_validation_step_end(self, step_id, metrics):
        self.note(metrics)
        print("VALIDATED", step_id, sorted(metrics), metrics["kernel"].shape, flush=True)
        print("HASH", self.digest.hexdigest())
