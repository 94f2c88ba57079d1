"""TensorFlow 1.15, under Keras 2: random ops are built as twins, as in 1.14; feeds are wrapped.

Call paths (read from 1.15.5):

    tf.random.*, initialisers, dropout -> gen_random_ops.*                     ops of the graph
    tf.train.Optimizer.minimize        -> Optimizer.apply_gradients            in eager mode: reported as without checkpoints
    Session.run, K.function            -> those of `entry_points_of_sessions.py`
    tf.summary, tf.io.gfile            -> those of `entry_points_of_files.py`
    tf.data                            -> those of `entry_points_of_pipelines.py`     its iterator is an op of the graph
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.tensorflow import TensorFlowFacts
from py_hooks.tensorflow.data import pipelines
from py_hooks.tensorflow.generations import entry_points_of_files, entry_points_of_pipelines, entry_points_of_sessions
from py_hooks.tensorflow.graphs import graphs
from py_hooks.tensorflow.random_ops import random_ops
from py_hooks.tensorflow.sessions import not_intercepted, sessions

FACTS = TensorFlowFacts(
    computes_in_sessions=True,
    context_has_config=True,
    graph_numbers_ops=True,
    seeds_count_seeds=False,
    feeds_are_wrapped=True,
    feed_keys_are_references=True,
    writer_ends_by_event=True,
    option_of_order="experimental_deterministic",
    option_of_tuning="experimental_optimization.autotune",
)

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_DATASETS = "tensorflow.python.data.ops.dataset_ops"

PATCHES = (
    #     module   attribute                 advice                             why
    Patch(_RANDOM, "random_uniform",         random_ops.random_uniform,         "keep the state of a random op"),
    Patch(_RANDOM, "random_standard_normal", random_ops.random_standard_normal, "keep the state of a random op"),
    Patch(_RANDOM, "truncated_normal",       random_ops.truncated_normal,       "keep the state of a random op"),
    Patch(_RANDOM, "random_uniform_int",     random_ops.random_uniform_int,     "keep the state of a random op"),
    Patch(_RANDOM, "random_shuffle",         random_ops.random_shuffle,         "keep the state of a random op"),
    Patch(_RANDOM, "multinomial",            random_ops.multinomial,            "keep the state of a random op"),
    Patch(_DATASETS, "DatasetV1.map_with_legacy_function", pipelines.mapped, "repeat elements in a replay"),
    Patch("tensorflow.python.framework.ops", "Graph._add_op", graphs.count_op, "see which calls build"),
    Patch("tensorflow.python.autograph.pyct.compiler", "ast_to_object", graphs.generated_source, "tell the user's files"),
    Patch(_DATASETS, "StructuredFunctionWrapper.__init__", random_ops.pipeline_function, "know the functions of pipelines"),
    Patch("tensorflow.python.training.optimizer", "Optimizer.apply_gradients", not_intercepted.apply_gradients,
          "say what is not intercepted"),
) + entry_points_of_sessions.ROWS + entry_points_of_files.ROWS + entry_points_of_pipelines.ROWS

GENERATION = Generation("tensorflow", "1.15.0", "1.15.5", FACTS, PATCHES, prepare=sessions.prepare)
