"""A model of tensorpack with dropout and batch normalization, on a DataFlow that shuffles and adds noise.

`data.kind` in the configuration says in what it differs. Prints a hash of all metrics that its callbacks are given, and of the
weights.
"""

import hashlib
import os
import time

import numpy as np
import tensorflow as tf
import tensorpack as tp

import pedl
from pedl.callback import Callback
from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial

KIND = pedl.get_data_config().get("kind")
# Seconds that a step, and of kind `slow` a batch of a validation, takes, so that a kill finds them at work.
PAUSE = float(os.environ.get("PAUSE", "0"))
WIDTH, CLASSES = 8, 3

if KIND == "seeded":
    tp.utils.fix_rng_seed(5)


def rows(count):
    """Rows of numbers, and of which class each is."""
    inputs = np.random.rand(count, WIDTH).astype("float32")
    return [[row, int(row.sum() * 7) % CLASSES] for row in inputs]


class Noise(tp.ProxyDataFlow, tp.RNGDataFlow):
    """Adds noise of a generator of its own, of NumPy's, and of one of the definition's."""

    own = np.random.RandomState(3)

    def reset_state(self):
        tp.ProxyDataFlow.reset_state(self)
        tp.RNGDataFlow.reset_state(self)

    def __iter__(self):
        for row, label in self.ds:
            row = row + 0.1 * self.rng.rand(WIDTH) + 0.1 * np.random.rand(WIDTH) + 0.1 * self.own.rand(WIDTH)
            yield [row.astype("float32"), label]


class Slow(tp.ProxyDataFlow):
    def __iter__(self):
        for batch in self.ds:
            time.sleep(PAUSE)
            yield batch


class Clock(tp.DataFlow):
    """Rows that are others at each start."""

    def __iter__(self):
        for _ in range(100):
            yield [np.full(WIDTH, time.perf_counter(), "float32"), 0]


class Nothing(tp.DataFlow):
    def __iter__(self):
        return iter(())


def training_rows():
    flow = tp.DataFromList(rows(100), shuffle=True)
    if KIND == "threads":
        return tp.MultiThreadMapData(flow, 2, lambda row: row, buffer_size=10)
    if KIND == "processes":
        return tp.MultiProcessRunner(flow, 4, 2)
    return Clock() if KIND in ("clock", "clock, threads to validate") else Noise(flow)


def make_data_loaders(experiment_config, hparams):
    size = hparams["batch_size"]
    training, validation = training_rows(), tp.DataFromList(rows(28), shuffle=False)
    others = {
        "unbatched": lambda: (training, validation),
        "arrays": lambda: (rows(100), rows(28)),
        "three parts": lambda: (tp.MapData(tp.BatchData(training, size), lambda row: [*row, row[0]]), validation),
        "nothing": lambda: (Nothing(), tp.BatchData(validation, size)),
        "nothing to validate on": lambda: (tp.BatchData(training, size), Nothing()),
    }
    if KIND in others:
        return others[KIND]()
    held_out = tp.BatchData(validation, size, remainder=True)
    if KIND == "clock, threads to validate":
        held_out = tp.MultiThreadMapData(held_out, 2, lambda batch: batch, buffer_size=2)
    if KIND == "endless validation":
        held_out = Endless(held_out)
    return tp.BatchData(training, size), Slow(held_out) if KIND == "slow" else held_out


class Endless(tp.ProxyDataFlow):
    """Has a length, and goes on after it."""

    def __iter__(self):
        while True:
            yield from self.ds


class Model(tp.ModelDesc):
    def __init__(self, hparams):
        self.hparams = hparams

    def inputs(self):
        if KIND == "no list of inputs":
            return tf.TensorSpec((None, WIDTH), tf.float32, "row")
        return [tf.TensorSpec((None, WIDTH), tf.float32, "row"), tf.TensorSpec((None,), tf.int32, "label")]

    def build_graph(self, row, label):
        print("BUILT", "to train" if self.training else "to validate")
        hidden = tp.FullyConnected("hidden", row, self.hparams["units"], activation=tf.nn.relu)
        hidden = tp.Dropout("dropout", tp.BatchNorm("norm", hidden), rate=0.5)
        logits = tp.FullyConnected("top", hidden, CLASSES)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=label)
        tf.identity(losses, name="losses")
        right = tf.cast(tf.nn.in_top_k(logits, label, 1), tf.float32)
        accuracy = tf.reduce_mean(right, name="accuracy")
        tf.reduce_sum(tf.ones_like(right), name="rows_of_batch")
        tf.identity(row[0, 0], name="first_value")
        tf.constant(float(self.training), name="training")
        cost = tf.reduce_mean(losses, name="cross_entropy")
        tp.summary.add_moving_summary(cost, accuracy)
        if KIND == "no cost":
            return None
        return losses if KIND == "costs" else tf.identity(cost, name="cost")

    def optimizer(self):
        rate = tf.train.exponential_decay(0.01, tp.get_global_step_var(), 10, 0.9, name="learning_rate")
        tf.summary.scalar("rate", rate)
        optimizer = tf.train.AdamOptimizer(rate)
        clip = tp.gradproc.GlobalNormClip(1.0)
        return "adam" if KIND == "no optimizer" else tp.optimizer.apply_grad_processors(optimizer, [clip])


class Incomplete(tp.ModelDesc):
    def inputs(self):
        return Model.inputs(self)


class History(tp.MonitorBase):
    """Prints what monitors are given."""

    def process_scalar(self, name, value):
        print("SCALAR", self.global_step, name)


class Ends(tp.MonitorBase):
    """Ends the training at its 25th batch, or has it fail there."""

    def _trigger_step(self):
        if self.global_step != 25:
            return
        if KIND == "fails":
            raise ValueError("of a monitor")
        if KIND == "closes":
            self.trainer.sess.close()
        raise tp.train.StopTraining("enough")


class Trial(TensorpackTrial):
    def __init__(self, hparams):
        pass

    def callbacks(self, hparams):
        return [Hashes()]

    def build_model(self, hparams, trainer_type):
        print("MODEL", hparams, trainer_type)
        return {"no model": lambda: object(), "incomplete": Incomplete}.get(KIND, lambda: Model(hparams))()

    def training_metrics(self, hparams):
        other = {"text": "accuracy", "unknown training metric": ["accuracies"]}
        return other.get(KIND, ["learning_rate", "accuracy", "training", "rows_of_batch", "losses", "norm/mean/EMA"])

    def validation_metrics(self, hparams):
        if KIND == "unknown validation metric":
            return ["val_accuracy"]
        return ["accuracy", "training", "rows_of_batch", "losses", "first_value", "hidden/W", "global_step"]

    def tensorpack_monitors(self, hparams):
        if KIND == "no monitors":
            return [object()]
        ends = [Ends()] if KIND in ("ends", "fails", "closes") else []
        return [tp.callbacks.TFEventWriter(), tp.callbacks.JSONWriter(), History(), *ends]


class Defaults(TensorpackTrial):
    """Nothing but what has to be there."""

    def build_model(self, hparams, trainer_type):
        return Model(hparams)

    def validation_metrics(self, hparams):
        return ["accuracy"]


class WithoutMethods(TensorpackTrial):
    pass


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
        print("VALIDATED", step_id, sorted(metrics), flush=True)
        print("HASH", self.digest.hexdigest())
