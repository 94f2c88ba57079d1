"""A perceptron as a graph of TensorFlow 1, for a loop over sessions, a `TensorFlowTrial`, and Estimators."""
import tensorflow.compat.v1 as tf

from . import CLASSES, HIDDEN, ROWS, data


def batches(count):
    """The rows as a data set of batches."""
    rows, labels = data(count)
    return tf.data.Dataset.from_tensor_slices({"rows": rows, "labels": labels}).batch(ROWS)


def loss_of(record):
    """The mean loss of a batch."""
    size, layer = int(record["rows"].shape[1]), record["rows"]
    for number, units in enumerate((HIDDEN, HIDDEN, CLASSES)):
        kernel = tf.get_variable(f"kernel_{number}", [size, units])
        layer = tf.matmul(layer, kernel) + tf.get_variable(f"bias_{number}", [units], initializer=tf.zeros_initializer())
        size, layer = units, layer if units == CLASSES else tf.nn.relu(layer)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=record["labels"], logits=layer)
    return tf.reduce_mean(losses)
