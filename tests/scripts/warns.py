"""Trains on a data set with an item that warns, and saves a model with a layer that warns of it."""

import time
import warnings

import keras
import numpy as np

Sequence = keras.utils.Sequence if keras.__version__.startswith("2") else keras.utils.PyDataset


class Rows(Sequence):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 7:
            warnings.warn("an item that warns")
        time.sleep(0.005)
        return np.full((4, 3), index, "float32"), np.ones((4, 1), "float32")


class Layer(keras.layers.Dense):
    def get_config(self):
        warnings.warn("a save that warns", FutureWarning)
        return super().get_config()


model = keras.models.Sequential([Layer(2, input_shape=(3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
saves = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: model.save("model.h5"))
fit = model.fit_generator if hasattr(model, "fit_generator") else model.fit
fit(Rows(), epochs=20, verbose=0, callbacks=[saves])
print("trained")
