"""A loop over a session of TensorFlow."""
import pedl
import tensorflow.compat.v1 as tf
from pedl.frameworks.tensorflow import TensorFlowTrial

from . import PARTS, of_trial
from .graphs import batches, loss_of


class Trial(TensorFlowTrial):
    """As `plain`."""

    def optimizer(self):
        return tf.train.GradientDescentOptimizer(0.01)

    def build_graph(self, record, is_training):
        return {"loss": loss_of(record)}

    def validation_metrics(self):
        return ["loss"]

    def callbacks(self, hparams):
        return of_trial()


def make_data_loaders(experiment_config, hparams):
    return batches(pedl.get_hyperparameter("batches")), batches(1)


def plain(parts):
    """The loop."""
    tf.disable_eager_execution()
    iterator = tf.data.make_initializable_iterator(batches(parts.batches).repeat())
    loss = loss_of(iterator.get_next())
    step = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
        session.run([tf.global_variables_initializer(), iterator.initializer])
        for _ in range(PARTS + 1):
            parts.begins()
            for _ in range(parts.batches):
                session.run([step, loss])
            parts.ended()
