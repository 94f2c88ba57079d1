"""TensorFlow, the `tensorflow` distribution: Keras runs on it, below the calls that `py_hooks/keras` records.

Rooms: `generations/` says WHERE; `variables/` has the variables of TensorFlow 2 and its functions, `random_ops/` random ops
with a state that can be saved, `data/` pipelines of `tf.data`, `sessions/` and `graphs/` what TensorFlow 1 and `tf.compat.v1`
run, and `files/` files that are written in C++. `loops.py` is for loops of the script, `ranks.py` for several processes, and
`served_graphs.py` for graphs that checkpoints keep for exports.
"""
