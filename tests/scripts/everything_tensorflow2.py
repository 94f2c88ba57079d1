"""Trains a small model of tf.keras 2 (Keras 2 on TensorFlow 2) in two fits, from a source of batches of your choice."""

import functools

import everything_common as common
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

arguments = common.parse_arguments(epochs=20)
if arguments.seed is not None:
    tf.random.set_seed(arguments.seed)


class Images(common.AugmentedImages, keras.utils.Sequence):
    def __init__(self, images, labels):
        self.prepare(images, labels)


class ImagesWithGenerators(common.ImagesWithGenerators, Images):
    pass


class WatchedDense(layers.Dense):
    """A dense layer: every real training pass appends the bits of its kernel and outputs, summed, to `computed`."""

    def call(self, inputs, training=None):
        outputs = super().call(inputs)
        if training:
            bits = [tf.reduce_sum(tf.bitcast(tf.convert_to_tensor(x), tf.int32)) for x in (self.kernel, outputs)]
            tf.print(*bits, output_stream="file://computed")
        return outputs


shape = {"input_shape": (8, 8, 1)}
if arguments.feature == "stateful RNN":
    shape = {"batch_input_shape": (common.batch_size, 8, 8, 1)}
all_layers = common.make_layers(
    layers,
    arguments.feature,
    [layers.Conv2D(4, 3, name="first", **shape)],
    layers.Dense if arguments.unwatched else WatchedDense,
)
make_model = keras.Sequential
if arguments.feature == "train_step override":
    make_model = functools.partial(common.make_model_with_own_step, keras)
model = make_model(all_layers)


class Training(common.TrainingOfKeras2):
    images, images_with_generators = Images, ImagesWithGenerators

    def fit_source(self, settings):
        return common.TrainingOfKeras2.fit_source(self, dict(settings, **self.worker_settings()))


def slots_of(optimizer):
    return getattr(optimizer, "_variables", None) or optimizer.weights


Training(keras, arguments, model).run(slots_of)
