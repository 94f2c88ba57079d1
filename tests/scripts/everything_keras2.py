"""Trains a small Keras 2 model in two fits, with what scripts use, from a source of batches of your choice.

The environment variable KERAS_PACKAGE says which Keras: `keras`, or `tensorflow.keras`.
"""

import importlib
import os

import everything_common as common
import tensorflow as tf

keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
K, layers = keras.backend, keras.layers

arguments = common.parse_arguments(epochs=60)
if arguments.seed is not None:
    tf.compat.v1.set_random_seed(arguments.seed)


class Images(common.AugmentedImages, keras.utils.Sequence):
    def __init__(self, images, labels):
        self.prepare(images, labels)


class ImagesWithGenerators(common.ImagesWithGenerators, Images):
    pass


class WatchedDense(layers.Dense):
    """A dense layer: every real training pass appends the bits of its kernel and outputs, summed, to `computed`."""

    def call(self, inputs):
        outputs = super().call(inputs)
        return K.in_train_phase(lambda: self.reported(outputs), outputs)

    def reported(self, outputs):
        bits = [tf.reduce_sum(tf.bitcast(x, tf.int32)) for x in (self.kernel, outputs)]
        with tf.control_dependencies([tf.print(*bits, output_stream="file://computed")]):
            return tf.identity(outputs)


shape = {"input_shape": (8, 8, 1)}
if arguments.feature == "stateful RNN":
    shape = {"batch_input_shape": (common.batch_size, 8, 8, 1)}
model = keras.models.Sequential(
    common.make_layers(
        layers,
        arguments.feature,
        [layers.Conv2D(4, 3, name="first", **shape)],
        layers.Dense if arguments.unwatched else WatchedDense,
    )
)


class Training(common.TrainingOfKeras2):
    images, images_with_generators = Images, ImagesWithGenerators
    # Of Keras before 2.3 it is the only one.
    batch_hook = "on_batch_end"

    def set_rate(self, rate):
        K.set_value(self.model.optimizer.lr, rate)

    def value_of(self, variable):
        return K.get_value(variable)

    def fit_source(self, settings):
        train, validation = self.sources
        if arguments.source == "tf-data":
            # TensorFlow 1.13 sees no end of a pipeline, and the later ones not every end.
            settings.update(steps_per_epoch=common.steps, validation_steps=common.validation_steps)
            return self.model.fit(train.repeat(), validation_data=validation.repeat(), **settings)
        settings.update(self.worker_settings())
        if arguments.source.startswith("images"):
            # For Keras 2.2.4 the iterators of a newer keras_preprocessing are no sequences.
            settings.update(steps_per_epoch=common.steps, validation_steps=common.validation_steps)
        return self.model.fit_generator(train, validation_data=validation, **settings)


Training(keras, arguments, model).run(lambda optimizer: optimizer.weights)
