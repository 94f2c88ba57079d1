"""Tells shapes apart: a `TensorFlowTrial`, for TensorFlow 1.14 to 2.15.

    pedl-run --config const.yaml .              # 16 steps of 50 batches; accuracy comes to more than 0.9
    pedl checkpoint export .pedl/tensorflow --output shapes
    saved_model_cli show --dir shapes --all
    tensorboard --logdir logs

It shows a graph with dropout, metrics of training and of validations, a learning rate that falls with the batches, and
event files for TensorBoard. Kill it at any moment and run the same command again: it ends with the same weights.
"""

from pedl.frameworks.tensorflow import TensorBoard, TensorFlowTrial, wrap_dataset, wrap_optimizer

import tensorflow.compat.v1 as tf

from .data import SHAPES, make_images


def make_data_loaders(experiment_config, hparams):
    """The data set to train on, in another order in each epoch, and the one to validate on."""
    data = experiment_config["data"]
    training = wrap_dataset(tf.data.Dataset.from_tensor_slices(make_images(data["num_training"], data["noise"], seed=1)))
    validation = wrap_dataset(tf.data.Dataset.from_tensor_slices(make_images(data["num_validation"], data["noise"], seed=2)))
    training = training.shuffle(data["num_training"]).batch(hparams["batch_size"], drop_remainder=True)
    return [part.map(lambda images, labels: {"images": images, "labels": labels}) for part in (training, validation.batch(100))]


class ShapesTrial(TensorFlowTrial):
    """A small convolutional network."""

    def __init__(self, hparams):
        self.hparams = hparams

    def optimizer(self):
        rate = tf.train.exponential_decay(self.hparams["learning_rate"], self.training_counter(), 200, 0.8)
        return wrap_optimizer(tf.train.AdamOptimizer(rate))

    def build_graph(self, record, is_training):
        hidden = tf.layers.conv2d(record["images"], 8, 5, activation=tf.nn.relu)
        hidden = tf.layers.max_pooling2d(hidden, 2, 2)
        hidden = tf.layers.conv2d(hidden, 16, 3, activation=tf.nn.relu)
        hidden = tf.layers.flatten(tf.layers.max_pooling2d(hidden, 2, 2))
        hidden = tf.layers.dropout(hidden, self.hparams["dropout"], training=is_training)
        scores = tf.layers.dense(hidden, len(SHAPES))
        shapes = tf.argmax(scores, 1, output_type=tf.int32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=record["labels"], logits=scores)
        return {
            "loss": tf.reduce_mean(losses),
            "accuracy": tf.reduce_mean(tf.cast(tf.equal(shapes, record["labels"]), tf.float32)),
            "probabilities": tf.nn.softmax(scores),
        }

    def training_metrics(self):
        return ["accuracy"]

    def validation_metrics(self):
        return ["loss", "accuracy"]

    def callbacks(self, hparams):
        """Curves for TensorBoard, in `logs`."""
        return [TensorBoard("logs")]
