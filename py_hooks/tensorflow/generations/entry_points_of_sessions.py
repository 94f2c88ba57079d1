"""TensorFlow sessions: the rows of all generations, including `tf.compat.v1` of TensorFlow 2.

Call paths (read from 1.13.1, 1.14.0, 1.15.5, 2.3.4, 2.15.1 and 2.21.0):

    Session.run, Tensor.eval     -> BaseSession._do_run
    Session.make_callable        -> BaseSession.make_callable                  which has no feeds, or has them in order
    K.function                   -> BaseSession._make_callable_from_options    the script calls its result
    Saver.save, summaries        -> Graph._as_graph_def                        for a `.meta` file, or TensorBoard
    import_meta_graph            -> import_scoped_meta_graph_with_return_elements -> import_graph_def
"""
from py_hooks.engine.patch import Patch
from py_hooks.tensorflow.graphs import graph_definitions
from py_hooks.tensorflow.sessions import session_runs, sessions

_SESSION = "tensorflow.python.client.session"
_FRAMEWORK = "tensorflow.python.framework"

ROWS = (
    #     module    attribute               advice            why
    Patch(_SESSION, "BaseSession.__init__", sessions.created, "number the sessions"),
    Patch(_SESSION, "BaseSession.__del__",  sessions.deleted, "let forked children end"),
    Patch(_SESSION, "BaseSession._Callable.__del__", sessions.deleted, "let forked children end"),
    Patch(_SESSION, "BaseSession._do_run",  session_runs.run, "see reads and writes"),
    Patch(_SESSION, "BaseSession.make_callable", session_runs.make_callable, "see reads and writes"),
    Patch(_SESSION, "BaseSession._make_callable_from_options", session_runs.make_callable_from_options,
          "see reads and writes"),
    Patch(_FRAMEWORK + ".ops", "Graph._as_graph_def", graph_definitions.exported, "write the script's graph"),
    Patch(_FRAMEWORK + ".meta_graph", "export_scoped_meta_graph", graph_definitions.exported_part, "write the script's graph"),
    Patch("tensorflow.python.ops.control_flow_ops", "ControlFlowContext._to_values_def",
          graph_definitions.exported_values, "write the script's graph"),
    Patch(_FRAMEWORK + ".importer", "import_graph_def",  graph_definitions.imported,           "keep the state of a random op"),
    Patch(_FRAMEWORK + ".meta_graph", "import_scoped_meta_graph_with_return_elements",
          graph_definitions.imported_meta_graph, "keep the state of a random op"),
)
