"""Measures the batches that worker processes deliver; `cargo dev pool` runs it, with and without pedl-run.

    pool.py table PEDL_RUN [PART]...   all of it, in the environment of this Python: prints tables of `batches`, of
                                       whole `scripts`, and of `images`
    pool.py ring MB BATCHES copy|own   the limit: a ring in shared memory with no Python objects in it; the batch is
                                       copied into it, or built there
    pool.py loader MB BATCHES copy|own the source of batches of Keras in a `fit`, without the `fit`; with pedl-run they
                                       are copied into shared memory, or built there, if numpy can (1.22 and later)
    pool.py torch MB BATCHES           a `DataLoader` of torch, if torch is installed
    pool.py fit MB BATCHES             a whole script: a fit of a model with next to nothing to compute
    pool.py images keras|torch BATCHES real work: JPEG images that Pillow reads and resizes; the source of batches of
                                       either

All have `WORKERS` workers that build the same batches: an array of MB megabytes, which contains the number of the batch,
and a small one. The batches that are taken are checked. The last line is the answer, in seconds a batch: of CPU time of
the process that takes them, and by the clock; 0 if it is not measured.
"""

import importlib.util
import io
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

# Megabytes of a batch, and how many batches: a second or two of the fastest way. The last is 64 images of 224 x 224 x 3.
SIZES = [(0.01, 20000), (0.6, 6000), (10, 400), (38.5, 150)]

# For the real work.
IMAGE_BATCHES = 100

# Plain Keras gets one batch in this many, for which it takes about as long.
SHARE_OF_KERAS = 10

# For one run: a run that hangs does not stop the others.
LIMIT_S = 60

# Epochs of a whole script.
EPOCHS = 4

ROW = "{:<8}" + "{:>8}" + "{:>11}" * 8

# A table has the median of this many runs of each, in turns.
RUNS = 3


class Batches:
    """Builds a batch.

    Args:
        megabytes: of its larger array.
        way: `copy` for a data set that keeps its last batch, which must be copied then.
    """

    def __init__(self, megabytes, way="own"):
        self.image = numpy.arange(int(megabytes * 1e6 / 4), dtype="float32")
        self.way = way
        self.last = None

    def build(self, index):
        """The arrays of a batch, new ones."""
        self.last = None
        image = self.image.copy()
        image[0] = index
        if self.way == "copy":
            self.last = image
        return image, numpy.zeros(64, "float32")


class Images:
    """Builds a batch of images from JPEG files that are in memory."""

    SIDE, ROWS = 224, 32

    def __init__(self):
        from PIL import Image

        random = numpy.random.RandomState(1)
        self.files = []
        for _ in range(64):
            # Areas with edges, because photographs are not noise.
            few = Image.fromarray(random.randint(0, 255, (12, 16, 3)).astype("uint8"))
            file = io.BytesIO()
            few.resize((640, 480), Image.BICUBIC).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def build(self, index):
        """The arrays of a batch, new ones."""
        from PIL import Image

        images = numpy.empty((self.ROWS, self.SIDE, self.SIDE, 3), "float32")
        for row in range(self.ROWS):
            file = io.BytesIO(self.files[(index + row) % len(self.files)])
            image = Image.open(file).convert("RGB").resize((self.SIDE, self.SIDE), Image.BILINEAR)
            numpy.multiply(image, 1 / 255, out=images[row], casting="unsafe")
        return images, numpy.full(self.ROWS, index, "float32")


def check(index, image, label):
    """Reads both arrays, as a training does."""
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


def sequence(batches, count):
    """The data set for Keras, and the settings that enable workers.

    Args:
        batches: builds them.
        count: the number of batches.
    """
    import keras

    is_keras_3 = keras.__version__.startswith("3")
    settings = {"workers": WORKERS, "use_multiprocessing": True, "max_queue_size": AHEAD}

    class Data(keras.utils.PyDataset if is_keras_3 else keras.utils.Sequence):
        def __init__(self, **kwargs):
            if is_keras_3:
                super().__init__(**kwargs)
            self.batches = batches

        def __len__(self):
            return count

        def __getitem__(self, index):
            return batches.build(index)

    return (Data(**settings), {}) if is_keras_3 else (Data(), settings)


def loader(batches, count, look):
    """Measures the source of batches of the framework's loop."""
    data, settings = sequence(batches, count)
    if settings:
        from keras.utils import OrderedEnqueuer

        enqueuer = OrderedEnqueuer(data, use_multiprocessing=True, shuffle=False)
        enqueuer.start(workers=WORKERS, max_queue_size=AHEAD)
        taken = enqueuer.get()
    else:
        from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

        adapter = PyDatasetAdapter(data, shuffle=False)
        # The processing of each batch by Keras is not measured.
        adapter._standardize_batch = lambda batch: batch
        adapter.on_epoch_begin()
        taken = iter(adapter._get_iterator())
    take(taken, count, look)


def take(batches, count, look):
    """Takes batches from an iterator and looks at them; prints the seconds a batch, and ends the process."""
    # Not to the end, because the last ones may be complete already.
    for index in range(count - AHEAD):
        if index == WARM_UP:
            begun, begun_cpu = time.perf_counter(), time.process_time()
        look(index, *next(batches))
    taken, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    print(cpu / (count - AHEAD - WARM_UP), taken / (count - AHEAD - WARM_UP), flush=True)
    os._exit(0)


def look_at_images(index, images, labels):
    """Does the same as `check`."""
    if labels[0] != index or not 0 <= images[0, 0, 0, 0] <= 1:
        raise SystemExit("batch {} is {}, {}".format(index, images[0, 0, 0], labels[0]))


def torch_loader(batches, count, look):
    """Measures the loader of torch."""
    import torch

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return count

        def __getitem__(self, index):
            return batches.build(index)

    taken = torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=WORKERS, prefetch_factor=AHEAD // WORKERS)
    take(iter(taken), count, look)


def fit(megabytes, count):
    """A fit on the data set. The whole process is measured."""
    import keras

    is_keras_3 = keras.__version__.startswith("3")
    data, settings = sequence(Batches(megabytes), count // EPOCHS)
    width = len(data.batches.image)

    # Uses one element of each row.
    first = keras.layers.Lambda(lambda rows: rows[:, :1], output_shape=(1,))
    inputs = keras.layers.Input((width // 64,))
    model = keras.models.Model(inputs, keras.layers.Dense(1)(first(inputs)))
    model.compile("sgd", "mse")
    build = data.batches.build

    def rows(index):
        image, label = build(index)
        return image[: width // 64 * 64].reshape(64, -1) / 1e6, label

    data.batches.build = rows
    if is_keras_3:
        model.fit(data, epochs=EPOCHS, verbose=0, shuffle=False)
    else:
        # Without a name for it plain Keras 2 on TensorFlow 1 hangs. It forks its workers in another thread, and only
        # the `threading.local` of the main thread has the session (tensorflow 1.15, keras/backend.py, `_SESSION`).
        # A child does not have it, so the session closes there, and waits for threads that do not exist there either.
        session = keras.backend.get_session()
        model.fit_generator(data, epochs=EPOCHS, verbose=0, shuffle=False, **settings)
        del session
    print(0, 0, flush=True)


# -- the table ---------------------------------------------------------------------------------------------------------


def run(words, executable=None):
    """The answers of one run, by plain Python or by pedl-run, and the seconds of all of it."""
    with tempfile.TemporaryDirectory() as directory:
        prefix = [executable, "--python", sys.executable] if executable else [sys.executable]
        command = prefix + [os.path.abspath(__file__)] + [str(word) for word in words]
        begun = time.perf_counter()
        # A session of its processes, to end workers of a run that hangs too.
        process = subprocess.Popen(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return [float("inf")] * 2, float("inf")
        if process.returncode:
            raise SystemExit(errors.decode("utf-8", "replace"))
        return [float(word) for word in output.split()[-2:]], time.perf_counter() - begun


def median(numbers):
    """The middle one."""
    return sorted(numbers)[len(numbers) // 2]


def table(executable, *parts):
    """Prints the measurements, and the ratios that matter."""
    import keras

    print("keras {}, python {}.{}, numpy {}".format(keras.__version__, *sys.version_info[:2], numpy.__version__))
    for part in parts or ("batches", "scripts", "images"):
        {"batches": batches, "scripts": scripts, "images": images}[part](executable)


def batches(executable):
    """Prints the times of batches alone."""
    print("us a batch; ratios are of the same run")
    heads = ("MB", "ring", "pedl-run", "ratio", "GB/s", "keras", "x keras", "torch", "x torch")
    print(ROW.format("", *heads))
    for megabytes, count in SIZES:
        row(executable, megabytes, count)


def scripts(executable):
    """Prints the times of a whole script."""
    print("a whole script, in s; inf is one that hung: {:>8}{:>16}{:>16}".format("pedl-run", "python", "ratio"))
    for megabytes, batches_of_loaders in SIZES:
        count = max(4 * WARM_UP, batches_of_loaders // SHARE_OF_KERAS)
        ours, theirs = [], []
        for _ in range(RUNS):
            ours.append(run(["fit", megabytes, count], executable)[1])
            if not theirs or theirs[-1] < float("inf"):
                theirs.append(run(["fit", megabytes, count])[1])
        ours, theirs = median(ours), median(theirs)
        shown = "{} MB, {} batches".format(megabytes, count)
        print("{:<22}{:>28.2f}{:>16.2f}{:>16.2f}".format(shown, ours, theirs, theirs / ours), flush=True)


def row(executable, megabytes, count):
    """Prints the times of batches of one size."""
    few = max(4 * WARM_UP, count // SHARE_OF_KERAS)
    builds_in_place = tuple(map(int, numpy.__version__.split(".")[:2])) >= (1, 22)
    ways = ["copy", "own"] if builds_in_place else ["copy"]
    peers = {"keras": ["loader", megabytes, few, "own"]}
    if importlib.util.find_spec("torch") is not None:
        peers["torch"] = ["torch", megabytes, few]
    words = [(kind, way) for way in ways for kind in ("ring", "loader")]
    found = {word: [] for word in words + list(peers)}
    for _ in range(RUNS):
        for kind, way in words:
            found[kind, way].append(run([kind, megabytes, count, way], executable if kind == "loader" else None)[0][-1])
        for name, peer in peers.items():
            found[name].append(run(peer)[0][-1])
    found = {word: median(numbers) for word, numbers in found.items()}
    for way in ways:
        limit, ours = found["ring", way], found["loader", way]
        cells = [limit * 1e6, ours * 1e6, limit / ours, megabytes / 1e3 / ours]
        cells += [cell for name in peers for cell in (found[name] * 1e6, found[name] / ours)]
        shown = ["{:.2f}".format(cell) for cell in cells] + [""] * (8 - len(cells))
        print(ROW.format("copied" if way == "copy" else "in place", megabytes, *shown), flush=True)


def images(executable):
    """Prints the times of batches of images."""
    print("JPEG images, 640 x 480 to 224 x 224, in batches of {}".format(Images.ROWS))
    print(("{:<10}" + "{:>16}" * 2).format("", "images/s", "CPU us/image"))
    words = {"pedl-run": ("keras", executable), "keras": ("keras", None)}
    if importlib.util.find_spec("torch") is not None:
        words["torch"] = ("torch", None)
    found = {name: [] for name in words}
    for _ in range(RUNS):
        for name, (kind, by) in words.items():
            found[name].append(run(["images", kind, IMAGE_BATCHES], by)[0])
    for name, answers in found.items():
        cpu, taken = (median([answer[place] for answer in answers]) / Images.ROWS for place in range(2))
        print("{:<10}{:>16.1f}{:>16.2f}".format(name, 1 / taken, cpu * 1e6), flush=True)


def main(command, *words):
    """Runs one of the commands above."""
    if command == "table":
        table(*words)
    elif command == "images":
        {"keras": loader, "torch": torch_loader}[words[0]](Images(), int(words[1]), look_at_images)
    else:
        megabytes, count = float(words[0]), int(words[1])
        if command == "ring":
            print(0, ring(megabytes, count, words[2]))
        elif command == "fit":
            fit(megabytes, count)
        else:
            built = Batches(megabytes, words[2] if len(words) > 2 else "own")
            {"torch": torch_loader, "loader": loader}[command](built, count, check)


if __name__ == "__main__":
    main(*sys.argv[1:])
