"""Where the doubles find the files that `public_data.py` has made: in the folder that `PUBLIC_EXAMPLES_DATA` names."""

import os
from pathlib import Path

VARIABLE = "PUBLIC_EXAMPLES_DATA"

# How many rows the data sets have whose sizes the examples do not fix, and in how many files.
RECORDS = {"train": 6000, "test": 1000}
SHARDS = 2


def file_of(url):
    """The double of a URL, by its last name. Raises `FileNotFoundError` if there is none."""
    path = Path(os.environ[VARIABLE]) / url.rpartition("/")[2]
    if not path.is_file():
        raise FileNotFoundError(f"there is no double of {url}")
    return path


def shard_of(name, part, shard):
    """The name of a file of a data set of `tensorflow_datasets`."""
    return f"{name}-{part}.tfrecord-{shard:05}-of-{SHARDS:05}"
