"""A callback changes what a data set builds, between epochs; its items are built by worker processes, or not.

    python changes_in_the_trainer.py WAY WORKERS [threads]

WAY is what is changed: attribute, array, global, class, function, package, environment. Keras 2 and 3.
"""

import hashlib
import io
import os
import sys

import keras
import numpy as np

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import rated

WAY, WORKERS = sys.argv[1], int(sys.argv[2])
IN_PROCESSES = WORKERS > 0 and "threads" not in sys.argv
IS_KERAS_3 = keras.__version__.startswith("3")

Base = keras.utils.PyDataset if IS_KERAS_3 else keras.utils.Sequence

LEVEL = 1.0


def leveled(factor):
    """A function with a variable of its own."""
    return lambda values: values * factor


class Data(Base):
    """Batches whose inputs depend on everything that may change."""

    offset = 0.0

    def __init__(self, **settings):
        if IS_KERAS_3:
            super().__init__(**settings)
        self.strength = 1.0
        self.table = np.ones(1000)
        self.function = leveled(1.0)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with io.FileIO("built.txt", "a") as file:
            file.write(b"%d\n" % os.getpid())
        inputs = np.random.RandomState(index).rand(4, 3) * self.strength * self.table[index] * LEVEL + self.offset
        inputs = rated.rated(self.function(inputs)).astype("float32")
        return inputs, inputs.sum(axis=1)


class Change(keras.callbacks.Callback):
    """What a schedule of augmentation does."""

    def on_epoch_end(self, epoch, logs=None):
        global LEVEL
        value = 1 + (epoch + 1) / 7
        if WAY == "attribute":
            data.strength = value
        elif WAY == "array":
            data.table[3] = value
        elif WAY == "global":
            LEVEL = value
        elif WAY == "class":
            Data.offset = value
        elif WAY == "function":
            data.function = leveled(value)
        elif WAY == "package":
            rated.SETTINGS.rate = value
        elif WAY == "environment":
            os.environ["RATE"] = str(value)


model = keras.models.Sequential(
    [keras.layers.Dense(1, kernel_initializer="ones", **({} if IS_KERAS_3 else {"input_shape": (3,)}))]
)
model.compile("sgd", "mse")
settings = {"workers": WORKERS, "use_multiprocessing": IN_PROCESSES, "max_queue_size": 4}
if IS_KERAS_3:
    data = Data(**settings)
    model.fit(data, epochs=5, shuffle=False, verbose=0, callbacks=[Change()])
else:
    data = Data()
    model.fit_generator(data, epochs=5, shuffle=False, verbose=0, callbacks=[Change()], **settings)
print("HASH", hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights())).hexdigest())
