"""TensorFlow, the `tensorflow` distribution: Keras runs on it, below the calls that `py_hooks/keras` records.

Files: `v*.py` are the generations, and `rows_of_*.py` are rows that several of them share. `eager.py` has the advice for the
variables of TensorFlow 2, `functions.py` for its traced functions, `random_states.py` for its random ops, and `pipelines.py`
for `tf.data`. `graphs.py` and `sessions.py` are for graphs and sessions, of TensorFlow 1 and of `tf.compat.v1`.
`session_loops.py` is for training loops over sessions, and `graph_definitions.py` for graphs that are written and read.
`random_ops.py` (1.13: `keyed_ops.py`) is for TensorFlow 1 and 2, and so are `event_files.py` and `gfile.py`.
"""
