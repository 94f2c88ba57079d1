"""What the scripts everything_*.py have in common: arguments, data, the course of a training, and what they print.

The last lines of their output are SHA-256 hashes, one for each thing in which two trainings can differ.
"""

import argparse
import csv
import hashlib
import io
import os
import random
import time

import numpy as np

SOURCES = [
    "arrays",
    "arrays-unshuffled",
    "sequence-0",
    "sequence-1",
    "sequence-3",
    "processes-2",
    "own-generators",
    "own-generators-0",
    "own-generators-3",
    "own-generators-processes-2",
    "generator-0",
    "generator-1",
    "generator-3",
    "generator-processes-2",
    "images",
    "images-0",
    "images-3",
    "images-processes-2",
    "tf-data",
    "train-on-batch",
]

# What --feature takes; tests/campaigns/everything.py says which stacks have it.
FEATURES = [
    "recurrent dropout",
    "batch normalization",
    "RMSprop",
    "Adadelta",
    "learning rate schedule",
    "augmentation with workers",
    "stateful RNN",
    "train_step override",
]

batch_size = 16
# The last batch of an epoch is smaller than the others: a shape of its own.
num_train = 40 * batch_size - 6
num_validation = 4 * batch_size
num_classes = 3
steps, validation_steps = 40, 4

# By how many seconds each batch is slower than it could be, so that somebody has the time to kill it.
pace = float(os.environ.get("PACE", "0"))

# Of `ImageDataGenerator`; what needs no scipy.
augmentation = {"horizontal_flip": True, "vertical_flip": True, "channel_shift_range": 0.3}


def parse_arguments(epochs):
    """Reads the command line; `epochs` is what fits the stack."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", choices=SOURCES, required=True, help="where the batches come from")
    parser.add_argument("--seed", default="none", help="seed of all random numbers, or `none`")
    parser.add_argument("--feature", choices=FEATURES, help="a single feature that the model is to have, and no other")
    parser.add_argument("--epochs", type=int, default=epochs, help="of each of the two fits")
    parser.add_argument(
        "--unwatched", action="store_true", help="no op in the model that writes `computed`: it is compiled as a user's"
    )
    arguments = parser.parse_args()
    arguments.seed = None if arguments.seed == "none" else int(arguments.seed)
    print("epochs of each fit:", arguments.epochs)
    if arguments.feature == "stateful RNN":
        # Each batch has the size of the state.
        global num_train
        num_train = 40 * batch_size
    if arguments.seed is not None:
        random.seed(arguments.seed)
        np.random.seed(arguments.seed)
    return arguments


def make_layers(layers, feature, first, dense):
    """The layers of a model for images: of one that has many features, or a single one.

    Args:
        layers: the framework's.
        feature: of `FEATURES`, or None.
        first: the layers that take the images, up to one named `first`.
        dense: the class of the layer that is watched.
    """
    if feature == "recurrent dropout":
        middle = [layers.Reshape((36, 4)), layers.LSTM(8, dropout=0.2, recurrent_dropout=0.2)]
    elif feature == "stateful RNN":
        middle = [layers.Reshape((36, 4)), layers.LSTM(8, stateful=True)]
    elif feature == "batch normalization":
        middle = [layers.BatchNormalization(), layers.Flatten()]
    elif feature is not None:
        middle = [layers.Flatten()]
    else:
        middle = [
            layers.SpatialDropout2D(0.1),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.GaussianNoise(0.1),
        ]
    return first + middle + [dense(16, activation="relu"), layers.Dense(num_classes, activation="softmax")]


def make_model_with_own_step(keras, all_layers):
    """A model of Keras on TensorFlow 2 that has a `train_step` of its own, with random numbers in it."""
    import tensorflow as tf

    class OwnStep(keras.Sequential):
        def __init__(self, layers):
            super().__init__(layers)
            self.own_loss = keras.metrics.Mean(name="own_loss")

        def train_step(self, data):
            x, y = data
            x = x + tf.random.normal(tf.shape(x), stddev=0.05)
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, predicted))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            self.own_loss.update_state(loss)
            return dict(self.compute_metrics(x, y, predicted, None), loss=self.own_loss.result())

    return OwnStep(all_layers)


def make_images(count, seed):
    """Returns `count` noisy images, shape (count, 8, 8, 1), of a bright column, and its third of the image."""
    generator = np.random.RandomState(seed)
    columns = generator.randint(0, 8, count)
    images = generator.normal(0, 0.4, (count, 8, 8, 1))
    images[np.arange(count), :, columns] += 0.5
    # Some labels are wrong, so that there is something to learn by heart, and to stop early for.
    labels = np.where(generator.rand(count) < 0.15, generator.randint(0, num_classes, count), columns * 3 // 8)
    return images.astype("float32"), labels.astype("int64")


class AugmentedImages:
    """Images with noise that is drawn anew for every batch, in an order that is drawn anew for every epoch.

    The base of a Keras `Sequence`.
    """

    def prepare(self, images, labels):
        """Takes the data; apart from `__init__`, which is the framework's business."""
        self.images, self.labels = images, labels
        self.order = np.arange(len(images))

    def __len__(self):
        return -(-len(self.images) // batch_size)

    def __getitem__(self, index):
        chosen = self.order[index * batch_size : (index + 1) * batch_size]
        noise = np.random.normal(0, 0.2 * random.random(), self.images[chosen].shape)
        turn = random.choice([1, -1])
        return (self.images[chosen] + noise).astype("float32")[:, ::turn], self.labels[chosen]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class ImagesWithGenerators(AugmentedImages):
    """As `AugmentedImages`, with random generators of its own, one of the script, and a count of what it has built."""

    def prepare(self, images, labels):
        AugmentedImages.prepare(self, images, labels)
        self.noise, self.built = Noise(), 0

    def __getitem__(self, index):
        chosen = self.order[index * batch_size : (index + 1) * batch_size]
        noise = self.noise.draw(self.images[chosen].shape) * script_generator.random()
        self.built += 1
        return (self.images[chosen] + noise + 0.001 * (self.built % 7)).astype("float32"), self.labels[chosen]

    def on_epoch_end(self):
        self.noise.generator.shuffle(self.order)


class Noise:
    """Holds a generator that nobody sees from outside."""

    def __init__(self):
        self.generator = np.random.RandomState(5)

    def draw(self, shape):
        """Draws some noise."""
        return self.generator.normal(0, 0.2, shape)


script_generator = random.Random(7)


def generate(images, labels):
    """A Python generator of batches without end, which draws from the global generators and one of its own."""
    own = np.random.RandomState(9)
    while True:
        order = np.random.permutation(len(images))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            noise = np.random.normal(0, 0.1, images[chosen].shape) + own.normal(0, 0.1, images[chosen].shape)
            yield (images[chosen] + noise * random.random()).astype("float32"), labels[chosen]


def make_pipeline(images, labels, seed):
    """A tf.data pipeline: shuffled, interleaved, with random numbers in a map, in batches."""
    import tensorflow as tf

    def augment(image, label):
        return image + tf.random.normal(tf.shape(image), stddev=0.1), label

    parts = tf.data.Dataset.from_tensor_slices([0, 1]).interleave(
        lambda part: tf.data.Dataset.from_tensor_slices((images[:], labels[:])).shard(2, tf.cast(part, tf.int64)),
        cycle_length=2,
        num_parallel_calls=2,
    )
    return parts.shuffle(200, seed=seed).map(augment, num_parallel_calls=2).batch(batch_size).prefetch(2)


def note_computed(weights, outputs):
    """Appends what an op inside the model saw in a training pass to the file `computed`."""
    # Unseen: a file that the script makes is withdrawn when it is started again.
    with io.FileIO("computed", "a") as file:
        file.write(b"%d %d\n" % (weights, outputs))


def train_by_hand(model, train, validation, epochs, losses, set_rate):
    """Two dozen lines that many scripts have instead of `fit`; returns what `History.history` would hold."""
    images, labels = train
    history = {"loss": [], "val_loss": [], "rate": []}
    best, rate = None, 0.02
    with open("log.csv", "w") as file:
        table = csv.writer(file)
        for epoch in range(epochs):
            order = np.random.permutation(len(images))
            of_epoch = []
            for start in range(0, len(images), batch_size):
                chosen = order[start : start + batch_size]
                noise = np.random.normal(0, 0.1, images[chosen].shape).astype("float32")
                results = model.train_on_batch(images[chosen] + noise, labels[chosen])
                of_epoch.append(float(results[0]))
                time.sleep(pace)
            losses.extend(of_epoch)
            val_loss = float(model.test_on_batch(*validation)[0])
            if best is None or val_loss < best[0]:
                best = val_loss, model.get_weights()
                model.save_weights("best.weights.h5")
            elif epoch % 4 == 3:
                rate *= 0.7
                set_rate(rate)
            for name, value in zip(("loss", "val_loss", "rate"), (np.mean(of_epoch), val_loss, rate)):
                history[name].append(float(value))
            table.writerow([epoch, history["loss"][-1], val_loss, rate])
    model.set_weights(best[1])
    return history


class Training:
    """Two fits of a model, in the way that was asked for. A script fills in what its framework has of its own.

    Args:
        keras: the framework.
        arguments: of the command line.
        model: has a layer `first`.
    """

    best_model = "best.keras"
    batch_hook = "on_train_batch_end"

    def __init__(self, keras, arguments, model):
        self.keras, self.arguments, self.model = keras, arguments, model
        self.data = make_images(num_train, seed=1)
        self.validation = make_images(num_validation, seed=2)
        self.losses, self.seen = [], []
        self.sources = None

    def set_rate(self, rate):
        """Sets the learning rate."""
        self.model.optimizer.learning_rate = rate

    def value_of(self, variable):
        """The value of a variable, as a script reads it."""
        return variable.numpy()

    def make_source(self, images, labels):
        """The batches of one data set, in the way that was asked for."""
        if self.arguments.source.startswith("generator"):
            return generate(images, labels)
        return make_pipeline(images, labels, self.arguments.seed)

    def validation_source(self):
        """What a fit is validated on: arrays, where processes build the images that it is trained on."""
        is_of_arrays = self.arguments.source.startswith("images-processes")
        return self.validation if is_of_arrays else self.make_source(*self.validation)

    def fit_source(self, settings):
        """A fit on the two sources."""
        train, validation = self.sources
        return self.model.fit(train, validation_data=validation, **settings)

    def watch(self):
        """A callback that keeps what it sees in lists of the script."""
        training = self

        def on_batch_end(callback, batch, logs=None):
            training.losses.append(float(logs["loss"]))
            time.sleep(pace)

        class Watch(self.keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                kernel = training.value_of(self.model.get_layer("first").kernel)
                training.seen.append((epoch, float(np.abs(kernel).sum()), sorted(logs)))

        setattr(Watch, self.batch_hook, on_batch_end)
        return Watch()

    def first_optimizer(self):
        """The optimizer of the first fit, and a callback for its learning rate."""
        optimizers, feature = self.keras.optimizers, self.arguments.feature
        reduce = self.keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.7, patience=3, min_lr=1e-3)
        if feature == "RMSprop":
            return optimizers.RMSprop(2e-3), reduce
        if feature == "Adadelta":
            return optimizers.Adadelta(0.5), reduce
        if feature != "learning rate schedule":
            return optimizers.Adam(2e-3), reduce
        if hasattr(optimizers, "schedules"):
            return optimizers.Adam(optimizers.schedules.ExponentialDecay(5e-3, 50, 0.9)), self.keras.callbacks.Callback()
        return optimizers.Adam(), self.keras.callbacks.LearningRateScheduler(lambda epoch: 5e-3 * 0.8**epoch)

    def fit(self):
        """One training in the way that was asked for; returns its history."""
        source, epochs = self.arguments.source, self.arguments.epochs
        if source == "train-on-batch":
            return train_by_hand(self.model, self.data, self.validation, epochs, self.losses, self.set_rate)
        callbacks = self.keras.callbacks
        settings = {
            "epochs": epochs,
            "callbacks": [
                self.watch(),
                callbacks.EarlyStopping(patience=epochs // 2, restore_best_weights=True),
                self.of_rate,
                callbacks.ModelCheckpoint(self.best_model, save_best_only=True),
                callbacks.CSVLogger("log.csv"),
            ],
            "verbose": 2,
        }
        if not source.startswith("arrays"):
            # A generator, and a pipeline, go on in the second fit.
            self.sources = self.sources or (self.make_source(*self.data), self.validation_source())
            if source.startswith("generator"):
                settings.update(steps_per_epoch=steps, validation_steps=validation_steps)
            return self.fit_source(settings).history
        settings["validation_data"] = self.validation
        return self.model.fit(*self.data, batch_size=batch_size, shuffle=source == "arrays", **settings).history

    def compile_with(self, optimizer):
        self.model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])

    def results(self):
        """What the model makes of the validation data."""
        images = self.validation[0]
        settings = {"batch_size": batch_size, "verbose": 0}
        return [self.model.predict(images, **settings), self.model.evaluate(*self.validation, **settings)]

    def run(self, slots_of):
        """Trains twice, and prints what came out. `slots_of` gives the variables of an optimizer."""
        optimizer, self.of_rate = self.first_optimizer()
        self.compile_with(optimizer)
        histories = [self.fit()]
        results = self.results()
        print("batches before the second fit:", len(self.losses))
        self.model.get_layer("first").trainable = False
        self.compile_with(self.keras.optimizers.SGD(0.02, momentum=0.9))
        self.of_rate = self.keras.callbacks.Callback()
        histories.append(self.fit())
        results += self.results()
        slots = [self.value_of(variable) for variable in slots_of(self.model.optimizer)]
        print_hashes(self.model.get_weights(), slots, self.losses, histories, self.seen, results)


def print_hashes(weights, slots, losses, histories, seen, results):
    """Prints the hashes, and the next random numbers that the script would draw."""
    _print_hash("weights", *[np.ascontiguousarray(weight).tobytes() for weight in weights])
    _print_hash("optimizer slots", *[np.ascontiguousarray(slot).tobytes() for slot in slots])
    _print_hash("loss of each of {} batches".format(len(losses)), repr(losses).encode())
    for number, history in enumerate(histories, 1):
        _print_hash("history of fit {}, {} epochs".format(number, len(history["loss"])), _as_bytes(history))
    _print_hash("what a callback saw", repr(seen).encode())
    with open("log.csv", "rb") as file:
        _print_hash("bytes of log.csv", file.read())
    _print_hash("evaluate and predict", *[np.ascontiguousarray(result).tobytes() for result in results])
    _print_hash("next of random", repr([random.random() for _ in range(3)]).encode())
    _print_hash("next of numpy.random", np.random.rand(3).tobytes())
    _print_hash("next of numpy.random.default_rng()", _default_rng().tobytes())


def _default_rng():
    return np.random.default_rng().random(3)


def _as_bytes(history):
    return repr([(name, [float(value) for value in history[name]]) for name in sorted(history)]).encode()


def _print_hash(name, *parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    print("{}: {}".format(name, digest.hexdigest()))


class TrainingOfKeras2(Training):
    """On Keras 2, where a fit is told of workers, and not the data set.

    Attributes:
        images: the class of data sets with items.
        images_with_generators: that of those which own generators.
    """

    images = images_with_generators = None
    # Every generation writes it, models with layers of a script's own included.
    best_model = "best.h5"

    def make_source(self, images, labels):
        source = self.arguments.source
        if source.startswith("own-generators"):
            return self.images_with_generators(images, labels)
        if source.startswith("images"):
            images_of = self.keras.preprocessing.image.ImageDataGenerator(**augmentation)
            return images_of.flow(images, labels, batch_size, seed=self.arguments.seed)
        if source.startswith(("sequence", "processes")):
            return self.images(images, labels)
        return Training.make_source(self, images, labels)

    def worker_settings(self):
        """How many workers the fit has, and whether they are processes."""
        kind, _, number = self.arguments.source.rpartition("-")
        return {"workers": int(number) if number.isdigit() else 1, "use_multiprocessing": kind.endswith("processes")}
