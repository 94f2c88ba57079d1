"""`tensorflow.keras`, the Keras within TensorFlow 1: where it is intercepted. A part of the `tensorflow` distribution.

Files: `v*.py` are the generations (WHERE, data). What is done there is that of Keras 2 and stands in `py_hooks/keras`
(`advice.py`, `graph.py`, `enqueuers.py`); `packages.py` there tells the two apart. The session and the random ops below
are intercepted by the generations in `py_hooks/tensorflow`.
"""
