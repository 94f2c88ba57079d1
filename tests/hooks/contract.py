"""Reports on the interceptions of the process that it runs in. `test_keras_contract.py` runs it, and judges.

    contract.py patched MODULE...    imports the modules in this order; which targets are intercepted?
    contract.py reached              makes every call that a user can make; what does each of them reach?
    contract.py exceptions           raises in the user's code below the framework; what comes out above it?
    contract.py train                trains a small model from a seed; which weights come out?
    contract.py undo                 in a process without interceptions: installs every generation, and takes it back

The last line of its output is the answer, one JSON value. Nothing in `py_hooks` is replaced for the counts: a profiling
function sees the calls of patched targets, and records are counted on their way to the trial.
"""
import collections
import contextlib
import hashlib
import importlib
import inspect
import json
import os
import sys
import traceback

BATCH, ROWS, EPOCHS = 4, 8, 2
KINDS = {1: "train", 2: "test", 3: "predict"}


def imported_keras():
    """The Keras of the stack; Keras within TensorFlow 1 is another package."""
    return importlib.import_module(os.environ.get("KERAS_PACKAGE", "keras"))


def is_keras3():
    """Whether it is Keras 3."""
    return imported_keras().__version__[0] == "3"


# -- generations of this process -----------------------------------------------------------------------------------


def generations():
    """`(generation, rows)` of every library that is imported here and known to the registry."""
    from py_hooks.boot import install
    from py_hooks.engine import version
    from py_hooks.registry import GENERATIONS

    for name in sorted({row[0] for row in GENERATIONS if "." not in row[0]} & set(sys.modules)):
        found = sys.modules[name].__version__
        modules = [version.choose(name, found, GENERATIONS, name)]
        modules += [module for _, module in version.parts(name, found, GENERATIONS)]
        for module in modules:
            generation = importlib.import_module("py_hooks." + module).GENERATION
            backend = install.backend(generation)
            yield generation, generation.patches + (generation.backends[backend] if backend else ())


def stands_at(patch):
    """`(owner, name, value)` of a row's target; the value as it is in the owner or a base of it."""
    owner = importlib.import_module(patch.module)
    path = patch.attribute.split(".")
    for name in path[:-1]:
        owner = getattr(owner, name)
    return owner, path[-1], inspect.getattr_static(owner, path[-1])


def function_of(value):
    """The function in a property, a class or static method, or the function itself."""
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)


def times_wrapped(value):
    """How many wrappers of the engine are around a target's original."""
    function, times = function_of(value), 0
    while hasattr(function, "_pedl_original"):
        function, times = function._pedl_original, times + 1
    return times


def patched(*modules):
    """How often each target is wrapped once the modules are imported, and whether the imports have begun a trial."""
    for name in modules:
        importlib.import_module(name)
    importlib.reload(sys.modules[imported_keras().utils.Sequence.__module__.rpartition(".")[0]])
    from py_hooks.recording import recorder

    return {
        "wrapped": {repr(row): times_wrapped(stands_at(row)[2]) for _, rows in generations() for row in rows},
        "begun": recorder.CALLS.begun,
    }


def undo():
    """What `install` changes but must not, and what differs after it is taken back."""
    imported_keras()

    from py_hooks.boot import install
    from py_hooks.engine import patch

    wrong = []
    for generation, rows in list(generations()):
        owners = {repr(row): stands_at(row)[0] for row in rows}
        before = {name: _contents(owner) for name, owner in owners.items()}
        signatures = {repr(row): _signature(row) for row in rows}
        uninstall = patch.install(generation, install.backend(generation))
        wrong += [f"{row} is not intercepted" for row in rows if times_wrapped(stands_at(row)[2]) != 1]
        wrong += [f"the signature of {row} changed" for row in rows if signatures[repr(row)] not in (None, _signature(row))]
        uninstall()
        wrong += [f"{name} is not what it was" for name in owners if _contents(owners[name]) != before[name]]
    return wrong


def _contents(owner):
    return {name: id(value) for name, value in vars(owner).items()}


def _signature(row):
    """The type and the signature of a target; None for a function of C, because its signature is not visible."""
    value = stands_at(row)[2]
    try:
        return type(value).__name__, str(inspect.signature(function_of(value)))
    except ValueError:
        return None


# -- models that count ---------------------------------------------------------------------------------------------

computed = []


def _count():
    computed.append(None)


def tick(tensor):
    """Returns the tensor itself; `computed` grows by one whenever it is really computed."""
    keras = imported_keras()

    if keras.backend.backend() == "jax":
        import jax

        jax.debug.callback(_count)
        return tensor
    if keras.backend.backend() == "torch":
        if not tensor.is_meta:  # Keras finds shapes with tensors that have no values
            _count()
        return tensor
    import numpy
    import tensorflow

    def count():
        _count()
        return numpy.float32(0)

    call_python = tensorflow.numpy_function if is_keras3() else tensorflow.py_func
    zero = call_python(count, [], tensorflow.float32)
    zero.set_shape(())
    return tensor + zero


def times_computed():
    """How often `tick` has run, once everything that was requested is computed."""
    if "jax" in sys.modules:
        sys.modules["jax"].effects_barrier()
    return len(computed)


def tick_layer():
    keras = imported_keras()

    class Tick(keras.layers.Layer):
        def call(self, inputs):
            return tick(inputs)

        def compute_output_shape(self, input_shape):
            return input_shape

    return Tick()


def sequential():
    keras = imported_keras()

    return keras.models.Sequential([keras.layers.Dense(3, input_shape=(2,)), tick_layer(), keras.layers.Dense(1)])


def sequential_keras3():
    keras = imported_keras()

    return keras.models.Sequential([keras.Input((2,)), keras.layers.Dense(3), tick_layer(), keras.layers.Dense(1)])


def functional():
    keras = imported_keras()

    inputs = keras.layers.Input((2,))
    outputs = keras.layers.Dense(1)(tick_layer()(keras.layers.Dense(3)(inputs)))
    return keras.models.Model(inputs, outputs)


def subclassed():
    keras = imported_keras()

    class Small(keras.models.Model):
        def __init__(self):
            super(Small, self).__init__()  # noqa: UP008 - Keras 2 looks at the frame
            self.first = keras.layers.Dense(3)
            self.tick = tick_layer()
            self.last = keras.layers.Dense(1)

        def call(self, inputs):
            return self.last(self.tick(self.first(inputs)))

    return Small()


def model_makers():
    first = sequential_keras3 if is_keras3() else sequential
    return collections.OrderedDict([("Sequential", first), ("functional", functional), ("subclassed", subclassed)])


def compiled(make):
    model = make()
    model.compile(optimizer="sgd", loss="mse")
    return model


def arrays():
    import numpy

    return numpy.arange(ROWS * 2, dtype="float32").reshape(ROWS, 2) / 16, numpy.ones((ROWS, 1), "float32")


def batches(x, y):
    """A generator that never ends."""
    while True:
        for start in range(0, len(x), BATCH):
            yield x[start:start + BATCH], y[start:start + BATCH]


def sequence(x, y, fail=None):
    """The batches as an indexable data set; with `fail`, an exception in place of the second."""
    keras = imported_keras()

    class Batches(keras.utils.Sequence):
        def __len__(self):
            return len(x) // BATCH

        def __getitem__(self, index):
            if fail is not None and index == 1:
                raise fail
            return x[index * BATCH:(index + 1) * BATCH], y[index * BATCH:(index + 1) * BATCH]

    return Batches()


def evaluating_callback(x, y):
    """A callback of the user that makes another call."""
    keras = imported_keras()

    class Evaluating(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(x, y, batch_size=BATCH, verbose=0)

    return Evaluating()


# -- reached -------------------------------------------------------------------------------------------------------


class Counted(list):
    """A list that counts the items appended to it."""

    count = 0

    def append(self, item):
        self.count += 1
        list.append(self, item)


class WatchedTrial:
    """The trial, with a count of the records that are appended to it."""

    def __init__(self, trial):
        self._trial = trial
        self.kinds = collections.Counter()
        self.whole_calls = 0

    def __getattr__(self, name):
        return getattr(self._trial, name)

    def append(self, records):
        self.kinds.update(record[0] for record in records)
        return self._trial.append(records)

    def record_batch(self, kind, *call):
        # A call on a batch that is recorded whole is a call of the user.
        self.whole_calls += 1
        self.kinds[kind] += 1
        return self._trial.record_batch(kind, *call)


class Watch:
    """Counts entries, records, calls of patched targets and computations from when it is made."""

    def __init__(self):
        from py_hooks.recording import recorder

        self._calls = recorder.CALLS
        self._calls.entries = self._calls.sites.entered = Counted(self._calls.entries)
        self._calls.trial = WatchedTrial(self._calls.trial)
        self._rows = {}
        self._wrappers = set()
        for generation, rows in generations():
            if generation.distribution == "tensorflow.keras" != os.environ.get("KERAS_PACKAGE"):
                # It is imported with every TensorFlow 1, and is tested by other stacks.
                continue
            for row in rows:
                function = function_of(stands_at(row)[2])
                self._rows[id(function._pedl_original)] = repr(row)
                self._wrappers.add(function.__code__)
        self.reached = collections.Counter()

    def state(self):
        """All current counts."""
        self._calls.append_pending()
        counts = collections.Counter({KINDS[kind]: n for kind, n in self._calls.trial.kinds.items() if kind in KINDS})
        entries = self._calls.entries.count + self._calls.trial.whole_calls
        counts.update({"entries": entries, "computed": times_computed()})
        counts.update(self.reached)
        return counts

    def _profile(self, frame, event, argument):
        if event == "call" and frame.f_code in self._wrappers:
            row = self._rows.get(id(frame.f_locals["original"]))
            if row is not None:
                self.reached[row] += 1

    @contextlib.contextmanager
    def watching(self):
        """Counts the calls of patched targets in this thread."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)


def user_calls(model):
    """The calls that a user can make, by name: the function, and how often it makes each kind of compute call."""
    keras = imported_keras()

    x, y = arrays()
    loop = {"batch_size": BATCH, "verbose": 0}
    epochs = {"epochs": EPOCHS, "verbose": 0}
    endless = {"steps_per_epoch": ROWS // BATCH}
    calls = [
        ("fit on arrays", "Model.fit", lambda: model.fit(x, y, epochs=EPOCHS, **loop)),
        ("fit with validation data", "Model.fit", lambda: model.fit(x, y, epochs=EPOCHS, validation_data=(x, y), **loop)),
        ("fit with a callback that evaluates", "Model.fit",
         lambda: model.fit(x, y, epochs=EPOCHS, callbacks=[evaluating_callback(x, y)], **loop)),
        ("fit on a Sequence", "Model.fit", lambda: model.fit(sequence(x, y), **epochs)),
        ("fit on a generator", "Model.fit", lambda: model.fit(batches(x, y), **dict(endless, **epochs))),
        ("evaluate", "Model.evaluate", lambda: model.evaluate(x, y, **loop)),
        ("evaluate a Sequence", "Model.evaluate", lambda: model.evaluate(sequence(x, y), verbose=0)),
        ("predict", "Model.predict", lambda: model.predict(x, **loop)),
        ("predict a Sequence", "Model.predict", lambda: model.predict(sequence(x, y), verbose=0)),
        ("train_on_batch", "Model.train_on_batch", lambda: model.train_on_batch(x, y)),
        ("test_on_batch", "Model.test_on_batch", lambda: model.test_on_batch(x, y)),
        ("predict_on_batch", "Model.predict_on_batch", lambda: model.predict_on_batch(x)),
    ]
    if keras.__version__ in ("2.2.0", "2.2.1", "2.2.2", "2.2.3", "2.2.4"):
        # Only their `..._generator` accepts data other than arrays.
        calls = [call for call in calls if not call[0].endswith((" a Sequence", " a generator"))]
    if keras.__version__[0] == "2":
        calls += [
            ("fit_generator on a Sequence", "Model.fit_generator",
             lambda: model.fit_generator(sequence(x, y), **epochs)),
            ("fit_generator on a Sequence without a thread", "Model.fit_generator",
             lambda: model.fit_generator(sequence(x, y), workers=0, **epochs)),
            ("fit_generator on a generator", "Model.fit_generator",
             lambda: model.fit_generator(batches(x, y), **dict(endless, **epochs))),
            ("evaluate_generator", "Model.evaluate_generator", lambda: model.evaluate_generator(sequence(x, y))),
            ("predict_generator", "Model.predict_generator", lambda: model.predict_generator(sequence(x, y))),
        ]
    return calls


def reached():
    """What each call reaches, by kind of model and name of the call; and the targets that no call has reached."""
    imported_keras()

    watch = Watch()
    answer = {}
    with watch.watching():
        for kind, make in model_makers().items():
            model = compiled(make)
            for name, target, call in user_calls(model):
                before = watch.state()
                call()
                counts = watch.state()
                counts.subtract(before)
                keys = "entries", "train", "test", "predict", "computed"
                answer[f"{kind}: {name}"] = dict(
                    {key: counts[key] for key in keys},
                    target=sum(n for row, n in counts.items() if row.endswith(":" + target)),
                )
        everything_else(compiled(functional))
        files_of_tensorflow()
    return {"calls": answer, "never": sorted(set(watch._rows.values()) - set(watch.reached))}


def files_of_tensorflow():
    """Event files, files of `tf.io.gfile` and checkpoints, if there is TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    from tensorflow.python.data.ops import dataset_ops
    from tensorflow.python.lib.io import file_io, tf_record
    from tensorflow.python.ops import gen_summary_ops
    from tensorflow.python.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter("events")
    writer.add_event(tensorflow.compat.v1.Event(step=1))
    writer.close()
    writer.reopen()
    writer.close()
    handle = gen_summary_ops.summary_writer(shared_name="contract")
    gen_summary_ops.create_summary_file_writer(handle, "events", 10, 1000, ".v2")
    gen_summary_ops.close_summary_writer(handle)
    file_io.create_dir_v2("made")
    file_io.recursive_create_dir_v2("made/below")
    with file_io.FileIO("made/file", "w") as file:
        file.write("text")
    file_io.rename_v2("made/file", "made/renamed")
    file_io.copy_v2("made/renamed", "made/copy")
    file_io.delete_file_v2("made/copy")
    file_io.delete_recursively_v2("made/below")
    with tf_record.TFRecordWriter("made/records") as records:
        records.write(b"record")
    numbers = dataset_ops.DatasetV2.range(2)
    numbers.cache("made/cache")
    if tensorflow.executing_eagerly():
        checkpoint = tensorflow.train.Checkpoint(number=tensorflow.Variable(1))
        checkpoint.restore(checkpoint.save("made/checkpoint"))
        numbers.snapshot("made/snapshot")
        numbers.save("made/saved")


def everything_else(model):
    """Reaches the targets that no call above reaches: models in files, reads, writes, random ops."""
    keras = imported_keras()

    x, y = arrays()
    model.train_on_batch(x, y)
    model.set_weights(model.get_weights())
    keras3 = is_keras3()
    model.save_weights("model.weights.h5")
    model.load_weights("model.weights.h5")
    model.save("model.keras" if keras3 else "model.h5")
    if keras3:
        _save_keras3_model(model)
    else:
        _load_keras2_model()
    if keras.backend.backend() == "tensorflow":
        _draw_random_numbers()
    if keras.backend.backend() == "torch":
        _fit_torch_loader(model)


def _fit_torch_loader(model):
    import torch

    rows = torch.utils.data.TensorDataset(*map(torch.tensor, arrays()))
    model.fit(torch.utils.data.DataLoader(rows, batch_size=BATCH), verbose=0)


def _save_keras3_model(model):
    """A model written in the other ways, and a read of one of its variables."""
    keras = imported_keras()

    keras.models.save_model(model, "by_models.keras")
    keras.saving.save_weights(model, "by_saving.weights.h5")
    with contextlib.suppress(ImportError):  # on JAX the format is TensorFlow's
        model.export("exported")
    model.trainable_variables[0].numpy()
    from keras.src.legacy.preprocessing.image import ImageDataGenerator

    _build_images(ImageDataGenerator())
    model.fit(_generate(*arrays()), steps_per_epoch=2, verbose=0)


def _build_images(images):
    import numpy

    images.flow(numpy.zeros((4, 8, 8, 1)), numpy.zeros(4), batch_size=2)[0]


def _generate(x, y):
    while True:
        yield x[:BATCH], y[:BATCH]


def _load_keras2_model():
    """Writes and loads a model without layers of this file, and makes images from arrays."""
    keras = imported_keras()

    plain = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    plain.compile("sgd", "mse")
    plain.save("plain.h5")
    keras.models.load_model("plain.h5")
    if keras.__name__ == "keras":
        keras.engine.saving.load_model("plain.h5")
    else:
        _meet_what_only_tf_keras_has(plain)
    _build_images(keras.preprocessing.image.ImageDataGenerator())


def _meet_what_only_tf_keras_has(model):
    """Calls functions of TensorFlow's Keras that are not part of its public interface."""
    import tensorflow

    if tensorflow.__version__.startswith("1.15"):
        model.save("saved_model", save_format="tf")
        from tensorflow.python.keras.saving.saved_model import load

        load.load("saved_model")
    if tensorflow.__version__.startswith("1.13"):
        from tensorflow.python.keras import models

        models.load_model("plain.h5")


def _draw_random_numbers():
    import tensorflow

    random = tensorflow.random
    drawn = [
        random.uniform([2]), random.normal([2]), random.truncated_normal([2]), random.shuffle([1, 2]),
        random.uniform([2], 0, 9, tensorflow.int32), random.categorical([[0.5, 0.5]], 1),
    ]
    if hasattr(tensorflow, "Session"):
        tensorflow.autograph.to_graph(arrays)
        _run_sessions(tensorflow, drawn)
    else:
        _use_variables(tensorflow)
        with tensorflow.Graph().as_default():
            tensorflow.compat.v1.disable_control_flow_v2()
            _run_sessions(tensorflow.compat.v1, [])
            tensorflow.compat.v1.enable_control_flow_v2()
    _use_pipelines(tensorflow)


def _use_variables(tensorflow):
    """Reads and writes a variable of TensorFlow 2 in every way; sets a new seed, and uses an optimizer of TensorFlow 1."""
    tensorflow.random.set_seed(1)
    variable, rows = tensorflow.Variable([1.0, 2.0, 3.0, 4.0]), tensorflow.Variable([[1.0], [2.0]])
    variable.assign_add([1.0] * 4).read_value()
    variable.assign_sub([1.0] * 4)
    variable[1].assign(3.0)
    slices = tensorflow.IndexedSlices([1.0], [0])
    for name in ("add", "sub", "max", "min", "mul", "div", "update"):
        getattr(variable, "scatter_" + name)(slices)
    rows.batch_scatter_update(tensorflow.IndexedSlices([[5.0]], [[0]]))
    for name in ("add", "sub", "update"):
        getattr(variable, "scatter_nd_" + name)([[1]], [1.0])
    variable.sparse_read([0])
    variable.gather_nd([0])
    weight = tensorflow.Variable(1.0)
    with tensorflow.GradientTape() as tape:
        loss = weight * weight
    optimizer = tensorflow.compat.v1.train.GradientDescentOptimizer(0.1)
    optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])


def _use_pipelines(tensorflow):
    """A pipeline with each of its parts that is intercepted."""
    from tensorflow.python.data.ops import dataset_ops
    from tensorflow.python.ops import random_ops

    def draw(number):
        random = tensorflow.random
        tensorflow.compat.v1.image.sample_distorted_bounding_box([4, 4, 1], [[[0.0, 0.0, 1.0, 1.0]]])
        random_ops.parameterized_truncated_normal([1])
        return number + random.gamma([1], 1.0) + random.poisson(lam=1.0, shape=[1])

    for data in dataset_ops.DatasetV1, dataset_ops.DatasetV2:
        numbers = data.from_generator(lambda: iter([1.0, 2.0]), tensorflow.float32).shuffle(2)
        numbers = numbers.interleave(data.from_tensors, cycle_length=2)
        numbers.apply(tensorflow.data.experimental.parallel_interleave(data.from_tensors, cycle_length=2))
        numbers.apply(tensorflow.data.experimental.map_and_batch(draw, 1))
        numbers.map(lambda number: tensorflow.compat.v1.py_func(float, [number], tensorflow.float64)).batch(2)
        if hasattr(numbers, "map_with_legacy_function"):
            numbers.map_with_legacy_function(tensorflow.identity)
    # The datasets that TensorFlow 1 derives from others are of the first kind.
    dataset_ops.DatasetV2.range(2).map(tensorflow.identity)


def _run_sessions(tensorflow, drawn):
    """Sessions of the script, and an optimizer of TensorFlow."""
    from tensorflow.core.protobuf import config_pb2

    variable = tensorflow.Variable([1.0])
    step = tensorflow.train.GradientDescentOptimizer(0.1).minimize(tensorflow.reduce_sum(variable))
    with tensorflow.Session() as session:
        session.run(tensorflow.global_variables_initializer())
        session.run([drawn, step])
        session.make_callable(variable)()
    with tensorflow.Session() as session:
        session._make_callable_from_options(config_pb2.CallableOptions(target=[step.name]))
    del session
    tensorflow.while_loop(lambda number: number < 2, lambda number: number + 1, [tensorflow.constant(0)])
    definition = tensorflow.train.export_meta_graph(clear_devices=True)
    with tensorflow.Graph().as_default():
        tensorflow.train.import_meta_graph(definition)


# -- exceptions ----------------------------------------------------------------------------------------------------


class UsersError(Exception):
    """Raised by the user's code."""


def exceptions():
    """The exception that leaves `fit` for each exception of the user's code, and whether the model can still train."""
    x, y = arrays()
    answer = {}
    for name, attempt in attempts():
        error = UsersError("raised in " + name)
        model = compiled(functional)
        try:
            attempt(model, error)
            answer[name] = "nothing was raised"
        except Exception as raised:  # noqa: BLE001 - any exception is compared with what Python gives
            answer[name] = describe(raised, error)
        answer[name + ", then"] = len(model.fit(x, y, batch_size=BATCH, verbose=0).history["loss"])
    answer["left inside"] = depth_of_recorder()
    return answer


def depth_of_recorder():
    """The depth that the recorder has after everything is over; None if there is no recorder."""
    try:
        from py_hooks.recording import recorder
    except ImportError:
        return None
    return [recorder.CALLS.depth, len(recorder.CALLS.entries)] if recorder.CALLS else None


def in_callback(model, error):
    keras = imported_keras()

    class Failing(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            raise error

        on_train_batch_end = on_batch_end

    model.fit(*arrays(), batch_size=BATCH, verbose=0, callbacks=[Failing()])


def in_item(model, error):
    # In order: if the first batch fails, Keras on JAX leaves the model without its variables.
    model.fit(sequence(*arrays(), fail=error), verbose=0, shuffle=False)


def in_item_without_threads(model, error):
    keras = imported_keras()

    data = sequence(*arrays(), fail=error)
    if keras.__version__[0] == "2":
        model.fit_generator(data, workers=0, verbose=0, shuffle=False)
    else:
        data.workers = 0
        model.fit(data, verbose=0, shuffle=False)


def in_generator(model, error):
    def failing():
        endless = batches(*arrays())
        yield next(endless)
        yield next(endless)
        raise error

    model.fit(failing(), steps_per_epoch=4, verbose=0)


def in_train_step(model, error):
    keras = imported_keras()

    class Failing(keras.models.Model):
        def train_step(self, *args):
            raise error

    inputs = keras.layers.Input((2,))
    failing = Failing(inputs, keras.layers.Dense(1)(inputs))
    failing.compile("sgd", "mse")
    failing.fit(*arrays(), batch_size=BATCH, verbose=0)


def in_arguments(model, error):
    model.fit(*arrays(), no_such_argument=1)


def attempts():
    """The places in which the user's code can fail, by name."""
    found = [
        ("a callback", in_callback), ("__getitem__", in_item), ("__getitem__ without threads", in_item_without_threads),
        ("a generator", in_generator), ("the arguments", in_arguments),
    ]
    return found + ([("train_step", in_train_step)] if is_keras3() else [])


def describe(raised, error):
    """What must be the same as under Python. Frames of pedl, and of the loops that it replaces, are left out."""
    frames = [frame.name for frame in traceback.extract_tb(raised.__traceback__) if frame.filename == __file__]
    return {
        "type": type(raised).__name__,
        "text": str(raised).splitlines()[0],
        "the same object": raised is error,
        "caused by it": raised.__cause__ is error or raised.__context__ is error,
        "the script's frames": frames,
    }


# -- train ---------------------------------------------------------------------------------------------------------


def train():
    """The SHA-256 of the weights of a seeded model, after a fit on arrays and one on a Sequence."""
    import random

    keras = imported_keras()
    import numpy

    random.seed(1)
    numpy.random.seed(2)
    if is_keras3():
        keras.utils.set_random_seed(3)
    else:
        import tensorflow

        tensorflow.set_random_seed(3)
        # With several operations at once the result does not repeat.
        config = tensorflow.ConfigProto(inter_op_parallelism_threads=1)
        keras.backend.set_session(tensorflow.Session(config=config))
    model = compiled(functional)
    x, y = arrays()
    model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    fit = model.fit if is_keras3() else model.fit_generator
    fit(sequence(x, y), epochs=EPOCHS, verbose=0)
    digest = hashlib.sha256()
    for weights in model.get_weights():
        digest.update(weights.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    answer = {"patched": patched, "reached": reached, "exceptions": exceptions, "train": train, "undo": undo}[sys.argv[1]]
    sys.stdout.write(json.dumps(answer(*sys.argv[2:])) + "\n")
