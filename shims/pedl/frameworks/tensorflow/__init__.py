"""Trial classes and callbacks for graphs of TensorFlow 1, and of `tf.compat.v1`."""
from pedl.frameworks.tensorflow.estimator_trial import EstimatorTrial as EstimatorTrial
from pedl.frameworks.tensorflow.tensorboard import TensorBoard as TensorBoard
from pedl.frameworks.tensorflow.tensorflow_trial import TensorFlowTrial as TensorFlowTrial
from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial as TensorpackTrial
from pedl.frameworks.wrapping import wrap_dataset as wrap_dataset


def wrap_optimizer(optimizer):
    """Accepts a `tf.train.Optimizer`, right after it is created. Returns it.

    With one device there is nothing to do.
    """
    return optimizer
