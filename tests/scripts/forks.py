"""Trains in children that are forked before any framework is imported, in every way that a script may fork one.

    python forks.py [WAY]...

Prints a line for each way, with a hash of what its child has learned. The ways are all under way at once.
"""
import hashlib
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor


def train(number):
    import keras
    import numpy

    keras.utils.set_random_seed(number)
    rows = numpy.random.RandomState(number).rand(32, 3).astype("float32")
    model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(rows, rows.sum(1), batch_size=8, epochs=2, verbose=0)
    learned = b"".join(weights.tobytes() for weights in model.get_weights())
    return hashlib.sha256(learned).hexdigest()[:16]


def train_and_send(number, pipe):
    pipe.send(train(number))


def process(fork):
    ours, theirs = fork.Pipe()
    child = fork.Process(target=train_and_send, args=(1, theirs))
    child.start()

    def wait():
        theirs.close()
        learned = ours.recv()
        child.join()
        return learned, child.exitcode

    return wait


def pool(fork):
    workers = fork.Pool(1)
    learned = workers.map_async(train, [2])

    def wait():
        with workers:
            return learned.get()

    return wait


def executor(fork):
    workers = ProcessPoolExecutor(1, mp_context=fork)
    learned = workers.submit(train, 3)

    def wait():
        with workers:
            return learned.result()

    return wait


def daemon(fork):
    """As daemons do it: two forks, and a session between them."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(reading)
        os.write(writing, train(4).encode())
        os._exit(0)
    os.close(writing)

    def wait():
        with open(reading) as pipe:
            return pipe.read(), os.waitpid(child, 0)[1]

    return wait


WAYS = {"process": process, "pool": pool, "executor": executor, "daemon": daemon}

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    names = sys.argv[1:] or sorted(WAYS)
    waiting = [WAYS[name](fork) for name in names]
    for name, wait in zip(names, waiting):
        print(name, wait(), flush=True)
