"""What worker processes deliver; `cargo dev pool` runs it, with and without pedl-run.

    pool.py table PEDL_RUN             all of it, in the environment of this Python: prints the table
    pool.py ring MB BATCHES copy|own   the limit: a ring in shared memory with no Python objects in it; the batch is
                                       copied into it, or built there
    pool.py loader MB BATCHES          what Keras takes batches from in a `fit`, without the `fit`
    pool.py fit MB BATCHES             a whole script: a fit of a model with next to nothing to compute

All have `WORKERS` workers that build the same batches: an array of MB megabytes, in which the number of the batch
stands, and a small one. What is taken is checked. The last line is the answer, in seconds a batch.
"""

import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy

WORKERS = 2
AHEAD = 10
WARM_UP = 2 * AHEAD

# Megabytes of a batch, and how many batches: a second or two of the quickest. The last is 64 images of 224 x 224 x 3.
SIZES = [(0.01, 20000), (0.6, 6000), (10, 400), (38.5, 150)]

# What plain Keras takes as long for.
SHARE_OF_KERAS = 10

# Plain Keras 2 hangs at times, where a forked worker clears away a session of TensorFlow 1.
LIMIT_S = 90

# A table is the median of so many runs of each, in turns.
RUNS = 3


class Batches:
    """Builds a batch."""

    def __init__(self, megabytes):
        self.image = numpy.arange(int(megabytes * 1e6 / 4), dtype="float32")

    def build(self, index):
        """The arrays of a batch, new ones."""
        image = self.image.copy()
        image[0] = index
        return image, numpy.zeros(64, "float32")


def check(index, image, label):
    """Looks at both arrays, as whoever trains does."""
    if image[0] != index or label[0] != 0:
        raise SystemExit("batch {} is {}, {}".format(index, image[0], label[0]))


# -- the limit ---------------------------------------------------------------------------------------------------------


def ring(megabytes, count, way):
    """Seconds a batch of a bare ring, whose slots belong to workers in turn."""
    batches = Batches(megabytes)
    items, slots = len(batches.image), AHEAD
    size = (items + 64) * 4
    memory = mmap.mmap(-1, size * slots)
    free = [multiprocessing.Semaphore(slots // WORKERS) for _ in range(WORKERS)]
    full = [multiprocessing.Semaphore(0) for _ in range(WORKERS)]

    def arrays(index):
        at = index % slots * size
        return numpy.frombuffer(memory, "float32", items, at), numpy.frombuffer(memory, "float32", 64, at + 4 * items)

    def work(number):
        for index in range(number, count, WORKERS):
            free[number].acquire()
            image, label = arrays(index)
            if way == "copy":
                built = batches.build(index)
                image[:], label[:] = built
            else:
                image[:] = batches.image
                image[0] = index
                label[:] = 0
            full[number].release()

    workers = [multiprocessing.get_context("fork").Process(target=work, args=(number,), daemon=True) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for index in range(count):
        if index == WARM_UP:
            begun = time.perf_counter()
        full[index % WORKERS].acquire()
        check(index, *arrays(index))
        free[index % WORKERS].release()
    return (time.perf_counter() - begun) / (count - WARM_UP)


# -- Keras -------------------------------------------------------------------------------------------------------------


def sequence(megabytes, count):
    """The data set for Keras, and how it is told of workers where it is."""
    import keras

    is_keras_3 = keras.__version__.startswith("3")
    settings = {"workers": WORKERS, "use_multiprocessing": True, "max_queue_size": AHEAD}

    class Data(keras.utils.PyDataset if is_keras_3 else keras.utils.Sequence):
        def __init__(self, **kwargs):
            if is_keras_3:
                super().__init__(**kwargs)
            self.batches = Batches(megabytes)

        def __len__(self):
            return count

        def __getitem__(self, index):
            return self.batches.build(index)

    return (Data(**settings), {}) if is_keras_3 else (Data(), settings)


def loader(megabytes, count):
    """Seconds a batch of what the framework's loop takes batches from."""
    data, settings = sequence(megabytes, count)
    if settings:
        from keras.utils import OrderedEnqueuer

        enqueuer = OrderedEnqueuer(data, use_multiprocessing=True, shuffle=False)
        enqueuer.start(workers=WORKERS, max_queue_size=AHEAD)
        batches = enqueuer.get()
    else:
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

        adapter = PyDatasetAdapter(data, shuffle=False)
        # What Keras does to each batch is not what is measured.
        adapter._standardize_batch = lambda batch: batch
        adapter.on_epoch_begin()
        batches = iter(adapter._get_iterator())
    # Not to the end: the last ones may all be there already.
    for index in range(count - AHEAD):
        if index == WARM_UP:
            begun = time.perf_counter()
        check(index, *next(batches))
    taken = time.perf_counter() - begun
    print(taken / (count - AHEAD - WARM_UP), flush=True)
    os._exit(0)


def fit(megabytes, count):
    """A fit on the data set: what is measured is the whole process."""
    import keras

    data, settings = sequence(megabytes, count // 4)
    width = len(data.batches.image)

    # Looks at one element of each row.
    first = keras.layers.Lambda(lambda rows: rows[:, :1], output_shape=(1,))
    inputs = keras.layers.Input((width // 64,))
    model = keras.models.Model(inputs, keras.layers.Dense(1)(first(inputs)))
    model.compile("sgd", "mse")
    build = data.batches.build

    def rows(index):
        image, label = build(index)
        return image[: width // 64 * 64].reshape(64, -1) / 1e6, label

    data.batches.build = rows
    if settings:
        model.fit_generator(data, epochs=4, verbose=0, shuffle=False, **settings)
    else:
        model.fit(data, epochs=4, verbose=0, shuffle=False)
    print(0, flush=True)


# -- the table ---------------------------------------------------------------------------------------------------------


def run(words, executable=None):
    """The answer of one run, by plain Python or by pedl-run; and how long all of it took."""
    with tempfile.TemporaryDirectory() as directory:
        prefix = [executable, "--python", sys.executable] if executable else [sys.executable]
        command = prefix + [os.path.abspath(__file__)] + [str(word) for word in words]
        begun = time.perf_counter()
        # Workers of a run that hangs, too.
        process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return float("inf"), float("inf")
        if process.returncode:
            raise SystemExit(errors.decode("utf-8", "replace"))
        return float(output.split()[-1]), time.perf_counter() - begun


def median(numbers):
    """The middle one."""
    return sorted(numbers)[len(numbers) // 2]


def table(executable):
    """Prints what is measured, in us a batch, and the ratios that count."""
    import keras

    print("keras {}, python {}.{}, numpy {}".format(keras.__version__, *sys.version_info[:2], numpy.__version__))
    heads = ("MB", "ring, copied", "ring, in place", "pedl-run", "GB/s", "of copied", "of in place", "keras", "x keras")
    print(("{:>6}" + "{:>16}" * 8).format(*heads))
    for megabytes, count in SIZES:
        copied, own, ours, theirs = [], [], [], []
        for _ in range(RUNS):
            copied.append(run(["ring", megabytes, count, "copy"])[0])
            own.append(run(["ring", megabytes, count, "own"])[0])
            ours.append(run(["loader", megabytes, count], executable)[0])
            theirs.append(run(["loader", megabytes, max(4 * WARM_UP, count // SHARE_OF_KERAS)])[0])
        copied, own, ours, theirs = map(median, (copied, own, ours, theirs))
        cells = ["{:.1f}".format(seconds * 1e6) for seconds in (copied, own, ours)]
        cells += ["{:.2f}".format(megabytes / 1e3 / ours), "{:.2f}".format(copied / ours), "{:.2f}".format(own / ours)]
        cells += ["{:.1f}".format(theirs * 1e6), "{:.1f}".format(theirs / ours)]
        print(("{:>6}" + "{:>16}" * 8).format(megabytes, *cells), flush=True)
    print("a whole script, in s; inf is one that hung: {:>8}{:>16}{:>16}".format("pedl-run", "python", "ratio"))
    for megabytes, batches in SIZES:
        count = max(4 * WARM_UP, batches // SHARE_OF_KERAS)
        ours, theirs = [], []
        for _ in range(RUNS):
            ours.append(run(["fit", megabytes, count], executable)[1])
            theirs.append(run(["fit", megabytes, count])[1])
        ours, theirs = median(ours), median(theirs)
        shown = "{} MB, {} batches".format(megabytes, count)
        print("{:<22}{:>28.2f}{:>16.2f}{:>16.2f}".format(shown, ours, theirs, theirs / ours), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(sys.argv[2])
    elif sys.argv[1] == "ring":
        print(ring(float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    else:
        {"loader": loader, "fit": fit}[sys.argv[1]](float(sys.argv[2]), int(sys.argv[3]))
