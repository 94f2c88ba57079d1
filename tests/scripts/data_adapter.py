"""Batches of a `KerasDataAdapter`, without a fit: prints what was delivered, and who built it, as one line of JSON.

    python data_adapter.py WORKERS threads|processes QUEUE [OFFSET] [validation] [spawn|lambda]

With `spawn` the script has chosen so that its processes are not forked; with `lambda` the data set has one besides.
"""

import hashlib
import importlib
import json
import multiprocessing
import os
import sys
import threading
import time

import numpy as np

keras = importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))
import pedl.frameworks.keras  # noqa: E402
from pedl.frameworks.keras.data import KerasDataAdapter  # noqa: E402

ROWS, BATCH = 42, 8
EPOCHS = 3


class Settings:
    """Of the script itself; it can be pickled all the same."""


class Noisy(pedl.frameworks.keras.data.InMemorySequence):
    """Adds noise to its batches, and tells who builds them, and how often an epoch has ended."""

    def __init__(self):
        data = {"image": np.arange(ROWS * 4.0).reshape(ROWS, 4), "index": np.arange(ROWS)}
        super().__init__(data, np.arange(ROWS), BATCH, sample_weight=np.ones(ROWS))
        self.ends = 0

    def __getitem__(self, index):
        # As long as something real takes, so that one worker alone cannot do it all.
        time.sleep(0.01)
        inputs, targets, weights = super().__getitem__(index)
        inputs["noise"] = np.random.random_sample(len(targets))
        inputs["builder"] = [os.getpid(), threading.get_ident(), time.monotonic_ns()]
        inputs["ends"] = self.ends
        return inputs, targets, weights

    def on_epoch_end(self):
        self.ends += 1


def main():
    workers, way, queue = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    offset = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    is_validation = "validation" in sys.argv
    data = Noisy()
    if "spawn" in sys.argv or "lambda" in sys.argv:
        data.settings = Settings()
        multiprocessing.set_start_method("spawn")
    if "lambda" in sys.argv:
        data.transform = lambda rows: rows
    adapter = KerasDataAdapter(data, workers=workers, use_multiprocessing=way == "processes", max_queue_size=queue)
    adapter.start(batch_offset=offset, is_validation=is_validation)
    hashes, builders, firsts, ends, ahead = [], [], [], [], []
    batches = adapter.get_iterator()
    taken = []
    for inputs, targets, weights in batches:
        builders.append(inputs["builder"][:2])
        ahead.append(inputs["builder"][2])
        taken.append(time.monotonic_ns())
        firsts.append(int(targets[0]))
        ends.append(inputs["ends"])
        arrays = [inputs["image"], inputs["index"], inputs["noise"], targets, weights]
        hashes.append(hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest())
        # Lets the workers build all that they may.
        time.sleep(0.02)
        if len(firsts) + offset == EPOCHS * len(adapter):
            break
    adapter.stop()
    print(
        json.dumps(
            {
                "length": len(adapter),
                "hashes": hashes,
                "firsts": firsts,
                "ends": ends,
                "processes": sorted({process for process, _ in builders}),
                "threads": sorted({thread for _, thread in builders}),
                # Each epoch may have threads of its own.
                "threads at once": max(
                    len({thread for (_, thread), end in zip(builders, ends) if end == epoch}) for epoch in set(ends)
                ),
                "trainer": [os.getpid(), threading.get_ident()],
                # How many were built before the batch at this place was taken, and not taken yet.
                "ahead": max(
                    sum(1 for built in ahead[place:] if built < moment) for place, moment in enumerate(taken)
                ),
                "left": len(threading.enumerate()) - 1,
            }
        )
    )


if __name__ == "__main__":
    main()
