"""The training loops of trial classes, which pedl-run and `pedl.local` share.

A loop trains a trial on a host (`host.py`), which counts batches and decides what is due. That of pedl-run records each call,
and answers it in a replay (`py_hooks/boot/trial_host.py`); that of `pedl.local` computes one step (`pedl/_local/host.py`).
`run.py` calls the user's class and functions in their order, and the loop of the class: `keras.py`, `tensorflow.py`,
`estimator.py` or `pytorch.py`.

In a replay these loops visit the recorded batches, and compute nothing. Callbacks are called again with the metrics of the
record, so that their state, and the files that they write, are as before.
"""
