"""TensorFlow 1: the rows that all of its generations share.

Call paths (read from 1.13.1, 1.14.0 and 1.15.5):

    Session.run, K.function      -> those of `rows_of_sessions.py`
    tf.summary, tf.io.gfile      -> those of `rows_of_files.py`
    tf.data                      -> those of `rows_of_pipelines.py`            its iterator is an op of the graph
    tf.train.Optimizer.minimize  -> Optimizer.apply_gradients                  in eager mode: reported as without checkpoints
"""
from py_hooks.engine.patch import Patch
from py_hooks.tensorflow.generations import rows_of_files, rows_of_pipelines, rows_of_sessions
from py_hooks.tensorflow.graphs import graphs
from py_hooks.tensorflow.random_ops import random_ops
from py_hooks.tensorflow.sessions import sessions

_OPTIMIZER = "tensorflow.python.training.optimizer"
_DATASETS = "tensorflow.python.data.ops.dataset_ops"

ROWS = (
    #     module      attribute                    advice                    why
    Patch("tensorflow.python.framework.ops", "Graph._add_op", graphs.count_op, "see which calls build"),
    Patch("tensorflow.python.autograph.pyct.compiler", "ast_to_object", graphs.generated_source, "tell the user's files"),
    Patch(_DATASETS,  "StructuredFunctionWrapper.__init__", random_ops.pipeline_function, "know the functions of pipelines"),
    Patch(_OPTIMIZER, "Optimizer.apply_gradients", sessions.apply_gradients, "say what is not intercepted"),
) + rows_of_sessions.ROWS + rows_of_files.ROWS + rows_of_pipelines.ROWS
