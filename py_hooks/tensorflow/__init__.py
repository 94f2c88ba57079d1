"""TensorFlow, the `tensorflow` distribution: what Keras runs on, below the calls that `py_hooks/keras` records.

Files: `v*.py` are the generations, `rows_of_*.py` the rows that several of them have in common. `eager.py` has the
advice for the variables of TensorFlow 2, `functions.py` for its traced functions, `random_states.py` for its random ops,
`pipelines.py` for `tf.data`; `graphs.py` and `sessions.py` are those for graphs and sessions, of TensorFlow 1 and of
`tf.compat.v1`, `session_loops.py` for training loops over them, and `graph_definitions.py` for graphs that are written and
read; `random_ops.py` (1.13: `keyed_ops.py`) is for both, and so are `event_files.py` and `gfile.py`.
"""
