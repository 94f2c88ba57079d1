"""Moves, links, changes and removes files that were there before, before it trains and while it does."""
import io
import os
import pathlib
import shutil
import sys
import tempfile
import time

import keras
import numpy as np

getattr(keras.utils, "set_random_seed", np.random.seed)(5)
HOLD_AT = int(os.environ.get("HOLD_AT", "-1"))


def log(*words):
    with open("log.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\n")


# What lies in the inbox is trained with, and is then done.
rows = []
for name in sorted(os.listdir("inbox")):
    with open(os.path.join("inbox", name)) as file:
        rows += [float(line) for line in file]
    os.makedirs("done", exist_ok=True)
    shutil.move(os.path.join("inbox", name), os.path.join("done", name))
log(len(rows), sorted(os.listdir("inbox")))
if "fails" in sys.argv:
    raise SystemExit("it trains nothing")

# What an earlier run has left.
log(sorted(str(path) for path in pathlib.Path("output").rglob("*")))
shutil.rmtree("output")
os.mkdir("output")
os.symlink("output", "newest")
os.link("done/1.csv", "first.csv")
pathlib.Path("notes.txt").chmod(0o600)
counts = np.memmap("counts.dat", dtype="int64", mode="r+", shape=(4,))
counts += 1
counts.flush()


class Changes(keras.callbacks.Callback):
    """Changes files after each epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == HOLD_AT:
            # Past `open`: it is no file of the script's.
            io.FileIO(os.environ["HOLDS"], "w").close()
            while True:
                time.sleep(0.05)

    def on_epoch_end(self, epoch, logs=None):
        counts[epoch % 4] += epoch
        counts.flush()
        log(epoch, counts.tolist(), os.path.exists("stale.txt"), sorted(os.listdir("output")))
        with open("first.csv", "a") as file:
            file.write(f"{epoch}\n")
        if epoch == 1:
            with open("stale.txt") as file:
                log(file.read().strip())
            os.remove("stale.txt")
        if epoch == 2:
            os.rename("plans", "output/plans")
            os.utime("output/plans/a.txt", (10**9, 10**9))
        if epoch == 6:
            pathlib.Path("notes.txt").unlink()
            os.symlink("log.txt", "notes.txt")
        with tempfile.NamedTemporaryFile("w", dir="newest", delete=False) as file:
            file.write(str(epoch))
        os.replace(file.name, "state.txt")
        with open("state.txt") as state:
            log(state.read())
        os.truncate("log-of-before.txt", 40 - 2 * epoch)


x = np.asarray(rows, "float32").reshape(-1, 1)
model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
model.compile(keras.optimizers.SGD(0.01), "mse")
model.fit(x, 2 * x, batch_size=4, epochs=12, verbose=0, callbacks=[Changes()])
