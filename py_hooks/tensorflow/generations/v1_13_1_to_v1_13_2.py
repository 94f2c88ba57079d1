"""TensorFlow 1.13, under Keras 2: its random ops have no state that can be read, and are built as stateless ones.

Call paths (read from 1.13.1):

    tf.random.*, initialisers, dropout -> gen_random_ops.*                     built as stateless ops with a count
    tf.train.Optimizer.minimize        -> Optimizer.apply_gradients            in eager mode: reported as without checkpoints
    Session.run, K.function            -> those of `entry_points_of_sessions.py`
    tf.summary, tf.io.gfile            -> those of `entry_points_of_files.py`
    tf.data                            -> those of `entry_points_of_pipelines.py`     its iterator is an op of the graph
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.facts.tensorflow import TensorFlowFacts
from py_hooks.tensorflow.generations import entry_points_of_files, entry_points_of_pipelines, entry_points_of_sessions
from py_hooks.tensorflow.graphs import graphs
from py_hooks.tensorflow.random_ops import keyed_ops, random_ops
from py_hooks.tensorflow.sessions import not_intercepted, sessions

FACTS = TensorFlowFacts(
    computes_in_sessions=True,
    context_has_config=False,
    graph_numbers_ops=True,
    seeds_count_seeds=False,
    feeds_are_wrapped=False,
    feed_keys_are_references=False,
    writer_ends_by_event=True,
    option_of_order="experimental_deterministic",
    option_of_tuning="experimental_autotune",
)

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_DATASETS = "tensorflow.python.data.ops.dataset_ops"

PATCHES = (
    #     module   attribute                 advice                            why
    Patch(_RANDOM, "random_uniform",         keyed_ops.random_uniform,         "keep the state of a random op"),
    Patch(_RANDOM, "random_standard_normal", keyed_ops.random_standard_normal, "keep the state of a random op"),
    Patch(_RANDOM, "truncated_normal",       keyed_ops.truncated_normal,       "keep the state of a random op"),
    Patch(_RANDOM, "random_uniform_int",     keyed_ops.random_uniform_int,     "keep the state of a random op"),
    Patch(_RANDOM, "random_shuffle",         keyed_ops.random_shuffle,         "keep the state of a random op"),
    Patch(_RANDOM, "multinomial",            keyed_ops.multinomial,            "keep the state of a random op"),
    Patch("tensorflow.python.framework.ops", "Graph._add_op", graphs.count_op, "see which calls build"),
    Patch("tensorflow.python.autograph.pyct.compiler", "ast_to_object", graphs.generated_source, "tell the user's files"),
    Patch(_DATASETS, "StructuredFunctionWrapper.__init__", random_ops.pipeline_function, "know the functions of pipelines"),
    Patch("tensorflow.python.training.optimizer", "Optimizer.apply_gradients", not_intercepted.apply_gradients,
          "say what is not intercepted"),
) + entry_points_of_sessions.ROWS + entry_points_of_files.ROWS + entry_points_of_pipelines.ROWS

GENERATION = Generation("tensorflow", "1.13.1", "1.13.2", FACTS, PATCHES, prepare=sessions.prepare)
