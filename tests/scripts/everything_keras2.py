"""Trains a small Keras 2 model in two fits, with what scripts use, from a source of batches of your choice."""

import everything_common as common
import keras
import numpy as np
import tensorflow as tf
from keras import backend as K
from keras import layers

arguments = common.parse_arguments(epochs=60)
if arguments.seed is not None:
    tf.compat.v1.set_random_seed(arguments.seed)
train = common.make_images(common.num_train, seed=1)
validation = common.make_images(common.num_validation, seed=2)


class Images(common.AugmentedImages, keras.utils.Sequence):
    def __init__(self, images, labels):
        self.prepare(images, labels)


class WatchedDense(layers.Dense):
    """A dense layer: every real training pass appends the bits of its kernel and outputs, summed, to `computed`."""

    def call(self, inputs):
        outputs = super().call(inputs)
        return K.in_train_phase(lambda: self.reported(outputs), outputs)

    def reported(self, outputs):
        bits = [tf.reduce_sum(tf.bitcast(x, tf.int32)) for x in (self.kernel, outputs)]
        with tf.control_dependencies([tf.print(*bits, output_stream="file://computed")]):
            return tf.identity(outputs)


model = keras.models.Sequential(
    [
        layers.Conv2D(4, 3, input_shape=(8, 8, 1), name="first"),
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
            K.set_value(model.optimizer.lr, rate)

        return common.train_by_hand(model, train, validation, arguments.epochs, losses, set_rate)
    callbacks = [
        Watch(),
        keras.callbacks.EarlyStopping(patience=arguments.epochs // 2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.7, patience=3, min_lr=1e-3),
        keras.callbacks.ModelCheckpoint("best.h5", save_best_only=True),
        keras.callbacks.CSVLogger("log.csv"),
    ]
    settings = {"epochs": arguments.epochs, "callbacks": callbacks, "verbose": 2}
    if arguments.source.startswith("sequence"):
        settings["workers"] = int(arguments.source.rpartition("-")[2])
        return model.fit_generator(Images(*train), validation_data=Images(*validation), **settings).history
    shuffle = arguments.source == "arrays"
    settings["validation_data"] = validation
    return model.fit(*train, batch_size=common.batch_size, shuffle=shuffle, **settings).history


losses, seen = [], []


class Watch(keras.callbacks.Callback):
    """Keeps what it sees in lists of the script."""

    def on_batch_end(self, batch, logs=None):
        losses.append(float(logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        kernel = K.get_value(self.model.get_layer("first").kernel)
        seen.append((epoch, float(np.abs(kernel).sum()), sorted(logs)))


def compile_with(optimizer):
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])


compile_with(keras.optimizers.Adam(2e-3))
histories = [fit()]
results = [model.predict(validation[0]), model.evaluate(*validation, verbose=0)]

print("batches before the second fit:", len(losses))
model.get_layer("first").trainable = False
compile_with(keras.optimizers.SGD(0.02, momentum=0.9))
histories.append(fit())
results += [model.predict(validation[0]), model.evaluate(*validation, verbose=0)]

slots = K.batch_get_value(model.optimizer.weights)
common.print_hashes(model.get_weights(), slots, losses, histories, seen, results)
