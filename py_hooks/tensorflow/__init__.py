"""TensorFlow, the `tensorflow` distribution: what Keras runs on, below the calls that `py_hooks/keras` records.

Files: `v*.py` are the generations; `eager.py` is the advice for TensorFlow 2 under Keras 3; `random_ops.py` and
`sessions.py` are those for TensorFlow 1 under Keras 2.
"""
