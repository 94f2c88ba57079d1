"""Saves in every way that its stack has, reads some of it back, and tells what is in all files at the end."""
import glob
import hashlib
import io
import json
import os
import pickle
import shutil
import time
import zipfile

import h5py
import keras
import numpy as np

IS_KERAS3 = hasattr(keras, "backend") and not keras.__version__.startswith("2")
IS_TENSORFLOW3 = IS_KERAS3 and keras.backend.backend() == "tensorflow"
WEIGHTS = ".weights.h5" if IS_KERAS3 else ".h5"
WHOLE = ".keras" if IS_KERAS3 else ".hdf5"
getattr(keras.utils, "set_random_seed", np.random.seed)(5)
x = np.random.normal(size=(320, 6)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model = keras.models.Sequential([keras.layers.Dense(1, activation="sigmoid", input_shape=(6,))])
model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy")
if os.path.exists("start" + WEIGHTS):
    # From before the trial, which will overwrite it.
    model.load_weights("start" + WEIGHTS)
os.makedirs("models", exist_ok=True)
digests = []


class Saves(keras.callbacks.Callback):
    """Saves after each epoch, as scripts do."""

    def __init__(self, name):
        keras.callbacks.Callback.__init__(self)
        self.name = name

    def on_epoch_end(self, epoch, logs=None):
        self.model.save_weights("start" + WEIGHTS)
        self.model.save_weights("models/new" + WEIGHTS)
        os.replace("models/new" + WEIGHTS, "models/last" + WEIGHTS)
        if epoch % 5 == 2:
            shutil.copy("models/last" + WEIGHTS, "models/good" + WEIGHTS)
        if epoch % 4 == 1:
            self.model.save("models/whole" + WHOLE)
            # A copy made by hand: what is read goes on.
            with open("models/whole" + WHOLE, "rb") as whole:
                data = whole.read()
            with open("models/by-hand" + WHOLE, "wb") as by_hand:
                by_hand.write(data)
        self.model.save_weights(f"models/{epoch:02d}" + WEIGHTS)
        if epoch >= 2:
            os.remove(f"models/{epoch - 2:02d}" + WEIGHTS)
        with h5py.File("models/last" + WEIGHTS, "r") as last:
            digests.append(_of_hdf5(last))
        weights = self.model.get_weights()
        np.save("models/array.npy", weights[0])
        np.savez("models/arrays.npz", *weights)
        with open("models/all.pickle", "wb") as file:
            pickle.dump({"epoch": epoch, "weights": weights, "logs": {k: float(v) for k, v in logs.items()}}, file)
        with open("models/config.json", "w") as file:
            file.write(self.model.to_json())
        with h5py.File("models/log.h5", "a") as log:
            log.create_dataset(f"{self.name}-{epoch}", data=weights[0])
        with h5py.File("counts.h5", "r+") as counts:
            counts["epochs"][...] = counts["epochs"][...] + 1
        if IS_TENSORFLOW3 and epoch % 6 == 1:
            self.model.export("models/exported", verbose=False)
        with open("progress.txt", "a") as progress:
            progress.write(f"{epoch}\n")
        time.sleep(0.02)


def _of_hdf5(file):
    found = []
    file.visititems(lambda name, item: found.append((name, item[...].tolist())) if hasattr(item, "shape") else None)
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def content(path):
    """What is in a file, but for the times in it."""
    with open(path, "rb") as file:
        data = file.read()
    if not data:
        return "empty"
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            # An archive has the time of each member, and `.keras` has its own, and addresses in memory.
            names = [name for name in archive.namelist() if not name.endswith(".json")]
            return [(name, _of_bytes(archive.read(name))) for name in names]
    if "exported" in path and not path.endswith((".data-00000-of-00001", ".index")):
        return "a graph, whose nodes are in no order"
    return _of_bytes(data)


def _of_bytes(data):
    if data[1:4] == b"HDF":
        with h5py.File(io.BytesIO(data), "r") as file:
            return _of_hdf5(file)
    return hashlib.sha256(data).hexdigest()


saved = keras.callbacks.ModelCheckpoint("models/best-{epoch:02d}-{loss:.3f}" + WHOLE, monitor="loss", save_best_only=True)
every = {"save_freq": 25} if IS_KERAS3 else {"period": 2}
batches = keras.callbacks.ModelCheckpoint("models/frequent" + WHOLE, **every)
callbacks = [Saves("first"), saved, batches]
if IS_KERAS3:
    callbacks.append(keras.callbacks.BackupAndRestore("backup", double_checkpoint=True))
model.fit(x, y, batch_size=8, epochs=12, verbose=0, callbacks=callbacks)
# A second training goes on from what the first has saved.
model.load_weights("models/good" + WEIGHTS)
other = keras.models.load_model("models/whole" + WHOLE)
digests.append(hashlib.sha256(b"".join(each.tobytes() for each in other.get_weights())).hexdigest())
other.fit(x, y, batch_size=8, epochs=6, verbose=0, callbacks=[Saves("second")])
model.fit(x, y, batch_size=8, epochs=2, verbose=0)
for path in sorted(glob.glob("models/**", recursive=True) + glob.glob("backup/**", recursive=True) + glob.glob("*.h5")):
    if os.path.isfile(path):
        print(path, hashlib.sha256(json.dumps(content(path)).encode()).hexdigest())
for name, each in (("model", model), ("other", other)):
    print(name, hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in each.get_weights())).hexdigest())
print("read", hashlib.sha256(repr(digests).encode()).hexdigest())
