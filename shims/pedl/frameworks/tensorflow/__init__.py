"""Trial classes and callbacks for graphs of TensorFlow 1, and of `tf.compat.v1`."""
from __future__ import annotations

from pedl.frameworks.tensorflow.estimator_trial import EstimatorTrial as EstimatorTrial
from pedl.frameworks.tensorflow.tensorboard import TensorBoard as TensorBoard
from pedl.frameworks.tensorflow.tensorflow_trial import TensorFlowTrial as TensorFlowTrial
from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial as TensorpackTrial
from pedl.frameworks.wrapping import wrap_dataset as wrap_dataset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    _T = TypeVar("_T")


def wrap_optimizer(optimizer: _T) -> _T:
    """Accepts a `tf.train.Optimizer`, right after it is created. Returns it.

    With one device there is nothing to do.
    """
    return optimizer
