"""The cost of a checkpoint of a large model, and of other ways to save it; `cargo dev checkpoints` runs it, by pedl-run.

    checkpoints.py FOLDER     the first start takes checkpoints of a model with 25 million parameters under Adam (300 MB),
                              saves it in other ways, and ends in the middle of its training; every further start
                              restores the state

The time that the loop waits is compared with one copy of the same bytes into memory that was used before, with
`model.save`, with `BackupAndRestore`, and on JAX with the asynchronous checkpointer of Orbax, if that is installed. The
time of the writing (`seconds` of the events) is compared with `dd conv=fsync` of as many bytes, and restoring the state
with reading them from the cache of the system. Everything is done `TIMES` times, in turns, and once before, when memory
and files are used for the first time. Before each of them the disk has nothing left to write, and the backend nothing to
compute. Nothing here sleeps. The last line is the answer in JSON: the seconds by name, that first time first, and `bytes`.
"""
import collections
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time

WIDTH = 5000
BATCH = 4
TIMES = 5


def build():
    """One square layer; as small a batch as can be."""
    import keras
    import numpy

    model = keras.models.Sequential([keras.layers.Dense(WIDTH, input_shape=(WIDTH,))])
    model.compile("adam", "mse")
    x = numpy.random.RandomState(1).rand(BATCH, WIDTH).astype("float32")
    return model, x


def timed(function):
    """Seconds that a call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


class Copies:
    """Copies of the variables' values into memory that was used before."""

    def __init__(self, arrays):
        import numpy

        self._arrays = [array.reshape(-1).view(numpy.uint8) for array in arrays]
        self._memory = [numpy.empty_like(array) for array in self._arrays]
        self.bytes = sum(array.nbytes for array in self._arrays)
        self.copy()

    def copy(self):
        """Copies all of it."""
        for memory, array in zip(self._memory, self._arrays):
            memory[...] = array


def values_of(model):
    """The values of all variables of a model and its optimizer, as numpy arrays."""
    import keras
    import numpy

    if hasattr(model, "get_weights") and hasattr(model.optimizer, "get_weights"):
        return model.get_weights() + model.optimizer.get_weights()
    return [numpy.array(keras.ops.convert_to_numpy(each)) for each in model.variables + model.optimizer.variables]


def write_by_dd(path, size):
    """Seconds that `dd` takes for this many bytes, synced."""
    command = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size >> 20}", "conv=fsync"]
    text = subprocess.run(command, check=True, stderr=subprocess.PIPE, env=dict(os.environ, LC_ALL="C")).stderr.decode()
    os.unlink(path)
    return float(re.search(r"copied, ([\d.e-]+) s", text).group(1))


def settle():
    """Waits until the backend has computed everything (JAX returns before that), and until the disk has all files."""
    if "jax" in sys.modules:
        sys.modules["jax"].block_until_ready(sys.modules["jax"].live_arrays())
    os.sync()


def orbax_saver(folder, model):
    """A function that saves by Orbax, and returns when training may continue; another that waits. None without Orbax."""
    if importlib.util.find_spec("orbax") is None:
        return None
    import orbax.checkpoint as orbax

    saver = orbax.AsyncCheckpointer(orbax.StandardCheckpointHandler())
    numbers = itertools.count()

    def save():
        state = {str(number): each.value for number, each in enumerate(model.variables + model.optimizer.variables)}
        saver.save(os.path.join(folder, f"orbax-{next(numbers)}"), args=orbax.args.StandardSave(state))

    return save, saver.wait_until_finished


def measure_saves(folder, model, x):
    """Measures checkpoints, and other ways to save."""
    import keras

    calls = recorder().CALLS
    calls.depth += 1
    copies = Copies(values_of(model))
    calls.depth -= 1
    is_keras3 = not keras.__version__.startswith("2")
    by_orbax = orbax_saver(folder, model) if is_keras3 and keras.backend.backend() == "jax" else None
    path = os.path.join(folder, "model.keras" if is_keras3 else "model.h5")
    found = collections.defaultdict(list)

    def measure(name, function):
        settle()
        found[name].append(timed(function))

    for _ in range(TIMES + 1):
        train(model, x)
        measure("checkpoint", lambda: calls.checkpoints.save(is_wanted=True))
        calls.trial.wait_saved()
        calls.depth += 1
        settle()
        found["dd"].append(write_by_dd(os.path.join(folder, "dd"), copies.bytes))
        measure("memcpy", copies.copy)
        measure("model.save", lambda: model.save(path))
        if is_keras3:
            backup = keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))
            backup.set_model(model)
            backup._current_epoch = 0
            backup._last_batch_seen = 0
            measure("BackupAndRestore", backup._save_model)
        if by_orbax:
            measure("Orbax", by_orbax[0])
            by_orbax[1]()
        calls.depth -= 1
    return dict(found, write=seconds_of_writing(calls.trial.directory), bytes=copies.bytes)


def seconds_of_writing(trial):
    """The seconds that the writing of each checkpoint took."""
    with open(os.path.join(trial, "events.jsonl")) as file:
        events = [json.loads(line) for line in file]
    return [event["seconds"] for event in events if event["event"] == "checkpoint"]


def recorder():
    """The module of the recorder, which does not exist under plain Python."""
    from py_hooks.recording import recorder as calls

    return calls


def train(model, x):
    """Trains one batch, in the same line in each start."""
    model.train_on_batch(x, x)


def measure_restore(model, x, spent):
    """Trains the same batches again, which are answered from the log, and measures what a resume adds."""
    calls = recorder().CALLS
    while calls.skips_data:
        train(model, x)
    packs = os.path.join(calls.trial.directory, "checkpoints", "tensors")
    newest = max((os.path.join(packs, name) for name in os.listdir(packs)), key=os.path.getmtime)

    def read():
        with open(newest, "rb") as file:
            file.read()

    return {"begin": [spent["begin"]], "resume": [spent["resume"]], "read": [timed(read) for _ in range(TIMES)]}


def take_times(*names):
    """Makes methods of the recorder measure their times, including what they leave to the backend; returns them by name."""
    spent = {}

    def measured(name, original):
        def method(*args):
            settle()
            begun = time.perf_counter()
            try:
                return original(*args)
            finally:
                settle()
                spent[name] = time.perf_counter() - begun

        return method

    for name in names:
        setattr(recorder().Calls, name, measured(name, getattr(recorder().Calls, name)))
    return spent


def main():
    folder = os.path.abspath(sys.argv[1])  # Orbax accepts only absolute paths
    os.makedirs(folder, exist_ok=True)
    spent = take_times("begin", "resume")
    model, x = build()
    train(model, x)
    train(model, x)
    is_resumed = recorder().CALLS.skips_data
    answer = measure_restore(model, x, spent) if is_resumed else measure_saves(folder, model, x)
    shutil.rmtree(folder)
    print(json.dumps(answer), flush=True)
    # The trial must not end here.
    os._exit(1)


if __name__ == "__main__":
    main()
