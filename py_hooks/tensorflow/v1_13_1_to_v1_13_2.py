"""TensorFlow 1.13, under Keras 2: random ops with a state that can be read, sessions, and what is not intercepted.

Call paths (read from 1.13.1):

    tf.random.*, initialisers, dropout -> gen_random_ops.*                           built as stateless ops with a count
    Session.run, Tensor.eval           -> BaseSession._do_run
    K.function                         -> BaseSession._make_callable_from_options    what it returns is called
    tf.summary, tf.io.gfile            -> those of `rows_of_files.py`
    tf.data                            -> those of `rows_of_pipelines.py`            its iterator is an op of the graph
    tf.train.Optimizer.minimize        -> Optimizer.apply_gradients                   said to be without checkpoints
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow import graphs, keyed_ops, random_ops, rows_of_files, rows_of_pipelines, sessions

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_SESSION = "tensorflow.python.client.session"
_OPTIMIZER = "tensorflow.python.training.optimizer"
_DATASETS = "tensorflow.python.data.ops.dataset_ops"

PATCHES = (
    #     module      attribute                          advice                                why
    Patch(_RANDOM,    "random_uniform",                  keyed_ops.random_uniform,             "keep the state of a random op"),
    Patch(_RANDOM,    "random_standard_normal",          keyed_ops.random_standard_normal,     "keep the state of a random op"),
    Patch(_RANDOM,    "truncated_normal",                keyed_ops.truncated_normal,           "keep the state of a random op"),
    Patch(_RANDOM,    "random_uniform_int",              keyed_ops.random_uniform_int,         "keep the state of a random op"),
    Patch(_RANDOM,    "random_shuffle",                  keyed_ops.random_shuffle,             "keep the state of a random op"),
    Patch(_RANDOM,    "multinomial",                     keyed_ops.multinomial,                "keep the state of a random op"),
    Patch("tensorflow.python.framework.ops", "Graph._add_op", graphs.count_op,                "see which calls build"),
    Patch("tensorflow.python.autograph.pyct.compiler", "ast_to_object", graphs.generated_source, "tell the user's files"),
    Patch(_SESSION,   "BaseSession.__init__",            sessions.created,                     "number the sessions"),
    Patch(_SESSION,   "BaseSession.__del__",             sessions.deleted,                     "let forked children end"),
    Patch(_SESSION,   "BaseSession._Callable.__del__",   sessions.deleted,                     "let forked children end"),
    Patch(_SESSION,   "BaseSession._do_run",             sessions.run,                         "see reads and writes"),
    Patch(_SESSION,   "BaseSession.make_callable",       sessions.make_callable,               "see reads and writes"),
    Patch(_SESSION,   "BaseSession._make_callable_from_options", sessions.make_callable_from_options, "see reads and writes"),
    Patch(_DATASETS,  "StructuredFunctionWrapper.__init__", random_ops.pipeline_function,      "know the functions of pipelines"),
    Patch(_OPTIMIZER, "Optimizer.apply_gradients",       sessions.apply_gradients,             "say what is not intercepted"),
) + rows_of_files.ROWS + rows_of_pipelines.ROWS

GENERATION = Generation("tensorflow", "1.13.1", "1.13.2", None, PATCHES, prepare=sessions.prepare)
