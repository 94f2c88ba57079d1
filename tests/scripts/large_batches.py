"""A fit on batches of a size, built by worker processes; prints the hash of the weights, and the most memory it mapped.

    python large_batches.py MEGABYTES WORKERS

Keras 2 and 3.
"""

import hashlib
import sys

import keras
import numpy as np

ROWS = 16
width = int(float(sys.argv[1]) * 1e6 / 4 / ROWS)
workers = int(sys.argv[2])
is_keras_3 = keras.__version__.startswith("3")
Base = keras.utils.PyDataset if is_keras_3 else keras.utils.Sequence


class Data(Base):
    """Batches of `ROWS` rows."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        rows = np.zeros((ROWS, width), "float32")
        rows[:, 0] = index / 10
        return rows, np.full((ROWS, 1), index, "float32")


# Looks at one element of each row.
first = keras.layers.Lambda(lambda rows: rows[:, :1], output_shape=(1,))
inputs = keras.layers.Input((width,))
model = keras.models.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(first(inputs)))
model.compile("sgd", "mse")
settings = {"workers": workers, "use_multiprocessing": True, "max_queue_size": 4}
if is_keras_3:
    model.fit(Data(**settings), epochs=2, verbose=0, shuffle=False)
else:
    model.fit_generator(Data(), epochs=2, verbose=0, shuffle=False, **settings)
weights = b"".join(np.ascontiguousarray(array).tobytes() for array in model.get_weights())
print("HASH", hashlib.sha256(weights).hexdigest())
with open("/proc/self/status") as status:
    print("PEAK_KB", next(line.split()[1] for line in status if line.startswith("VmPeak")))
