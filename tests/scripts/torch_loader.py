"""A fit of Keras 3 on a `DataLoader` of torch's, whose data set draws from all global generators.

    python torch_loader.py WORKERS [WORD]...            the variable WORKERS is stronger

Words: `kill` has one worker killed by itself, `raise` one that raises; `info` looks at `get_worker_info`; `own` has a
`collate_fn` and a `worker_init_fn` of the script; `single` no batches; `persistent` what it says; `iterable` a data set
without indices; `changes` a data set that a callback changes, `within` one that it changes in the midst of an epoch,
`behind` a pass that goes on behind the ends of epochs; `twice` validates with the same loader; `endless` a sampler without
an end; `unseeded` seeds nothing, and `entropy` has torch draw its seeds from the operating system, both slowly. Prints the
hash of the weights, and what the global generators give after it; `built.txt` has the process that built each sample.
"""

import hashlib
import io
import itertools
import os
import random
import signal
import sys
import time

import keras
import numpy as np
import torch

WORKERS, WORDS = int(os.environ.get("WORKERS", sys.argv[1])), sys.argv[2:]
ROWS, BATCH, EPOCHS = 90, 8, 3


class Data(torch.utils.data.Dataset):
    """Rows with noise from three generators."""

    scale = 1.0

    def __init__(self):
        self.own, self.generator = np.random.RandomState(1), torch.Generator()

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        with io.FileIO("built.txt", "a") as file:
            file.write(b"%d\n" % os.getpid())
        if index == 17 and "kill" in WORDS and not os.path.exists("suffered.txt"):
            open("suffered.txt", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 17 and "raise" in WORDS:
            raise ValueError("sample 17 is broken")
        if "info" in WORDS:
            info = torch.utils.data.get_worker_info()
            assert (info.num_workers, info.dataset) == (WORKERS, self), info
            assert 0 <= info.id < WORKERS, info
        noise = random.random() + np.random.rand() + torch.rand(()).item()
        noise += self.own.rand() + torch.rand((), generator=self.generator).item()
        if "info" in WORDS:
            noise += np.random.default_rng(torch.utils.data.get_worker_info().seed).random()
        row = torch.full((3,), self.scale * index / ROWS + noise, dtype=torch.float32)
        return row, row.sum()


class Endless(torch.utils.data.Sampler):
    """Says how long an epoch is, and goes on."""

    def __init__(self):
        pass

    def __len__(self):
        return ROWS

    def __iter__(self):
        return (index % ROWS for index in itertools.count())


class Parts(torch.utils.data.IterableDataset):
    """Rows of each worker's own."""

    def __iter__(self):
        for index in range(ROWS // max(1, WORKERS)):
            yield torch.full((3,), index / ROWS), torch.tensor(index / ROWS)


def stack(samples):
    """A `collate_fn`: as the default, and twice as much."""
    assert "info" not in WORDS or torch.utils.data.get_worker_info() is not None
    rows, labels = zip(*samples)
    return torch.stack(rows) * 2, torch.stack(labels)


def begin_worker(number):
    """A `worker_init_fn` as most are, and then some."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)
    torch.manual_seed(seed)
    torch.utils.data.get_worker_info().dataset.own = np.random.RandomState(number)
    with io.FileIO("begun.txt", "a") as file:
        file.write(b"%d\n" % number)


class Seen(keras.callbacks.Callback):
    """Tells how an epoch ended."""

    def on_epoch_end(self, epoch, logs=None):
        print("EPOCH", epoch, logs["loss"])
        if "changes" in WORDS:
            data.scale *= 2

    def on_train_batch_end(self, batch, logs=None):
        if {"within", "unseeded", "entropy"}.intersection(WORDS):
            # Slowly, for a kill.
            time.sleep(0.05)
        if "within" in WORDS:
            data.scale += batch == 4


if "entropy" in WORDS:
    assert torch.seed() == torch.initial_seed()
elif "unseeded" not in WORDS:
    torch.manual_seed(3)
settings = {"batch_size": None if "single" in WORDS else BATCH, "num_workers": WORKERS}
if "own" in WORDS:
    settings.update(collate_fn=stack, worker_init_fn=begin_worker)
if "persistent" in WORDS:
    settings.update(persistent_workers=True)
data = Data()
if "entropy" in WORDS:
    seeds = [data.generator.seed(), torch.Generator().seed()]
    assert data.generator.initial_seed() == seeds[0] != seeds[1], seeds
if "iterable" in WORDS:
    loader = torch.utils.data.DataLoader(Parts(), **settings)
elif "single" in WORDS:
    batches = torch.utils.data.TensorDataset(torch.arange(240.0).reshape(10, 8, 3), torch.arange(80.0).reshape(10, 8))
    loader = torch.utils.data.DataLoader(batches, **settings)
elif "endless" in WORDS:
    loader = torch.utils.data.DataLoader(data, sampler=Endless(), **settings)
else:
    loader = torch.utils.data.DataLoader(data, shuffle=True, **settings)
model = keras.models.Sequential([keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.001), "mse")
if "behind" in WORDS:
    model.fit(loader, epochs=EPOCHS, steps_per_epoch=4, verbose=0, callbacks=[Seen()])
else:
    model.fit(loader, epochs=EPOCHS, verbose=0, callbacks=[Seen()], validation_data=loader if "twice" in WORDS else None)
print("DRAWN", torch.rand(()).item(), np.random.rand(), random.random())
print("HASH", hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in model.get_weights())).hexdigest())
