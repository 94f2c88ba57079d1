"""`tensorflow.keras`, the Keras within TensorFlow 1 and 2.2 to 2.5: where it is intercepted, as a part of `tensorflow`.

`generations/` says WHERE. `py_hooks/keras` has the rows that they share with Keras 2, and the advice; `packages.py` there
distinguishes the two. The generations in `py_hooks/tensorflow` intercept the session, the variables and the random ops below.
"""
