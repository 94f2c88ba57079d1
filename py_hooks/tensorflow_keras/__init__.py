"""`tensorflow.keras`, the Keras within TensorFlow 1: where it is intercepted. A part of the `tensorflow` distribution.

Files: `v*.py` are the generations (WHERE, data). The rows they share with Keras 2, and what is done there, stand in
`py_hooks/keras` (`rows_of_graph_mode.py`, `advice.py`, `graph.py`, `enqueuers.py`); `packages.py` there tells the two
apart. The session and the random ops below are intercepted by the generations in `py_hooks/tensorflow`.
"""
