"""Tries a `TensorFlowTrial` and an `EstimatorTrial` that stand in the script itself, by `pedl.local`."""
import os
import sys

import numpy as np
import tensorflow.compat.v1 as tf

import pedl
from pedl.frameworks.tensorflow import EstimatorTrial, TensorFlowTrial


def rows(count):
    inputs = np.sin(np.arange(count * 4.0)).reshape(count, 4).astype("float32")
    return tf.data.Dataset.from_tensor_slices(({"x": inputs}, inputs.sum(1, keepdims=True)))


def make_data_loaders(experiment_config, hparams):
    return rows(40).batch(8), rows(16).batch(8)


class Graph(TensorFlowTrial):
    def optimizer(self):
        return tf.train.GradientDescentOptimizer(pedl.get_hyperparameter("rate"))

    def build_graph(self, record, is_training):
        features, labels = record
        hidden = tf.layers.dropout(features["x"], 0.2, training=is_training)
        loss = tf.losses.mean_squared_error(labels, tf.layers.dense(hidden, 1, name="last"))
        return {"loss": loss, "twice": 2 * loss}

    def training_metrics(self):
        return ["twice"]

    def validation_metrics(self):
        return ["loss", "twice"]


def model_fn(features, labels, mode):
    output = tf.layers.dense(features["x"], 1, name="last")
    if mode == tf.estimator.ModeKeys.PREDICT:
        exported = {"serving_default": tf.estimator.export.PredictOutput({"output": output})}
        return tf.estimator.EstimatorSpec(mode, predictions={"output": output}, export_outputs=exported)
    loss = tf.losses.mean_squared_error(labels, output)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


class Ends(tf.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        run_context.request_stop()


class Estimator(EstimatorTrial):
    def build_estimator(self, hparams):
        return tf.estimator.Estimator(model_fn)

    def build_train_spec(self, hparams):
        hooks = [Ends()] if os.environ.get("KIND") == "ends" else []
        return tf.estimator.TrainSpec(lambda: rows(40).batch(8), hooks=hooks)

    def build_validation_spec(self, hparams):
        return tf.estimator.EvalSpec(lambda: rows(16).batch(8), steps=None)

    def build_serving_input_receiver_fns(self, hparams):
        return {"raw": tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.placeholder(tf.float32, [None, 4])})}


def mine():
    weights = tf.get_variable("mine", [3])
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    return session, weights


session, weights = mine() if not tf.executing_eagerly() else (None, None)
before = session and session.run(weights)
trial = {"graph": Graph, "estimator": Estimator}[sys.argv[1]]
config = {"reproducibility": {"experiment_seed": 7}, "batches_per_step": 7}
result = pedl.local(trial, {"rate": 0.1}, config, directory="kept")
print("RESULT", sorted(result.training_metrics), len(result.batch_metrics), sorted(result.validation_metrics))
reader = tf.train.load_checkpoint(result.checkpoint)
x, y = np.sin(np.arange(64.0)).reshape(16, 4), np.sin(np.arange(64.0)).reshape(16, 4).sum(1, keepdims=True)
measured = np.mean((x @ reader.get_tensor("last/kernel") + reader.get_tensor("last/bias") - y) ** 2)
print("SAME LOSS", abs(measured - result.validation_metrics["loss"]) < 1e-5)
print("STEP", reader.get_tensor("global_step"))
again = pedl.local(trial, {"rate": 0.1}, config)
print("REPEATED", again.validation_metrics == result.validation_metrics, again.checkpoint != result.checkpoint)
if session is not None:
    print("UNTOUCHED", np.array_equal(before, session.run(weights)), [one.name for one in tf.global_variables()])
print("FILES", sorted(os.listdir("kept")))
