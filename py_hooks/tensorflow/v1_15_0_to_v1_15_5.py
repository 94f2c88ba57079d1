"""TensorFlow 1.15, under Keras 2: random ops with a state that can be read, sessions, and what is not intercepted.

Call paths (read from 1.15.5):

    tf.random.*, initialisers, dropout -> gen_random_ops.*                           ops of the graph
    Session.run, Tensor.eval           -> BaseSession._do_run
    K.function                         -> BaseSession._make_callable_from_options    what it returns is called
    tf.keras' Model.fit, ...                                                          stopped
    tf.train.Optimizer.minimize        -> Optimizer.apply_gradients                   said to be without checkpoints
"""
from py_hooks.engine.patch import Generation, Patch
from py_hooks.tensorflow import graphs, random_ops, sessions

_RANDOM = "tensorflow.python.ops.gen_random_ops"
_SESSION = "tensorflow.python.client.session"
_KERAS = "tensorflow.python.keras.engine.training"
_OPTIMIZER = "tensorflow.python.training.optimizer"

PATCHES = (
    #     module      attribute                          advice                                why
    Patch(_RANDOM,    "random_uniform",                  random_ops.random_uniform,            "keep the state of a random op"),
    Patch(_RANDOM,    "random_standard_normal",          random_ops.random_standard_normal,    "keep the state of a random op"),
    Patch(_RANDOM,    "truncated_normal",                random_ops.truncated_normal,          "keep the state of a random op"),
    Patch(_RANDOM,    "random_uniform_int",              random_ops.random_uniform_int,        "keep the state of a random op"),
    Patch(_RANDOM,    "random_shuffle",                  random_ops.random_shuffle,            "keep the state of a random op"),
    Patch(_RANDOM,    "multinomial",                     random_ops.multinomial,               "keep the state of a random op"),
    Patch("tensorflow.python.framework.ops", "Graph._add_op", graphs.count_op,                "see which calls build"),
    Patch(_SESSION,   "BaseSession.__init__",            sessions.created,                     "number the sessions"),
    Patch(_SESSION,   "BaseSession.__del__",             sessions.deleted,                     "let forked children end"),
    Patch(_SESSION,   "BaseSession._Callable.__del__",   sessions.deleted,                     "let forked children end"),
    Patch(_SESSION,   "BaseSession._do_run",             sessions.run,                         "see reads and writes"),
    Patch(_SESSION,   "BaseSession.make_callable",       sessions.make_callable,               "see reads and writes"),
    Patch(_SESSION,   "BaseSession._make_callable_from_options", sessions.make_callable_from_options, "see reads and writes"),
    Patch(_KERAS,     "Model.fit",                       sessions.tf_keras_training,           "not train unprotected"),
    Patch(_KERAS,     "Model.fit_generator",             sessions.tf_keras_training,           "not train unprotected"),
    Patch(_KERAS,     "Model.train_on_batch",            sessions.tf_keras_training,           "not train unprotected"),
    Patch(_OPTIMIZER, "Optimizer.apply_gradients",       sessions.apply_gradients,             "say what is not intercepted"),
)

GENERATION = Generation("tensorflow", "1.15.0", "1.15.5", None, PATCHES, prepare=sessions.prepare)
