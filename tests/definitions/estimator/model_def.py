"""An Estimator with a model of its own, as `EstimatorTrial`s have it. `data.kind` in the configuration says in what it differs.

Prints a hash of all metrics that its callbacks are given.
"""

import hashlib
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

import pedl
from pedl.callback import Callback
from pedl.frameworks.tensorflow import EstimatorTrial

KIND = pedl.get_data_config().get("kind")
# Seconds that a batch takes, so that a kill finds it at work.
PAUSE = float(os.environ.get("PAUSE", "0"))


def rows(count, seed):
    """A data set of rows of numbers, and of which class each is."""
    inputs = np.random.RandomState(seed).rand(count, 8).astype("float32")
    labels = (inputs.sum(axis=1) * 7).astype("int32") % 3
    return tf.data.Dataset.from_tensor_slices(({"x": inputs}, labels))


def input_fn(params):
    data = rows(100, 1).shuffle(100).batch(params["batch_size"])
    return tf.data.make_one_shot_iterator(data).get_next() if KIND == "tensors" else data


def eval_fn():
    data = rows(50, 2).batch(10)
    return tf.data.make_one_shot_iterator(data).get_next() if KIND == "tensors to validate" else data


def model_fn(features, labels, mode, params):
    hidden = tf.layers.dense(features["x"], 16, tf.nn.relu)
    hidden = tf.layers.dropout(hidden, 0.3, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf.layers.dense(hidden, 3)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits},
            export_outputs={"serving_default": tf.estimator.export.PredictOutput({"logits": logits})})
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    counted = tf.get_local_variable("counted", [], initializer=tf.zeros_initializer())
    with tf.control_dependencies([labels]):
        # Not without a batch.
        count = tf.assign_add(counted, 1.0)
    measured = {
        "accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1)),
        "rows": tf.metrics.mean(tf.size(labels)),
        "batches": (counted, count),
    }
    step = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=measured)


class Slow(tf.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        time.sleep(PAUSE)


class Ends(tf.train.SessionRunHook):
    """Ends the training at its 25th batch."""

    batches = 0

    def after_run(self, run_context, run_values):
        self.batches += 1
        if self.batches == 25:
            run_context.request_stop()


class Trial(EstimatorTrial):
    def __init__(self, hparams):
        self.hparams = hparams

    def callbacks(self, hparams):
        return [Hashes()]

    def build_estimator(self, hparams):
        config = tf.estimator.RunConfig(save_summary_steps=20, log_step_count_steps=50)
        if KIND == "premade":
            columns = [tf.feature_column.numeric_column("x", shape=[8])]
            return tf.estimator.DNNClassifier([16], columns, n_classes=3, optimizer="Adagrad", config=config)
        return "an estimator" if KIND == "text" else tf.estimator.Estimator(model_fn, config=config, params=hparams)

    def build_train_spec(self, hparams):
        hooks = [Slow(), Ends()] if KIND in ("ends", "served, ends") else [Slow()]
        if KIND == "premade":
            return tf.estimator.TrainSpec(lambda: input_fn(hparams), max_steps=3, hooks=hooks)
        return tf.estimator.TrainSpec(input_fn, max_steps=3, hooks=hooks)

    def build_validation_spec(self, hparams):
        return tf.estimator.EvalSpec(eval_fn, steps=2 if KIND == "two" else None, hooks=[Slow()])


    def build_serving_input_receiver_fns(self, hparams):
        if KIND not in ("served", "served, ends"):
            return "raw" if KIND == "no functions" else super().build_serving_input_receiver_fns(hparams)
        return {
            "raw": lambda: tf.estimator.export.build_raw_serving_input_receiver_fn(
                {"x": tf.placeholder(tf.float32, [None, 8], name="x")}
            )(),
            "parsing": tf.estimator.export.build_parsing_serving_input_receiver_fn(
                {"x": tf.io.FixedLenFeature([8], tf.float32)}
            ),
        }


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

    def on_validation_step_begin(self, step_id):
        print("VALIDATES", step_id, flush=True)

    def on_validation_step_end(self, step_id, metrics):
        self.note(metrics)
        print("VALIDATED", step_id, sorted(metrics), flush=True)
        print("HASH", self.digest.hexdigest())
