"""Draws random numbers with TensorFlow by each op that has a twin, and in each way; prints a line with the hash of each.

Under pedl-run the lines are those of plain Python. What is not so is in `other_numbers`, whose lines begin with `OTHER`.
"""

import hashlib

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_random_ops

IS_TENSORFLOW1 = tf.__version__.startswith("1.")

# None, few, odd numbers of them, around the 256 samples that a kernel sets aside for each, and more than 2**16.
SHAPES = [[], [1], [0], [3], [7, 5], [0, 4], [255], [256], [257], [2, 0, 3], [1021], [65536], [65537], [3, 43691], [8], [2]]
LARGE = 60000
# Of graph and op. Not (0, 0), for which a kernel asks the operating system.
SEEDS = [(0, 1), (1, 0), (7, 9), (87654321, 0), (1 << 31, 3), (2**31 - 1, 2**31 - 1), (-5, -1), ((1 << 62) + 3, (1 << 40) + 1)]
FLOAT_OPS = ("random_uniform", "random_standard_normal", "truncated_normal")
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
RANGES = {
    tf.int32: [(0, 1), (0, 2), (0, 10), (-7, 9), (0, 256), (5, 1029), (0, 2**30), (0, 2**30 + 1), (0, 2**31 - 1)]
    + [(-(2**31), 2**31 - 1), (-(2**31), -(2**31) + 3)],
    tf.int64: [(0, 1), (0, 2), (0, 10), (-7, 9), (0, 2**32), (0, 2**32 + 1), (5, 2**62), (0, 2**63 - 1)]
    + [(-(2**63), 2**63 - 1), (-(2**63), 1)],
}


def say(name, values):
    """Prints a name, and the hash of shapes, types and values."""
    digest = hashlib.sha256()
    for value in values if isinstance(values, (list, tuple)) else [values]:
        value = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        digest.update(repr((value.shape, str(value.dtype))).encode() + value.tobytes())
    print(name, digest.hexdigest(), flush=True)


def drawing(op, *types):
    """`op` as a function of arrays of these types, which draws on in each call."""
    if IS_TENSORFLOW1:
        inputs = [tf.compat.v1.placeholder(dtype) for dtype in types]
        drawn, session = op(*inputs), tf.compat.v1.Session()
        return lambda *values: session.run(drawn, dict(zip(inputs, values)))
    shapes = [[None]] + [[]] * (len(types) - 1)
    function = tf.function(op, input_signature=[tf.TensorSpec(*given) for given in zip(shapes, types)])
    return lambda *values: function(*[tf.constant(value, dtype) for value, dtype in zip(values, types)])


def draw_floats():
    for name in FLOAT_OPS:
        op = getattr(gen_random_ops, name)
        for dtype in FLOATS:
            for seed, seed2 in SEEDS:
                draw = drawing(lambda shape: op(shape, dtype, seed=seed, seed2=seed2), tf.int32)
                for shape in SHAPES:
                    say(f"{name} {dtype.name} {seed} {seed2} {shape}", draw(shape))


def draw_ints():
    op = gen_random_ops.random_uniform_int
    for dtype, ranges in RANGES.items():
        for seed, seed2 in SEEDS:
            draw = drawing(lambda shape, low, high: op(shape, low, high, seed=seed, seed2=seed2), tf.int64, dtype, dtype)
            for number, shape in enumerate(SHAPES):
                for low, high in ranges if np.prod(shape) < LARGE else ranges[number % 3 :: 3]:
                    say(f"random_uniform_int {dtype.name} {seed} {seed2} {shape} {low} {high}", draw(shape, low, high))


def draw_far():
    """As many that a counter of 32 bits overflows."""
    for dtype in (tf.float32, tf.float64):
        draw = drawing(lambda shape: gen_random_ops.random_uniform(shape, dtype, seed=3, seed2=4), tf.int32)
        for count in (1 << 23, (1 << 23) - 5, 1 << 21, 7):
            say(f"far {dtype.name} {count}", draw([count]))
    draw = drawing(lambda shape: gen_random_ops.random_uniform_int(shape, 0, 1000, seed=3, seed2=4), tf.int32)
    for count in (1 << 23, (1 << 23) - 5, 1 << 21, 7):
        say(f"far int32 {count}", draw([count]))


def all_ops(shape=(5,), **seed):
    """A tensor of each op and type."""
    random = tf.random
    drawn = [random.uniform(shape, dtype=dtype, **seed) for dtype in FLOATS[2:]]
    drawn += [random.uniform(shape, 0, 1000, tf.int32, **seed), random.uniform(shape, -3, 1 << 40, tf.int64, **seed)]
    drawn += [random.normal(shape, **seed), random.normal(shape, dtype=tf.float64, **seed)]
    return drawn + [random.truncated_normal(shape, **seed)]


def numbers_of_graphs():
    """TensorFlow 1: seeds of ops that follow from the place in the graph, in loops and branches too."""
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.set_random_seed(3)
        fetches = {"all": all_ops(), "seeded": all_ops(seed=4)}
        pass_of_loop = [lambda i, total: i < 5, lambda i, total: (i + 1, total * 2 + tf.random.uniform([3]))]
        fetches["loop"] = tf.while_loop(*pass_of_loop, [0, tf.zeros([3])], parallel_iterations=1)
        fetches["branch"] = tf.cond(tf.random.uniform([]) < 0.5, lambda: tf.random.normal([3]), lambda: tf.zeros([3]))
        fetches["dropout"] = tf.nn.dropout(tf.ones([40]), rate=0.5)
        fetches["later"] = all_ops()
        with tf.compat.v1.Session() as session:
            for number in range(4):
                for name, values in sorted(session.run(fetches).items()):
                    say(f"graph {name} {number}", values)


def repeated(name, function, *arguments, times=3):
    """Says what a function returns, time after time; or what it raises."""
    for number in range(times):
        try:
            values = function(*arguments)
        except Exception as error:
            values = type(error).__name__
        say(f"{name} {number}", values)


def numbers_of_functions():
    """TensorFlow 2: functions, what is in them, and what they are in."""
    weight = tf.Variable([1.0, 2.0, 3.0])
    repeated("default seeds", tf.function(all_ops))
    repeated("seeds", tf.function(lambda: all_ops(seed=0) + all_ops(seed=5)))
    first, second = tf.function(all_ops), tf.function(lambda: all_ops())
    repeated("functions", lambda: first() + second())
    for shape in SHAPES:
        repeated(f"shape of the trace {shape}", tf.function(lambda: all_ops(shape)))
    function = tf.function(all_ops)
    repeated("traces", lambda: function((2,)) + function((3,)) + function((2,)))
    inner = tf.function(all_ops)
    repeated("called by another", tf.function(lambda: inner() + all_ops()))
    repeated("outside of functions", lambda: all_ops() + all_ops(seed=3) + [tf.random.shuffle(tf.range(9))])
    repeated("unused", tf.function(lambda: all_ops()[:1]))
    repeated("loop", tf.function(loop), tf.constant(4))
    repeated("branches", tf.function(lambda x: tf.cond(x > 0, all_ops, lambda: all_ops(seed=2))), tf.constant(1))
    repeated("map_fn", tf.function(lambda: tf.map_fn(draw_one, tf.range(6.0), parallel_iterations=1)))
    repeated("vectorized_map", tf.function(lambda: tf.vectorized_map(draw_one, tf.range(6.0))))
    repeated("vectorized_map outside", lambda: tf.vectorized_map(draw_one, tf.range(6.0)))
    repeated("dropout", tf.function(lambda: tf.nn.dropout(tf.ones([40]), 0.5)))
    repeated("image", tf.function(lambda: tf.image.random_flip_left_right(tf.ones([4, 4, 3]) * tf.random.uniform([4, 4, 3]))))
    repeated("gamma", tf.function(lambda: tf.random.gamma([4], 2.0)))
    repeated("poisson", tf.function(lambda: tf.random.poisson([4], 2.0)))

    noisy = tf.function(lambda: tf.reduce_sum(weight * tf.random.uniform([3]) * draw_one(2.0)))
    repeated("gradient of a function", lambda: gradient(noisy, weight))
    other = tf.function(lambda: tf.reduce_sum(weight * tf.random.normal([3]) + tf.random.truncated_normal([3])))
    repeated("gradient in a function", tf.function(lambda: gradient(other, weight)))
    looping = tf.function(lambda: tf.reduce_sum(weight) * loop(tf.constant(3))[0])
    repeated("gradient of a loop", lambda: gradient(looping, weight))

    anew = tf.function(all_ops)
    for number, seed in enumerate((77, 77, 5)):
        tf.random.set_seed(seed)
        repeated(f"set_seed {number} {seed}", lambda: anew() + all_ops(), times=2)
    tf.keras.backend.clear_session()
    repeated("clear_session", anew, times=2)

    none_wanted = tf.function(lambda shape, limit: tf.random.uniform(shape, limit, 5, tf.int32))
    for shape, limit in (([0], 5), ([0], 9), ([2], 5), ([2], 4), ([3, 0], 2**31 - 1)):
        repeated(f"limits {shape} {limit}", none_wanted, tf.constant(shape), tf.constant(limit))
        repeated(f"constant limits {shape} {limit}", tf.function(lambda: tf.random.uniform(shape, limit, 5, tf.int32)))
    repeated("a number is shuffled", tf.function(lambda: tf.random.shuffle(5)))

    chosen = lambda: (tf.random.shuffle(tf.range(9)), tf.random.categorical([[0.2, 0.8]], 7))  # noqa: E731
    data = tf.data.Dataset.range(5).map(lambda _: (*all_ops(), *chosen()))
    repeated("pipeline", lambda: [value for values in data for value in values])
    repeated("pipeline in a function", tf.function(pipeline_in_function))


def draw_one(x):
    return x * tf.random.uniform([]) + tf.cast(tf.random.uniform([], 0, 7, tf.int64), tf.float32)


def loop(times):
    # TensorFlow runs ten passes at a time, and which of them draws first is a race: not so under pedl-run.
    total = tf.zeros([5])
    for i in tf.range(times):
        tf.autograph.experimental.set_loop_options(parallel_iterations=1)
        total = total * 2 + tf.random.uniform([5]) * tf.cast(tf.random.uniform([5], 0, 9, tf.int32) + i, tf.float32)
    return total


def gradient(function, variable):
    with tf.GradientTape() as tape:
        result = function()
    return [result, tape.gradient(result, variable)]


def pipeline_in_function():
    total = tf.zeros([5])
    for x in tf.data.Dataset.range(5).map(lambda _: tf.random.uniform([5])):
        total = total * 2 + x
    return total


def other_numbers():
    """What differs from plain Python, but not from run to run under pedl-run."""
    inner = tf.function(all_ops)
    repeated("OTHER shuffle", tf.function(lambda: tf.random.shuffle(tf.range(50))))
    repeated("OTHER categorical", tf.function(lambda: tf.random.categorical([[0.2, 0.8, 0.3]], 50)))
    repeated("OTHER called twice", tf.function(lambda: inner() + inner()))
    repeated("OTHER called within and outside", lambda: tf.function(lambda: inner())() + inner())
    weight = tf.Variable(1.0)
    noisy = tf.function(lambda: weight * tf.random.uniform([]))
    repeated("OTHER with a tape and without", lambda: gradient(noisy, weight) + [noisy()])
    xla = {"jit_compile": True} if "jit_compile" in tf.function.__code__.co_varnames else {"experimental_compile": True}
    repeated("OTHER XLA", tf.function(all_ops, **xla))


draw_floats()
draw_ints()
draw_far()
if IS_TENSORFLOW1:
    numbers_of_graphs()
else:
    tf.random.set_seed(3)
    numbers_of_functions()
    other_numbers()
