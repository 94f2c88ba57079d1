"""A fit on a data set that can be sent to processes which are no copies of this one, or cannot.

    python sent_data_set.py KIND

What KIND is made so that it cannot, or changes on the way:

    sent, slow, stuck, of-script, busy, lambda, global, setting, text, state, package, within-epoch

Besides the hash of the weights it prints the process that trains, and what it finds of its children; `parents.txt` has the
process that started the one that built each item. Keras 2 and 3.
"""

import hashlib
import os
import sys

import keras
import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import rated
import sent_rows

KIND = sys.argv[1]
EPOCHS = 4


class OfScript(sent_rows.Rows):
    """Is not there where this script does not run."""


def make(**settings):
    """The data set."""
    if KIND == "busy":
        import busy_rows

        return busy_rows.Busy(**settings)
    if KIND == "of-script":
        return OfScript(**settings)
    kinds = {"slow": sent_rows.Slow, "within-epoch": sent_rows.Slow, "stuck": sent_rows.Stuck}
    rows = kinds.get(KIND, sent_rows.Rows)(**settings)
    if KIND == "lambda":
        rows.scale = lambda values: values
    elif KIND == "global":
        sent_rows.LEVEL = 2.0
    elif KIND == "setting":
        keras.backend.set_epsilon(1e-5)
    elif KIND == "text":
        keras.backend.set_image_data_format("channels_first")
    elif KIND == "state":
        np.seterr(divide="ignore")
    elif KIND == "package":
        rated.SETTINGS.rate = 2.0
    return rows


class Change(keras.callbacks.Callback):
    """Changes the data set while its items are built."""

    def on_batch_end(self, batch, logs=None):
        if KIND == "within-epoch" and batch == 4:
            rows.shift += 1

    on_train_batch_end = on_batch_end


inputs = {} if sent_rows.IS_KERAS_3 else {"input_shape": (3,)}
model = keras.models.Sequential([keras.layers.Dense(4, activation="tanh", **inputs), keras.layers.Dense(1)])
model.compile("sgd", "mse")
if sent_rows.IS_KERAS_3:
    rows = make(workers=2, use_multiprocessing=True, max_queue_size=4)
    model.fit(rows, epochs=EPOCHS, verbose=0, callbacks=[Change()])
else:
    rows = make()
    workers = {"workers": 2, "use_multiprocessing": True, "max_queue_size": 4}
    model.fit_generator(rows, epochs=EPOCHS, verbose=0, callbacks=[Change()], **workers)
print("HASH", hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights())).hexdigest())
print("TRAINER", os.getpid())
try:
    print("CHILD", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("NO CHILD")
