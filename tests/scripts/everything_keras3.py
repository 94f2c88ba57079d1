"""Trains a small Keras 3 model in two fits, with what scripts use, from a source of batches of your choice."""

import functools

import everything_common as common
import keras
from keras import layers, ops

arguments = common.parse_arguments(epochs=20)
if arguments.seed is not None:
    keras.utils.set_random_seed(arguments.seed)


class Images(common.AugmentedImages, keras.utils.PyDataset):
    def __init__(self, images, labels, workers=0, in_processes=False):
        keras.utils.PyDataset.__init__(
            self, workers=max(workers, 1), max_queue_size=4, use_multiprocessing=in_processes
        )
        self.workers = workers
        self.prepare(images, labels)


class ImagesWithGenerators(common.ImagesWithGenerators, Images):
    pass


def report(weights, outputs):
    """Has every real training pass append the bits of weights and outputs, summed, to the file `computed`."""
    if keras.backend.backend() == "jax":
        import jax

        bits = [jax.lax.bitcast_convert_type(jax.lax.stop_gradient(x), "int32").sum() for x in (weights, outputs)]
        jax.debug.callback(common.note_computed, *bits)
    elif keras.backend.backend() == "torch":
        import torch

        # On `meta` a model is only built.
        if weights.device.type != "meta":
            common.note_computed(*[int(x.detach().contiguous().view(torch.int32).sum()) for x in (weights, outputs)])
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


shape = {"batch_shape": (common.batch_size, 8, 8, 1)} if arguments.feature == "stateful RNN" else {"shape": (8, 8, 1)}
all_layers = common.make_layers(
    layers,
    arguments.feature,
    [layers.Input(**shape), layers.Conv2D(4, 3, name="first")],
    layers.Dense if arguments.unwatched else WatchedDense,
)
make_model = keras.Sequential
if arguments.feature == "train_step override":
    make_model = functools.partial(common.make_model_with_own_step, keras)
model = make_model(all_layers)


class Training(common.Training):
    def value_of(self, variable):
        return ops.convert_to_numpy(variable)

    def make_source(self, images, labels):
        kind, _, number = arguments.source.rpartition("-")
        if kind in ("sequence", "processes"):
            return Images(images, labels, int(number), in_processes=kind == "processes")
        in_processes = kind.endswith("-processes")
        if arguments.source.startswith("own-generators"):
            return ImagesWithGenerators(images, labels, int(number) if number.isdigit() else 1, in_processes)
        if arguments.source.startswith("images"):
            from keras.src.legacy.preprocessing.image import ImageDataGenerator

            images_of = ImageDataGenerator(**common.augmentation)
            iterator = images_of.flow(images, labels, common.batch_size, seed=arguments.seed)
            iterator.workers = int(number) if kind else 1
            iterator.use_multiprocessing = in_processes
            return iterator
        return common.Training.make_source(self, images, labels)


Training(keras, arguments, model).run(lambda optimizer: optimizer.variables)
