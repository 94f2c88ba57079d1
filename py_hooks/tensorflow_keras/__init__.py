"""`tensorflow.keras`, the Keras within TensorFlow 1: where it is intercepted. A part of the `tensorflow` distribution.

Files: `v*.py` are the generations (WHERE, data). `py_hooks/keras` has the rows that they share with Keras 2, and the advice
(`rows_of_graph_mode.py`, `advice.py`, `graph.py`, `enqueuers.py`); `packages.py` there distinguishes the two. The
generations in `py_hooks/tensorflow` intercept the session and the random ops below.
"""
