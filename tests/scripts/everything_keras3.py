"""Trains a small Keras 3 model in two fits, with what scripts use, from a source of batches of your choice."""

import everything_common as common
import keras
import numpy as np
from keras import layers, ops

arguments = common.parse_arguments(epochs=20)
if arguments.seed is not None:
    keras.utils.set_random_seed(arguments.seed)
train = common.make_images(common.num_train, seed=1)
validation = common.make_images(common.num_validation, seed=2)


class Images(common.AugmentedImages, keras.utils.PyDataset):
    def __init__(self, images, labels, workers):
        keras.utils.PyDataset.__init__(self, workers=max(workers, 1), max_queue_size=4)
        self.workers = workers
        self.prepare(images, labels)


def report(weights, outputs):
    """Has every real training pass append the bits of weights and outputs, summed, to the file `computed`."""
    if keras.backend.backend() == "jax":
        import jax

        bits = [jax.lax.bitcast_convert_type(jax.lax.stop_gradient(x), "int32").sum() for x in (weights, outputs)]
        jax.debug.callback(common.note_computed, *bits)
    else:
        import tensorflow as tf

        bits = [tf.reduce_sum(tf.bitcast(tf.convert_to_tensor(x), tf.int32)) for x in (weights, outputs)]
        tf.print(*bits, output_stream="file://computed")


class WatchedDense(layers.Dense):
    """A dense layer that reports its kernel and its outputs."""

    def __init__(self, units, **settings):
        super().__init__(units, **settings)
        # XLA as TensorFlow uses it cannot write to a file.
        self.supports_jit = keras.backend.backend() == "jax"

    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        if training:
            report(ops.convert_to_tensor(self.kernel), outputs)
        return outputs


model = keras.Sequential(
    [
        layers.Input((8, 8, 1)),
        layers.Conv2D(4, 3, name="first"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Flatten(),
        layers.Dropout(0.3),
        layers.GaussianNoise(0.1),
        (layers.Dense if arguments.unwatched else WatchedDense)(16, activation="relu"),
        layers.Dense(common.num_classes, activation="softmax"),
    ]
)


def fit():
    """One training in the way that was asked for; returns its history."""
    if arguments.source == "train-on-batch":

        def set_rate(rate):
            model.optimizer.learning_rate = rate

        return common.train_by_hand(model, train, validation, arguments.epochs, losses, set_rate)
    callbacks = [
        Watch(),
        keras.callbacks.EarlyStopping(patience=arguments.epochs // 2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.7, patience=3, min_lr=1e-3),
        keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
    ]
    settings = {"epochs": arguments.epochs, "callbacks": callbacks, "verbose": 2}
    if arguments.source.startswith("sequence"):
        workers = int(arguments.source.rpartition("-")[2])
        data = Images(*train, workers=workers)
        return model.fit(data, validation_data=Images(*validation, workers=workers), **settings).history
    shuffle = arguments.source == "arrays"
    settings["validation_data"] = validation
    return model.fit(*train, batch_size=common.batch_size, shuffle=shuffle, **settings).history


losses, seen = [], []


class Watch(keras.callbacks.Callback):
    """Keeps what it sees in lists of the script."""

    def on_train_batch_end(self, batch, logs=None):
        losses.append(float(logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        kernel = keras.ops.convert_to_numpy(self.model.get_layer("first").kernel)
        seen.append((epoch, float(np.abs(kernel).sum()), sorted(logs)))


def compile_with(optimizer):
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])


compile_with(keras.optimizers.Adam(2e-3))
histories = [fit()]
results = [model.predict(validation[0], verbose=0), model.evaluate(*validation, verbose=0)]

print("batches before the second fit:", len(losses))
model.get_layer("first").trainable = False
compile_with(keras.optimizers.SGD(0.02, momentum=0.9))
histories.append(fit())
results += [model.predict(validation[0], verbose=0), model.evaluate(*validation, verbose=0)]

slots = [ops.convert_to_numpy(variable) for variable in model.optimizer.variables]
common.print_hashes(model.get_weights(), slots, losses, histories, seen, results)
