"""A perceptron in Keras, on a `Sequence`."""
import keras
import pedl
from pedl.frameworks.keras import KerasTrial

from . import CLASSES, COLUMNS, HIDDEN, PARTS, ROWS, data, of_trial


class Batches(getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence):
    """The rows, in batches."""

    def __init__(self, batches):
        super().__init__()
        self._rows, self._labels = data(batches)

    def __len__(self):
        return len(self._rows) // ROWS

    def __getitem__(self, index):
        rows = slice(index * ROWS, (index + 1) * ROWS)
        return self._rows[rows], self._labels[rows]


def build():
    """A model that is not compiled."""
    inputs = keras.layers.Input((COLUMNS,))
    hidden = keras.layers.Dense(HIDDEN, activation="relu")(inputs)
    hidden = keras.layers.Dense(HIDDEN, activation="relu")(hidden)
    return keras.models.Model(inputs, keras.layers.Dense(CLASSES, activation="softmax")(hidden))


class Trial(KerasTrial):
    """As `plain`."""

    def build_model(self, hparams):
        return build()

    def optimizer(self):
        return keras.optimizers.SGD(0.01)

    def loss(self):
        return "sparse_categorical_crossentropy"

    def batch_size(self):
        return ROWS

    def training_metrics(self):
        return {}

    def validation_metrics(self):
        return {}

    def callbacks(self, hparams):
        return of_trial()


def make_data_loaders(experiment_config, hparams):
    return Batches(pedl.get_hyperparameter("batches")), Batches(1)


def plain(parts):
    """The loop of Keras."""

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            parts.begins()

        def on_epoch_end(self, epoch, logs=None):
            parts.ended()

    model = build()
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    fit = model.fit_generator if keras.__version__.startswith("2") else model.fit
    fit(Batches(parts.batches), epochs=PARTS + 1, callbacks=[Clock()], verbose=0, shuffle=False)
