"""The smallest batches that a framework can make, in large numbers; `cargo dev bench` runs it, with and without pedl-run.

    batches.py measure COUNT MINE OTHER LOOP...
                                         seconds of COUNT batches, by loop; in turns with another process: each part
                                         waits for a byte in the pipe MINE, and puts one into the pipe OTHER
    batches.py draws COUNT MINE OTHER KIND...
                                         seconds of a million random numbers in a session, by kind, COUNT runs of each;
                                         also in turns
    batches.py empty COUNT LOOP...       the same as `measure` without computing: only the framework's loop
    batches.py record COUNT              under pedl-run: seconds of recording COUNT calls
    batches.py replayed COUNT LOOP FILE  to be killed once COUNT batches are in a checkpoint, and started again;
                                         appends the time at which its loop begins to FILE

A loop is `arrays`, `Sequence`, `train_on_batch`, or `session` for `session.run` of TensorFlow 1, of which nothing remains
without computing. It runs for a while before it is measured, so that the measured part traces and
allocates nothing for the first time. The batches come in `PARTS` epochs, and seconds are given for each
of them: other programs on the machine disturb some parts, and processes that are measured in turns are disturbed alike. No
output, and no callback except the clock, which is called once an epoch. The last line is the answer in JSON.
"""
import io
import json
import sys
import time

from turns import Alone, Turns

ROWS, COLUMNS = 16, 4
WARM_UP_BATCHES = 200
PARTS = 20


def is_keras2():
    import keras

    return keras.__version__.startswith("2")


def build():
    """One small layer, one metric, the optimizer without state: as little work as a batch can be."""
    import keras

    inputs = keras.layers.Input((COLUMNS,))
    model = keras.models.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    return model


def build_session():
    """A model as small as that, in a separate session: a function that trains it."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        tf.set_random_seed(1)
        x, y = tf.placeholder(tf.float32, [None, COLUMNS]), tf.placeholder(tf.float32, [None, 1])
        kernel = tf.get_variable("kernel", [COLUMNS, 1])
        loss = tf.reduce_mean(tf.square(tf.matmul(x, kernel) - y))
        step = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        session = tf.Session()
        session.run(tf.global_variables_initializer())
    return lambda rows, labels: session.run([step, loss], {x: rows, y: labels})


# Random numbers of one run.
DRAWN = 100_000
PASSES = 10


def build_draw(kind):
    """A function that draws `DRAWN` numbers in a session, and fetches none of them."""
    import tensorflow.compat.v1 as tf

    def in_passes(number, total):
        return number + 1, total + tf.reduce_sum(tf.random_uniform([DRAWN // PASSES]))

    def imported():
        with tf.Graph().as_default():
            tf.random_uniform([DRAWN], name="drawn")
            definition = tf.train.export_meta_graph()
        tf.train.import_meta_graph(definition)
        return tf.get_default_graph().get_tensor_by_name("drawn:0")

    kinds = {
        "uniform": lambda: tf.random_uniform([DRAWN]),
        "normal": lambda: tf.random_normal([DRAWN]),
        "truncated_normal": lambda: tf.truncated_normal([DRAWN]),
        "dropout": lambda: tf.nn.dropout(tf.ones([DRAWN]), rate=0.5),
        "shuffle": lambda: tf.random_shuffle(tf.range(DRAWN)),
        "multinomial": lambda: tf.multinomial(tf.zeros([1, 10]), DRAWN),
        "while_loop": lambda: tf.while_loop(lambda number, total: number < PASSES, in_passes, [0, 0.0])[1],
        "cond": lambda: tf.cond(tf.placeholder_with_default(True, []), kinds["uniform"], lambda: tf.zeros([DRAWN])),
        "imported": imported,
    }
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        drawn = kinds[kind]().op
        session = tf.Session()
        session.run(tf.global_variables_initializer())
    return lambda: session.run(drawn)


def data(count):
    import numpy

    x = numpy.random.RandomState(1).rand(ROWS * count, COLUMNS).astype("float32")
    return x, x[:, :1].copy()


def sequence(x, y):
    import keras

    class Batches(keras.utils.Sequence):
        def __len__(self):
            return len(x) // ROWS

        def __getitem__(self, index):
            rows = slice(index * ROWS, (index + 1) * ROWS)
            return x[rows], y[rows]

    return Batches()


def clock(turns):
    """A callback that keeps the time of every epoch's beginning and end, in `times`; each epoch is a turn."""
    import keras

    class Clock(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.times = []

        def on_epoch_begin(self, epoch, logs=None):
            turns.take()
            self.times.append(time.perf_counter())

        def on_epoch_end(self, epoch, logs=None):
            self.times.append(time.perf_counter())
            turns.give()

    return Clock()


def arrays_loop(model, x, y, epochs=1, callbacks=()):
    model.fit(x, y, batch_size=ROWS, epochs=epochs, callbacks=list(callbacks), verbose=0)


def sequence_loop(model, x, y, epochs=1, callbacks=()):
    fit = model.fit_generator if is_keras2() else model.fit
    fit(sequence(x, y), epochs=epochs, callbacks=list(callbacks), verbose=0)


def train_on_batch_loop(model, x, y, epochs=1, callbacks=()):
    session_loop(model.train_on_batch, x, y, epochs, callbacks)


def session_loop(train, x, y, epochs=1, callbacks=()):
    for epoch in range(epochs):
        for callback in callbacks:
            callback.on_epoch_begin(epoch)
        for start in range(0, len(x), ROWS):
            train(x[start:start + ROWS], y[start:start + ROWS])
        for callback in callbacks:
            callback.on_epoch_end(epoch)


LOOPS = {"arrays": arrays_loop, "Sequence": sequence_loop, "train_on_batch": train_on_batch_loop, "session": session_loop}


def build_for(name):
    """The model or function that a loop trains."""
    return build_session() if name == "session" else build()


def seconds_of(loop, model, count, turns):
    """Seconds of a batch, for each part of `count` batches, after a warm-up."""
    loop(model, *data(WARM_UP_BATCHES))
    batches = count // PARTS
    watch = clock(turns)
    loop(model, *data(batches), epochs=PARTS, callbacks=[watch])
    return [(end - begin) / batches for begin, end in zip(watch.times[::2], watch.times[1::2])]


def measure(count, mine, other, *loops):
    turns = Turns(mine, other)
    return {name: seconds_of(LOOPS[name], build_for(name), count, turns) for name in loops}


def draws(count, mine, other, *kinds):
    turns = Turns(mine, other)
    return {kind: seconds_of_draws(build_draw(kind), count // PARTS, turns) for kind in kinds}


def seconds_of_draws(draw, count, turns):
    """Seconds of a million numbers, for each part, after a warm-up."""
    for _ in range(WARM_UP_BATCHES // PARTS):
        draw()
    seconds = []
    for _ in range(PARTS):
        turns.take()
        begun = time.perf_counter()
        for _ in range(count):
            draw()
        seconds.append((time.perf_counter() - begun) / count * 1e6 / DRAWN)
        turns.give()
    return seconds


def empty(count, *loops):
    of_keras = [name for name in loops if name != "session"]
    return {name: seconds_of(LOOPS[name], compute_nothing(build()), count, Alone()) for name in of_keras}


def compute_nothing(model):
    """Makes the model's train function always return its first result. It takes no batch."""
    model.train_on_batch(*data(1))
    if is_keras2():
        train_function = model.train_function
        kept = []

        def answer(inputs):
            if not kept:
                kept.append(train_function(inputs))
            return kept[0]

    else:
        logs = {"loss": 0.0, "mae": 0.0}
        takes_state = _backend() == "jax"

        def answer(*args):
            return (logs, args[0]) if takes_state else logs

        model.make_train_function = lambda force=False: None
    model.train_function = answer
    return model


def _backend():
    import keras

    return keras.backend.backend()


def record(count):
    """Seconds of recording calls: noting them, converting their results, and appending these to the log."""
    from py_hooks.recording import call_kinds, recorder

    model = build()
    train_on_batch_loop(model, *data(WARM_UP_BATCHES))
    calls = recorder.CALLS
    calls.append_pending()
    identity = calls.trial.intern("bench")
    results = [_result(number) for number in range(count)]
    begun = time.perf_counter()
    for result in results:
        calls.record(call_kinds.TRAIN, identity, 0, result)
    calls.append_pending()
    return {"recording": [(time.perf_counter() - begun) / count]}


def _result(number):
    """A result like that of a train function, with new numbers."""
    values = [number / 7.0, number / 3.0]
    if is_keras2():
        import numpy

        return [numpy.float32(value) for value in values]
    import keras

    return dict(zip(("loss", "mae"), (keras.ops.convert_to_tensor(value, "float32") for value in values)))


def replayed(count, name, marks):
    """Trains the warm-up, COUNT batches and some more, so that work remains when these are in a checkpoint."""
    model = build_for(name)
    loop = LOOPS[name]
    loop(model, *data(WARM_UP_BATCHES))
    # Not through `open`: a file that the script appends to is cut when it is started again.
    with io.FileIO(marks, "a") as file:
        file.write(b".")
    loop(model, *data(count + max(count // 10, 1000)))
    return {}


def main():
    command, count = sys.argv[1], int(sys.argv[2])
    commands = {"measure": measure, "draws": draws, "empty": empty, "record": record, "replayed": replayed}
    answer = commands[command](count, *sys.argv[3:])
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
