"""What everything_keras2.py and everything_keras3.py have in common: arguments, data, and what they print.

The last lines of their output are SHA-256 hashes, one for each thing in which two trainings can differ.
"""

import argparse
import csv
import hashlib
import os
import random

import numpy as np

SOURCES = ["arrays", "arrays-unshuffled", "sequence-0", "sequence-1", "sequence-3", "train-on-batch"]

batch_size = 16
# The last batch of an epoch is smaller than the others: a shape of its own.
num_train = 40 * batch_size - 6
num_validation = 4 * batch_size
num_classes = 3


def parse_arguments(epochs):
    """Reads the command line; `epochs` is what fits the stack."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", choices=SOURCES, required=True, help="where the batches come from")
    parser.add_argument("--seed", default="none", help="seed of all random numbers, or `none`")
    parser.add_argument("--epochs", type=int, default=epochs, help="of each of the two fits")
    parser.add_argument(
        "--unwatched", action="store_true", help="no op in the model that writes `computed`: it is compiled as a user's"
    )
    arguments = parser.parse_args()
    arguments.seed = None if arguments.seed == "none" else int(arguments.seed)
    print("epochs of each fit:", arguments.epochs)
    if arguments.seed is not None:
        random.seed(arguments.seed)
        np.random.seed(arguments.seed)
    return arguments


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


def note_computed(weights, outputs):
    """Appends what an op inside the model saw in a training pass to the file `computed`."""
    file = os.open("computed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(file, b"%d %d\n" % (weights, outputs))
    os.close(file)


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
