"""The double of the package `tensorflow_datasets` for the public examples: its builders of MNIST and CIFAR-10.

As the real ones do, they read shards of records, in turns; with `shuffle_files` in an order that is drawn for each pass.
"""

import importlib

import stored


class _Builder:
    """A data set of images.

    Args:
        data_dir: Not looked at: the files are those of `public_data.py`.
    """

    name = None
    shape = None

    def __init__(self, data_dir=None):
        self._files = None

    def download_and_prepare(self, download_dir=None):
        """Looks whether its files are there."""
        self._files = {part: [self._shard(part, shard) for shard in range(stored.SHARDS)] for part in stored.RECORDS}

    def _shard(self, part, shard):
        return str(stored.file_of(stored.shard_of(self.name, part, shard)))

    def as_dataset(self, shuffle_files=False):
        """Its two parts, of dicts with an `image`, uint8, and a `label`, int64."""
        return {part: self._dataset(files, shuffle_files) for part, files in self._files.items()}

    def _dataset(self, files, shuffle_files):
        tf = importlib.import_module("tensorflow")
        features = {"image_raw": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

        def parse(record):
            found = tf.io.parse_single_example(record, features)
            image = tf.reshape(tf.io.decode_raw(found["image_raw"], tf.uint8), self.shape)
            return {"image": image, "label": found["label"]}

        dataset = tf.data.Dataset.from_tensor_slices(files)
        if shuffle_files and files is self._files["train"]:
            dataset = dataset.shuffle(len(files))
        return dataset.interleave(tf.data.TFRecordDataset, cycle_length=len(files), block_length=16).map(parse)


class image:  # noqa: N801 - a module of the real package
    """Its builders of images."""

    class MNIST(_Builder):
        """Digits."""

        name = "mnist"
        shape = (28, 28, 1)

    class Cifar10(_Builder):
        """Objects of ten kinds."""

        name = "cifar10"
        shape = (32, 32, 3)
