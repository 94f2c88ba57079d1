"""Makes the data sets that the public examples ask for, in the names, formats and shapes of the real ones.

What is in them is drawn from a seed. Images and texts of a class have something in common, so that a model can learn them.

    python public_data.py DIRECTORY GROUP...

A group that is there is not made again. The doubles beside this file find what is here (`stored.py`).
"""

import gzip
import io
import pickle
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
from stored import RECORDS, SHARDS, shard_of

CLASSES = 10
TEXTS = {"train": 2000, "test": 500}


def images(count, height, width, channels, seed):
    """`count` images, uint8 of shape (count, height, width, channels), and their classes, uint8 of shape (count,).

    Those of a class are one pattern at several brightnesses.
    """
    patterns = np.random.RandomState(1).randint(0, 256, size=(CLASSES, height // 4, width // 4, channels))
    patterns = patterns.repeat(4, axis=1).repeat(4, axis=2).astype("float32")
    dice = np.random.RandomState(seed)
    labels = dice.randint(0, CLASSES, size=count).astype("uint8")
    brightness = dice.uniform(0.3, 1.0, size=(count, 1, 1, 1)).astype("float32")
    return (patterns[labels] * brightness).astype("uint8"), labels


def digits(part):
    """Images as those of MNIST."""
    return images(60000 if part == "train" else 10000, 28, 28, 1, seed=2 if part == "train" else 3)


def idx_of(part):
    """`(name, bytes)` of both files of a part of MNIST."""
    pictures, labels = digits(part)
    name = "train" if part == "train" else "t10k"
    yield f"{name}-images-idx3-ubyte", struct.pack(">4i", 2051, len(pictures), 28, 28) + pictures.tobytes()
    yield f"{name}-labels-idx1-ubyte", struct.pack(">2i", 2049, len(labels)) + labels.tobytes()


def mnist():
    """The files of MNIST and Fashion-MNIST, and Keras's one."""
    for part in ("train", "test"):
        for name, content in idx_of(part):
            yield name + ".gz", gzip.compress(content, 1)
    (x_train, y_train), (x_test, y_test) = digits("train"), digits("test")
    arrays = {"x_train": x_train[..., 0], "y_train": y_train, "x_test": x_test[..., 0], "y_test": y_test}
    yield "mnist.npz", npz_of(arrays)


def pytorch_mnist():
    """The archive that is unpacked into the folder `MNIST`: its files where torchvision lays them."""
    members = {f"raw/{name}": content for part in ("train", "test") for name, content in idx_of(part)}
    yield "pytorch_mnist.tar.gz", archive_of(members)


def example_of(image, label):
    """A record for TensorFlow's `parse_example`."""
    import tensorflow as tf

    feature = tf.train.Feature
    features = {
        "image_raw": feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
        "label": feature(int64_list=tf.train.Int64List(value=[int(label)])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def records_of(pictures, labels):
    """The content of a TFRecord file."""
    import tempfile

    import tensorflow as tf

    with tempfile.NamedTemporaryFile() as file:
        with tf.io.TFRecordWriter(file.name) as writer:
            for image, label in zip(pictures, labels):
                writer.write(example_of(image, label))
        return Path(file.name).read_bytes()


def mnist_records():
    """TFRecords of MNIST with images of float32."""
    members = {}
    for part, name in (("train", "train"), ("test", "validation")):
        pictures, labels = digits(part)
        count = RECORDS[part]
        content = records_of(pictures[:count].astype("float32") / 255, labels)
        members[f"mnist-tfrecord/{name}/mnist-{name}.tfrecord"] = content
    yield "mnist-tfrecord.tar.gz", archive_of(members)


def datasets():
    """What the double of `tensorflow_datasets` reads: shards, as the real one has them."""
    for name, size in (("mnist", (28, 28, 1)), ("cifar10", (32, 32, 3))):
        for part, count in RECORDS.items():
            pictures, labels = images(count, *size, seed=4 if part == "train" else 5)
            for shard in range(SHARDS):
                content = records_of(pictures[shard::SHARDS], labels[shard::SHARDS])
                yield shard_of(name, part, shard), content


class _PicklerOfPython2(pickle._Pickler):
    """Bytes become the texts of Python 2, which readers of CIFAR-10 expect."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        if len(value) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(value)]) + value)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def pickle_of(value):
    """A pickle as Python 2 would have written it."""
    file = io.BytesIO()
    _PicklerOfPython2(file, 2).dump(value)
    return file.getvalue()


def cifar10():
    """The archive of CIFAR-10, and its name without an ending, as one of the examples asks for it."""
    pictures, labels = images(60000, 32, 32, 3, seed=6)
    rows = pictures.transpose(0, 3, 1, 2).reshape(60000, 3072)
    members = {}
    for number, name in enumerate([f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]):
        part = slice(number * 10000, number * 10000 + 10000)
        batch = {b"batch_label": name.encode(), b"data": rows[part], b"labels": labels[part].tolist()}
        members["cifar-10-batches-py/" + name] = pickle_of(batch)
    meta = {b"label_names": [b"class %d" % number for number in range(CLASSES)], b"num_vis": 3072}
    members["cifar-10-batches-py/batches.meta"] = pickle_of(meta)
    yield "cifar-10-python.tar.gz", archive_of(members)


def imdb():
    """Reviews as lists of numbers of words."""
    dice, arrays = np.random.RandomState(7), {}
    for part, count in TEXTS.items():
        labels = dice.randint(0, 2, size=count)
        texts = np.empty(count, dtype=object)
        for place, label in enumerate(labels):
            # Each opinion has words of its own, among those that all have.
            own = dice.randint(100 + 100 * label, 200 + 100 * label, size=30)
            texts[place] = dice.permutation(np.append(own, dice.randint(1, 19000, size=dice.randint(20, 80)))).tolist()
        arrays.update({f"x_{part}": texts, f"y_{part}": labels})
    yield "imdb.npz", npz_of(arrays)


def iris():
    """Flowers: a line that describes the file, then a line for each."""
    dice = np.random.RandomState(8)
    for name, count in (("training", 120), ("test", 30)):
        species = dice.randint(0, 3, size=count)
        sizes = 1 + species[:, None] + dice.uniform(0, 1, size=(count, 4))
        lines = [f"{count},4,setosa,versicolor,virginica"]
        lines += [",".join(f"{size:.1f}" for size in row) + f",{kind}" for row, kind in zip(sizes, species)]
        yield f"iris_{name}.csv", ("\n".join(lines) + "\n").encode()


def words():
    """Sentences, as those of the Penn Treebank: of the same ten thousand words."""
    dice, members = np.random.RandomState(9), {}
    for part, count in (("train", 2000), ("valid", 200), ("test", 200)):
        lines = [" ".join(f"word{number}" for number in row) for row in dice.randint(0, 9998, size=(count, 20))]
        members[f"simple-examples/data/ptb.{part}.txt"] = ("\n".join(lines) + "\n").encode()
    yield "simple-examples.tgz", archive_of(members)


def npz_of(arrays):
    """The content of a `.npz`."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def archive_of(members):
    """The content of a `.tar.gz` with these files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


GROUPS = {
    "mnist": mnist,
    "pytorch-mnist": pytorch_mnist,
    "mnist-records": mnist_records,
    "datasets": datasets,
    "cifar10": cifar10,
    "imdb": imdb,
    "iris": iris,
    "words": words,
}


def main(directory, *groups):
    """Makes the files of these groups that are not there yet."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for group in groups:
        marker = directory / f".{group}"
        if marker.exists():
            continue
        for name, content in GROUPS[group]():
            (directory / name).write_bytes(content)
        marker.touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
