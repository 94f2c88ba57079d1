"""Trains a linear model on batches of several sizes with weights, and prints what each batch's metrics are, computed by hand.

The training is repeated in numpy, with 64 bits: gradients of a weighted squared error, plain SGD, from zeros. An epoch is 7
batches, of which the last is short; what follows (`pedl.callbacks`) is written into `told.txt`.
"""
import importlib
import io
import json
import os
import sys
import time

import numpy as np

ROWS, SIZE, EPOCHS, RATE = 51, 8, 3, 0.05
WAY = sys.argv[1] if len(sys.argv) > 1 else "arrays"


def data(rows=ROWS):
    """Rows, targets and weights, none of which is 0."""
    generator = np.random.RandomState(3)
    x = generator.rand(rows, 4).astype("float32")
    # Small: what is accumulated has 32 bits, and of large sums the last digit is more than the tests allow.
    y = (x.sum(1, keepdims=True) / 2 - 1 + generator.rand(rows, 1) / 2).astype("float32")
    return x, y, (0.5 + generator.rand(rows)).astype("float32")


def by_hand():
    """For each batch: how many rows it has, the sum of their weights, and its metrics."""
    x, y, weights = (array.astype("float64") for array in data())
    slope, bias, found = np.zeros((4, 1)), 0.0, []
    for _ in range(EPOCHS):
        for begin in range(0, ROWS, SIZE):
            rows = slice(begin, begin + SIZE)
            error = x[rows] @ slope + bias - y[rows]
            weighted = error * weights[rows, None]
            squares, count = float((weighted * error).sum()), len(error)
            found.append(
                {
                    "rows": count,
                    "weights": float(weights[rows].sum()),
                    "loss": squares / count,
                    "absolute": float(np.abs(error).mean()),
                    "weighted": squares / float(weights[rows].sum()),
                }
            )
            slope -= RATE * 2 / count * (x[rows].T @ weighted)
            bias -= RATE * 2 / count * float(weighted.sum())
    return found


def make_layers(keras):
    """The model as it is before it is compiled."""
    layers = [keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(4,))]
    if hasattr(keras.utils, "PyDataset"):
        layers = [keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")]
    return keras.models.Sequential(layers)


def make_model(keras):
    """The model, compiled: a loss, a mean, a mean that is weighted, and one that is no mean."""
    model = make_layers(keras)
    # The first name is that of Keras 2.2.
    rate = {"lr" if "lr" in keras.optimizers.SGD.__init__.__code__.co_varnames else "learning_rate": RATE}
    root = getattr(keras.metrics, "RootMeanSquaredError", None)
    metrics = ["mae"] if root is None else ["mae", root(name="root")]
    model.compile(keras.optimizers.SGD(**rate), "mse", metrics=metrics, weighted_metrics=["mse"])
    return model


def batches_of(keras):
    """The batches as a data set with items."""
    x, y, weights = data()
    kind = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence

    class Batches(kind):
        def __len__(self):
            return -(-ROWS // SIZE)

        def __getitem__(self, index):
            rows = slice(index * SIZE, (index + 1) * SIZE)
            return x[rows], y[rows], weights[rows]

    return Batches()


def main():
    import pedl

    keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))

    class Told(pedl.callback.Callback):
        def on_train_step_end(self, step_id, metrics):
            with open("told.txt", "a") as file:
                file.write(json.dumps(metrics) + "\n")

    class Hold(keras.callbacks.Callback):
        """Once, it waits behind the 12th batch for who kills it. The file is none that a checkpoint knows of."""

        batches = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            if self.batches == 12 and "HOLD" in os.environ and not os.path.exists(os.environ["HOLD"]):
                io.FileIO(os.environ["HOLD"], "w").close()
                while True:
                    time.sleep(1)

        on_batch_end = on_train_batch_end

    x, y, weights = data()
    model = make_model(keras)
    if WAY != "untold":
        pedl.callbacks(Told())
    settings = {"epochs": EPOCHS, "shuffle": False, "verbose": 0, "validation_data": (x[:9], y[:9]), "callbacks": [Hold()]}
    if WAY == "by-hand":
        batches = batches_of(keras)
        for _ in range(EPOCHS):
            for index in range(len(batches)):
                model.train_on_batch(*batches[index])
    elif WAY == "sequence":
        fit = model.fit if hasattr(keras.utils, "PyDataset") else getattr(model, "fit_generator", model.fit)
        fit(batches_of(keras), **settings)
    else:
        model.fit(x, y, batch_size=SIZE, sample_weight=weights, **settings)


if __name__ == "__main__":
    main()
