"""An Estimator."""
import pedl
import tensorflow.compat.v1 as tf
from pedl.frameworks.tensorflow import EstimatorTrial

from . import PARTS, of_trial
from .graphs import batches, loss_of


def model_fn(features, labels, mode):
    """The model, for training and for validations."""
    loss = loss_of({"rows": features, "labels": labels})
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def input_fn(count):
    """Pairs of rows and labels."""
    return lambda: batches(count).map(lambda record: (record["rows"], record["labels"]))


class Trial(EstimatorTrial):
    """As `plain`."""

    def build_estimator(self, hparams):
        return tf.estimator.Estimator(model_fn, config=tf.estimator.RunConfig(log_step_count_steps=None))

    def build_train_spec(self, hparams):
        return tf.estimator.TrainSpec(input_fn(pedl.get_hyperparameter("batches")))

    def build_validation_spec(self, hparams):
        return tf.estimator.EvalSpec(input_fn(1))

    def callbacks(self, hparams):
        return of_trial()


def plain(parts):
    """`Estimator.train`, with a hook that has the loss of each batch."""

    class Clock(tf.train.SessionRunHook):
        def begin(self):
            self._batch = 0
            self._loss = tf.get_collection(tf.GraphKeys.LOSSES)[-1]

        def before_run(self, run_context):
            if self._batch % parts.batches == 0:
                parts.begins()
            return tf.train.SessionRunArgs(self._loss)

        def after_run(self, run_context, run_values):
            self._batch += 1
            if self._batch % parts.batches == 0:
                parts.ended()

    tf.disable_eager_execution()
    config = tf.estimator.RunConfig(save_checkpoints_secs=None, save_checkpoints_steps=None, log_step_count_steps=None)
    estimator = tf.estimator.Estimator(model_fn, model_dir="estimator", config=config)
    repeated = input_fn(parts.batches)
    estimator.train(lambda: repeated().repeat(), hooks=[Clock()], steps=(PARTS + 1) * parts.batches)
