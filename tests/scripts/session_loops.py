"""Training loops over TensorFlow sessions, as scripts of TensorFlow 1 have them.

    python session_loops.py KIND [CALLS]

KIND is one of the functions below. Prints a hash of all variables, of every number that was fetched, and of the next
random numbers. TensorFlow 1.13 and later, by `tensorflow.compat.v1`.
"""

import hashlib
import os
import random
import sys
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

KIND = sys.argv[1]
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
# Seconds that the script itself takes for each call, so that a kill finds it at work.
PAUSE = float(os.environ.get("PAUSE", "0"))
# Rows and columns of a matrix that each call squares: what a larger model would compute.
WORK = int(os.environ.get("WORK", "0"))
DIGEST = hashlib.sha256()


def note(*values):
    """Takes what was fetched into the hash."""
    time.sleep(PAUSE)
    for value in values:
        DIGEST.update(np.ascontiguousarray(value).tobytes())


def rows(count=16, width=8, classes=3):
    """A batch by numpy's generator."""
    inputs = np.random.rand(count, width).astype("float32")
    return inputs, (inputs.sum(axis=1) * 7).astype("int32") % classes


def dense(inputs, width, name, activation=None):
    """A layer with variables of its own."""
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        kernel = tf.get_variable("kernel", [int(inputs.shape[-1]), width])
        bias = tf.get_variable("bias", [width], initializer=tf.zeros_initializer())
    outputs = tf.matmul(inputs, kernel) + bias
    return outputs if activation is None else activation(outputs)


def work(logits):
    """Zero, after as much work as was asked for."""
    if not WORK:
        return 0.0
    matrix = tf.fill([WORK, WORK], tf.reduce_mean(logits))
    return tf.minimum(tf.reduce_sum(tf.square(tf.stop_gradient(tf.matmul(matrix, matrix)))), 0.0)


def loss_of(logits, labels):
    """Mean cross entropy."""
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.add(tf.reduce_mean(entropy), work(logits), name="loss")


def finish(session):
    """The values of all variables, in the order of their names."""
    for variable in sorted(tf.global_variables(), key=lambda variable: variable.name):
        note(session.run(variable))


def softmax():
    """feed_dict, gradient descent, an evaluation now and then."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    logits = dense(x, 3, "softmax")
    loss = loss_of(logits, y)
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y), tf.float32))
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        held_out = rows(64)
        for number in range(CALLS):
            inputs, labels = rows()
            _, value = session.run([step, loss], feed_dict={x: inputs, y: labels})
            note(value)
            if number % 20 == 19:
                note(accuracy.eval({x: held_out[0], y: held_out[1]}))
        finish(session)


def convnet():
    """Convolutions and dropout, Adam."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    keep = tf.placeholder_with_default(0.5, [])
    with tf.variable_scope("convolution"):
        kernel = tf.get_variable("kernel", [3, 1, 4])
    hidden = tf.nn.relu(tf.nn.conv1d(tf.expand_dims(x, -1), kernel, 1, "SAME"))
    hidden = tf.nn.dropout(tf.reshape(hidden, [-1, 32]), rate=1 - keep)
    loss = loss_of(dense(hidden, 3, "top"), y)
    step = tf.train.AdamOptimizer(0.01).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS):
            inputs, labels = rows()
            note(session.run([step, loss], {x: inputs, y: labels})[1])
        note(session.run(loss, {x: inputs, y: labels, keep: 1.0}))
        finish(session)


def lstm():
    """A language model whose state goes out by fetches, and in again by feeds."""
    tokens = np.random.RandomState(3).randint(0, 12, 4000).reshape(4, 1000)
    x, y = tf.placeholder(tf.int32, [4, 5]), tf.placeholder(tf.int32, [4, 5])
    embedding = tf.get_variable("embedding", [12, 8])
    cell = tf.nn.rnn_cell.LSTMCell(16, name="lstm")
    state = cell.zero_state(4, tf.float32)
    outputs, last = tf.nn.dynamic_rnn(cell, tf.nn.embedding_lookup(embedding, x), initial_state=state)
    logits = tf.reshape(dense(tf.reshape(outputs, [-1, 16]), 12, "top"), [4, 5, 12])
    loss = loss_of(logits, y)
    optimizer = tf.train.AdagradOptimizer(0.3)
    variables = tf.trainable_variables()
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 1.0)
    step = optimizer.apply_gradients(zip(gradients, variables))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        held = session.run(state)
        for number in range(CALLS):
            at = number * 5 % 990
            feeds = {x: tokens[:, at:at + 5], y: tokens[:, at + 1:at + 6], state: held}
            value, held, _ = session.run([loss, last, step], feeds)
            note(value, *held)
        finish(session)


def gan():
    """Two optimizers in turn, noise by numpy and by the graph."""
    real = tf.placeholder(tf.float32, [None, 8])
    noise = tf.random_normal([16, 4], seed=3)
    made = dense(dense(noise, 16, "generator/hidden", tf.nn.relu), 8, "generator/top")
    judged = [dense(dense(data, 16, "judge/hidden", tf.nn.relu), 1, "judge/top") for data in (real, made)]
    ones, zeros = tf.ones_like(judged[0]), tf.zeros_like(judged[1])
    entropy = tf.nn.sigmoid_cross_entropy_with_logits
    judge_loss = tf.reduce_mean(entropy(logits=judged[0], labels=ones) + entropy(logits=judged[1], labels=zeros))
    loss = tf.reduce_mean(entropy(logits=judged[1], labels=tf.ones_like(judged[1])))
    of = lambda scope: [one for one in tf.trainable_variables() if one.name.startswith(scope)]  # noqa: E731
    judge_loss, loss = judge_loss + work(judged[0]), loss + work(judged[1])
    judge_step = tf.train.AdamOptimizer(0.01, name="A").minimize(judge_loss, var_list=of("judge"))
    step = tf.train.RMSPropOptimizer(0.01, name="B").minimize(loss, var_list=of("generator"))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(CALLS // 2):
            note(session.run([judge_step, judge_loss], {real: rows()[0]})[1])
            note(session.run([step, loss])[1])
            if number % 25 == 24:
                note(session.run(made))
        finish(session)


def iterator():
    """A `tf.data` iterator that is initialized for each epoch, whose end is an exception; another one validates."""
    inputs, labels = rows(160)
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).shuffle(160).batch(16)
    batches = tf.data.make_initializable_iterator(data)
    x, y = batches.get_next()
    loss = loss_of(dense(dense(x, 8, "hidden", tf.nn.tanh), 3, "top"), y)
    step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS // 11):
            session.run(batches.initializer)
            while True:
                try:
                    note(session.run([step, loss])[1])
                except tf.errors.OutOfRangeError:
                    break
            session.run(batches.initializer)
            try:
                while True:
                    note(session.run(loss))
            except tf.errors.OutOfRangeError:
                note(random.random())
        finish(session)


def assign():
    """An update by hand."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    step = [tf.assign(one, one - 0.5 * gradient) for one, gradient in zip(variables, gradients)]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS):
            inputs, labels = rows()
            note(session.run([loss, step], {x: inputs, y: labels})[0])
        finish(session)


def function():
    """`K.function` of Keras with an update."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    train = tf.keras.backend.function([x, y], [loss], updates=[step])
    session = tf.keras.backend.get_session()
    session.run(tf.global_variables_initializer())
    for _ in range(CALLS):
        note(*train(list(rows())))
    finish(session)


def named():
    """`make_callable`, and the methods of tensors and operations in an `InteractiveSession`."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    session = tf.InteractiveSession()
    tf.global_variables_initializer().run()
    train = session.make_callable([loss, step], [x, y])
    for number in range(CALLS):
        if number % 3:
            note(train(*rows())[0])
        else:
            inputs, labels = rows()
            step.run({x: inputs, y: labels})
            note(loss.eval({x: inputs, y: labels}))
    finish(session)


def noise(x):
    """A number from every random op, in loops and branches too."""
    drawn = tf.nn.dropout(x, rate=0.5) + tf.random_normal([8]) + tf.random_uniform([8]) + tf.truncated_normal([8])
    drawn += tf.cast(tf.random_uniform([8], 0, 9, tf.int32), tf.float32)
    drawn += tf.cast(tf.multinomial(tf.ones([1, 5]), 8), tf.float32)
    inside = lambda: tf.random_normal([8]) + tf.cast(tf.random_shuffle(list(range(8))), tf.float32)  # noqa: E731
    _, looped = tf.while_loop(lambda i, _: i < 3, lambda i, sum: (i + 1, sum + inside()), [0, tf.zeros([8])])
    return tf.random_shuffle(drawn + looped + tf.cond(tf.reduce_sum(x) > 32, inside, lambda: tf.zeros([8])))


def build_random():
    """A model that draws random numbers by every op, in the default graph."""
    x, y = tf.placeholder(tf.float32, [None, 8], name="x"), tf.placeholder(tf.int32, [None], name="y")
    loss = loss_of(dense(x + noise(x) / 9, 3, "softmax"), y)
    tf.train.AdamOptimizer(0.05).minimize(loss, name="step")


def train_random():
    """The model, wherever it came from."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS):
            inputs, labels = rows()
            note(session.run(["loss:0", "step"], {"x:0": inputs, "y:0": labels})[0])
        finish(session)


def randomized():
    """Random ops of every kind."""
    build_random()
    train_random()


def imported():
    """The same, from a MetaGraph."""
    with tf.Graph().as_default():
        build_random()
        definition = tf.train.export_meta_graph()
    tf.train.import_meta_graph(definition)
    train_random()


def exported():
    """Writes the graph of such a model: as a MetaGraph, whole and without something, and for TensorBoard."""
    with tf.name_scope("inside"):
        build_random()
    parts = [tf.train.export_meta_graph(**{name: value}) for name, value in (("clear_devices", True), ("export_scope", "inside"))]
    whole = [tf.train.export_meta_graph(), tf.get_default_graph().as_graph_def(add_shapes=True)]
    for definition in [whole[1], *(part.graph_def.node for part in [whole[0], *parts])]:
        note(np.frombuffer(str(definition).encode(), "uint8"))
    # Their maps have no order.
    assert not any("pedl" in str(part) for part in parts + whole)


def partial():
    """A run in parts, which trains."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    logits = dense(x, 3, "softmax")
    loss = loss_of(logits, y)
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    with tf.control_dependencies([step]):
        # Such a run fetches no operations.
        trained = tf.identity(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS):
            inputs, labels = rows()
            run = session.partial_run_setup([logits, trained], [x, y])
            note(session.partial_run(run, logits, {x: inputs}))
            note(session.partial_run(run, trained, {y: labels}))
        finish(session)


def threads():
    """Two threads that train one model."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        data = [rows() for _ in range(CALLS)]

        def train(share):
            for inputs, labels in share:
                session.run(step, {x: inputs, y: labels})

        towers = [threading.Thread(target=train, args=(data[first::2],)) for first in range(2)]
        for tower in towers:
            tower.start()
        for tower in towers:
            tower.join()
        note(np.isfinite(session.run(tf.trainable_variables()[0])))


def two():
    """Two sessions on two graphs, in turn."""
    sessions = []
    for seed in (1, 2):
        graph = tf.Graph()
        with graph.as_default():
            tf.set_random_seed(seed)
            x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
            loss = loss_of(dense(tf.nn.dropout(x, rate=0.2), 3, "softmax"), y)
            step = tf.train.AdamOptimizer(0.05).minimize(loss)
            session = tf.Session(graph=graph)
            session.run(tf.global_variables_initializer())
            sessions.append((session, x, y, loss, step))
    for number in range(CALLS):
        session, x, y, loss, step = sessions[number % 2]
        inputs, labels = rows()
        note(session.run([loss, step], {x: inputs, y: labels})[0])
    for session, *_ in sessions:
        with session.graph.as_default():
            finish(session)


def growing(config=None):
    """Two sessions on one graph, in turn. A second optimizer is added in the middle, when both have trained.

    Args:
        config: of the second session.
    """
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    sessions = [tf.Session(), tf.Session(config=config)]
    for session in sessions:
        session.run(tf.global_variables_initializer())
    for number in range(CALLS):
        if number == CALLS // 2:
            step = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            for session in sessions:
                session.run(tf.variables_initializer([v for v in tf.global_variables() if "Momentum" in v.name]))
        inputs, labels = rows()
        note(sessions[number % 2].run([loss, step], {x: inputs, y: labels})[0])
    for session in sessions:
        finish(session)


def several_at_once():
    """As `growing`, but that the second session runs several operations at once."""
    growing(tf.ConfigProto(inter_op_parallelism_threads=8))


def writes():
    """Runs that train and write a file."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    write = tf.io.write_file("loss.txt", tf.as_string(loss))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(CALLS):
            inputs, labels = rows()
            note(session.run([loss, step, write], {x: inputs, y: labels})[0])
        finish(session)


def saver():
    """A Saver of the script's own, which keeps three files, and goes back to an older one in the middle."""
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.int32, [None])
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    files = tf.train.Saver(max_to_keep=3)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        newest = tf.train.latest_checkpoint("saved")
        note(newest is None)
        if newest:
            files.restore(session, newest)
        for number in range(CALLS):
            inputs, labels = rows()
            note(session.run([loss, step], {x: inputs, y: labels})[0])
            if number % 20 == 10:
                print(files.save(session, "saved/model", global_step=number))
            if number == CALLS // 2:
                files.restore(session, tf.train.latest_checkpoint("saved"))
        print(sorted(os.listdir("saved")))
        files.restore(session, tf.train.latest_checkpoint("saved"))
        finish(session)


def monitored():
    """`MonitoredTrainingSession` with hooks, a global step and checkpoints of its own."""
    step_number = tf.train.get_or_create_global_step()
    data = tf.data.Dataset.from_tensor_slices(rows(160)).shuffle(160).repeat().batch(16)
    x, y = tf.data.make_one_shot_iterator(data).get_next()
    loss = loss_of(dense(x, 3, "softmax"), y)
    tf.summary.scalar("loss", loss)
    step = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=step_number)
    hooks = [tf.train.StopAtStepHook(last_step=CALLS), tf.train.NanTensorHook(loss)]
    folder = {"checkpoint_dir": "monitored", "save_checkpoint_steps": 30, "save_summaries_steps": 20}
    with tf.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=50, **folder) as session:
        while not session.should_stop():
            _, value, number = session.run([step, loss, step_number])
            note(value, number)
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint("monitored"))
    for name in sorted(reader.get_variable_to_shape_map()):
        note(reader.get_tensor(name))


def estimator():
    """An Estimator with a folder, trained in three parts and evaluated after each."""

    def model(features, labels, mode):
        logits = dense(tf.layers.dropout(features, 0.3, training=mode == tf.estimator.ModeKeys.TRAIN), 3, "softmax")
        loss = loss_of(logits, labels)
        measured = {"accuracy": tf.metrics.accuracy(labels, tf.argmax(logits, 1))}
        step = tf.train.AdamOptimizer(0.05).minimize(loss, global_step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=measured)

    arrays = rows(160)
    data = lambda: tf.data.Dataset.from_tensor_slices(arrays).shuffle(160).repeat().batch(16)  # noqa: E731
    held_out = lambda: tf.data.Dataset.from_tensor_slices(arrays).batch(16)  # noqa: E731
    config = tf.estimator.RunConfig("estimator", tf_random_seed=3, save_checkpoints_steps=30, save_summary_steps=20)
    made = tf.estimator.Estimator(model, config=config)

    class Pause(tf.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            note()

    for _ in range(3):
        made.train(data, [Pause()], steps=CALLS // 3)
        found = made.evaluate(held_out)
        note(found["loss"], found["accuracy"], found["global_step"])
    for name in sorted(made.get_variable_names()):
        note(made.get_variable_value(name))


def queue():
    """Batches that queue runners shuffle."""
    inputs, labels = rows(160)
    x, y = tf.train.slice_input_producer([inputs, labels], shuffle=True, seed=4)
    x, y = tf.train.shuffle_batch([x, y], 16, 100, 40, seed=5)
    loss = loss_of(dense(x, 3, "softmax"), y)
    step = tf.train.AdamOptimizer(0.05).minimize(loss)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        for _ in range(CALLS):
            note(session.run([step, loss])[1])
        coordinator.request_stop()
        coordinator.join(threads)
        finish(session)


if "seeded" in sys.argv:
    tf.set_random_seed(7)
    np.random.seed(7)
    random.seed(7)
globals()[KIND]()
note(np.random.rand(), random.random())
print("HASH", DIGEST.hexdigest())
