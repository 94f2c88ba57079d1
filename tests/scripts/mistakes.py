"""Trains, and has a part of pedl-run make a mistake: raise what nobody foresaw. Under python there is no such part.

    MISTAKE=PLACE python mistakes.py

Prints what is learned, a line for each epoch, and a hash of the weights.
"""
import hashlib
import os
import sys


def _of_no_script(function):
    """What code of the script raises is the script's."""
    function.__code__ = function.__code__.replace(co_filename="/x/site-packages/planted.py")
    return function


class _Raises:
    """Stands for a function: does as it does so often, then raises."""

    def __init__(self, function, after=0):
        self._function = function
        self._left = after

    @_of_no_script
    def __call__(self, *args, **kwargs):
        self._left -= 1
        if self._left < 0:
            raise AttributeError("'Planted' object has no attribute 'name'")
        return self._function(*args, **kwargs)


def plant(place):
    """Where a mistake is made: in what an import starts, before the first record, after some, and in a replay."""
    import py_hooks.boot.install

    if place == "import":
        py_hooks.boot.install.begin = _Raises(py_hooks.boot.install.begin)
        return
    import py_hooks.recording.recorder
    import py_hooks.keras.keras3.compute
    import py_hooks.keras.sources

    if place == "describe":
        py_hooks.keras.sources.describe_model = _Raises(py_hooks.keras.sources.describe_model)
    elif place == "record":
        py_hooks.recording.recorder.Calls.record = _method(py_hooks.recording.recorder.Calls.record, after=20)
    elif place == "replay":
        kind = py_hooks.keras.keras3.compute.VariableFunction
        kind.skip = _method(kind.skip, after=5)
    elif place == "write":
        py_hooks.keras.keras3.variables._written = _Raises(py_hooks.keras.keras3.variables._written)
    elif place == "open":
        import py_hooks.script_io.files

        py_hooks.script_io.files.Files.opening = _method(py_hooks.script_io.files.Files.opening)


def _method(function, after=0):
    raises = _Raises(function, after)
    return _of_no_script(lambda *args, **kwargs: raises(*args, **kwargs))


def main():
    place = os.environ.get("MISTAKE", "none")
    is_ours = "_pedl" in sys.modules
    if place == "import" and is_ours:
        plant(place)
    import keras
    import numpy

    keras.utils.set_random_seed(1)
    if place not in ("none", "import") and is_ours:
        plant(place)
    rows = numpy.random.RandomState(1).rand(64, 3).astype("float32")
    model = keras.Sequential([keras.layers.Dense(4, activation="relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile("adam", "mse")

    class Shows(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            print("epoch", epoch, "{:.6f}".format(logs["loss"]), flush=True)
            if place == "user" and epoch == 2:
                raise KeyError("the script's own")

    with open("log.txt", "a") as log:
        log.write("begun\n")
    model.fit(rows, rows.sum(1), batch_size=8, epochs=5, verbose=0, callbacks=[Shows()])
    model.optimizer.learning_rate.assign(0.01)
    model.fit(rows, rows.sum(1), batch_size=8, epochs=1, verbose=0)
    learned = b"".join(weights.tobytes() for weights in model.get_weights())
    print(hashlib.sha256(learned).hexdigest(), len(open("log.txt").readlines()))


main()
