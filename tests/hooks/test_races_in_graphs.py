"""Which ops of a run use a variable without an order, in small graphs of TensorFlow 1."""

import importlib

import pytest

from py_hooks.tensorflow.graphs import graphs, op_kinds, ordered_copies

# The warnings of TensorFlow 1 do not matter here.
pytestmark = [pytest.mark.stack("keras2-tensorflow1", "keras2.15-tensorflow2.15"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def tf():
    """TensorFlow 1, with a new graph."""
    module = importlib.import_module("tensorflow.compat.v1")
    module.disable_v2_behavior()
    with module.Graph().as_default():
        yield module


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def variable(tf, request):
    """A function that makes a variable of either kind."""

    def make(name, shape=(), value=1.0, **settings):
        initial = tf.constant_initializer(value)
        return tf.get_variable(name, shape, initializer=initial, use_resource=request.param, **settings)

    return make


def effects_of(tf, fetches, feeds=()):
    """The effects of running these tensors and operations."""
    return graphs.of(tf.get_default_graph()).effects(list(fetches), list(feeds))


def waiting_in(found):
    """The pairs that are not decided yet."""
    return [pair for pairs in found.waiting.values() for pair in pairs] if found else []


def pairs_of(tf, fetches, feeds=()):
    """Names of variables, and of the first and the second op."""
    found = waiting_in(effects_of(tf, fetches, feeds).races)
    return sorted((pair.variable, pair.first.name, pair.second.name) for pair in found)


def variables_of(tf, fetches, feeds=()):
    """The variables whose uses have no order."""
    return sorted({name for name, _, _ in pairs_of(tf, fetches, feeds)})


def test_a_read_beside_a_write_has_no_order(tf, variable):
    count = variable("count")
    value = tf.multiply(count, 2.0, name="value")
    add = tf.assign_add(count, 1.0, name="add").op
    assert variables_of(tf, [value, add]) == ["count"]
    (first, second), = [pair[1:] for pair in pairs_of(tf, [value, add])]
    assert first in ("value", "value/ReadVariableOp")
    assert second in ("add", "AssignAddVariableOp")


def test_each_of_them_alone_is_fine(tf, variable):
    count = variable("count")
    assert pairs_of(tf, [count * 2.0]) == []
    assert pairs_of(tf, [tf.assign_add(count, 1.0).op]) == []


def test_a_control_edge_is_an_order_either_way(tf, variable):
    count = variable("count")
    value = count * 2.0
    with tf.control_dependencies([value]):
        add = tf.assign_add(count, 1.0).op
    assert pairs_of(tf, [value, add]) == []
    with tf.control_dependencies([add]):
        later = count.read_value() * 3.0
    assert pairs_of(tf, [value, add, later]) == []


def test_two_writes_have_no_order(tf, variable):
    count = variable("count")
    first, second = (tf.assign_add(count, number).op for number in (1.0, 2.0))
    assert [pair[1:] for pair in pairs_of(tf, [second, first])] == [(first.name, second.name)]


def test_a_reference_that_is_handed_on_is_the_variable(tf):
    count = tf.get_variable("count", (4,), use_resource=False)
    value = tf.square(tf.reshape(tf.identity(count), (2, 2)), name="value")
    add = tf.assign_add(count, tf.ones(4), name="add").op
    assert pairs_of(tf, [value, add]) == [("count", "value", "add")]
    # A write does not change its shape.
    assert pairs_of(tf, [tf.shape(tf.identity(count)), add]) == []


@pytest.mark.parametrize("name", ["GradientDescent", "Momentum", "Adam", "Adagrad", "RMSProp", "Ftrl"])
def test_an_optimizer_is_fine(tf, variable, name):
    weights = variable("weights", (3, 2))
    loss = tf.reduce_sum(tf.square(tf.matmul(tf.ones((4, 3)), weights) - 2.0))
    step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(0.1, step, 10, 0.9)
    train = getattr(tf.train, name + "Optimizer")(rate, *[0.9][: name == "Momentum"]).minimize(loss, global_step=step)
    assert pairs_of(tf, [loss, train]) == []


def test_averages_beside_an_optimizer_have_no_order_and_behind_it_they_do(tf, variable):
    weights = variable("weights", (3, 2))
    train = tf.train.AdamOptimizer().minimize(tf.reduce_sum(tf.square(weights)))
    averages = tf.train.ExponentialMovingAverage(0.9)
    assert variables_of(tf, [train, averages.apply([weights])]) == ["weights"]
    with tf.control_dependencies([train]):
        behind = averages.apply([weights])
    assert pairs_of(tf, [behind]) == []


def test_two_branches_of_one_predicate_never_meet(tf, variable):
    statistics = variable("statistics")
    training = tf.placeholder(tf.bool, [])
    value = tf.cond(training, lambda: tf.constant(2.0), lambda: statistics * 3.0)
    update = tf.cond(tf.logical_not(training), lambda: 1.0, lambda: tf.assign_add(statistics, 1.0) + 0.0)
    assert pairs_of(tf, [value, update], [training]) == []


def test_what_a_run_is_given_rules_a_branch_out(tf, variable):
    statistics = variable("statistics")
    training = tf.placeholder_with_default(False, [])
    value = tf.cond(training, lambda: tf.constant(2.0), lambda: statistics * 3.0)
    update = tf.assign_add(statistics, 1.0).op
    conditions, = effects_of(tf, [value, update], [training]).races.waiting
    assert conditions == frozenset([(training.name, False)])
    # Without a value the default counts.
    assert set(effects_of(tf, [value, update]).races.waiting) == {frozenset()}
    always = tf.cond(tf.constant(True), lambda: tf.constant(2.0), lambda: statistics * 3.0)
    assert pairs_of(tf, [always, update]) == []


def test_a_branch_that_is_not_waited_for_is_no_order(tf, variable):
    """The end of a `cond` waits for the branch that is taken; ops of the other one may come later."""
    count = variable("count")
    is_read = tf.placeholder(tf.bool, [])
    outside = tf.square(count) * 1.0
    ended = tf.cond(is_read, lambda: outside + 1.0, lambda: tf.constant(0.0))
    with tf.control_dependencies([ended]):
        add = tf.assign_add(count, 1.0).op
    assert variables_of(tf, [outside, add], [is_read]) == ["count"]


def test_reads_in_a_loop_are_before_what_waits_for_its_end(tf, variable):
    weights, other = variable("weights"), variable("other")
    read = weights * 1.0
    _, total = tf.while_loop(lambda number, _: number < 3, lambda number, total: (number + 1, total + read), (0, 0.0))
    with tf.control_dependencies([total]):
        behind = tf.assign_add(weights, 1.0).op
    assert pairs_of(tf, [behind]) == []
    beside = tf.assign_add(other, 1.0).op
    _, total = tf.while_loop(lambda number, _: number < 3, lambda number, total: (number + 1, total + other * 1.0), (0, 0.0))
    assert variables_of(tf, [total, beside]) == ["other"]


@pytest.mark.parametrize(("passes", "expected"), [(1, []), (10, ["count"])])
def test_a_write_in_each_pass_of_a_loop_has_no_order_if_several_run_at_once(tf, variable, passes, expected):
    count = variable("count")
    _, total = tf.while_loop(
        lambda number, _: number < 3,
        lambda number, _: (number + 1, tf.assign_add(count, 1.0) + 0.0),
        (0, 0.0),
        parallel_iterations=passes,
    )
    assert variables_of(tf, [total]) == expected


# The variables of TensorFlow 2 no longer have `initialized_value`.
@pytest.mark.stack("keras2-tensorflow1")
def test_an_initial_value_that_is_taken_from_another_variable_is_fine(tf, variable):
    first = variable("first")
    tf.Variable(first.initialized_value() * 2.0, name="second")
    assert pairs_of(tf, [tf.global_variables_initializer()]) == []


def test_an_order_is_imposed_on_ops_of_ours(tf, variable):
    """The script's graph is unchanged, and so are other fetches."""
    count = variable("count")
    value = count * 2.0
    add = tf.assign_add(count, 1.0)
    both = add + 0.0
    graph = tf.get_default_graph()
    names, counted = [op.name for op in graph.get_operations()], getattr(graph, "_next_id_counter", None)
    effects = effects_of(tf, [value, both])
    graph.finalize()
    effects.substitutes = effects.races.impose(waiting_in(effects.races))
    assert getattr(graph, "_next_id_counter", None) == counted
    assert [op.name for op in graph.get_operations() if not op_kinds.is_own(op.name)] == names
    first, second = effects.fetched([value, both])
    assert first is value
    assert op_kinds.is_own(second.name)
    assert effects_of(tf, [first, second]).races is None
    with tf.Session() as session:
        session.run(count.initializer)
        found = [session.run([first, second]) for _ in range(100)]
        assert [[float(one) for one in each] for each in found] == [[2.0 * n, n + 1.0] for n in range(1, 101)]
        assert session.run(both) == 102.0


def test_an_order_is_imposed_on_what_waits_for_the_write_too(tf, variable):
    count = variable("count")
    value = count * 2.0
    with tf.control_dependencies([tf.assign_add(count, 1.0)]):
        start = tf.constant(0.0)
    races = effects_of(tf, [value, start]).races
    made = races.impose(waiting_in(races))[id(start)]
    assert [op_kinds.is_own(op.name) for op in made.op.control_inputs] == [True]


def test_what_has_a_loop_behind_it_gets_no_order(tf, variable):
    count = variable("count")
    value = count * 2.0
    with tf.control_dependencies([tf.assign_add(count, 1.0)]):
        end = tf.while_loop(lambda number: number < 3, lambda number: number + 1, (tf.constant(0),))
    found = effects_of(tf, [value, end]).races
    with pytest.raises(ordered_copies.CannotOrder, match="a loop runs after them"):
        found.impose(waiting_in(found))


def test_what_has_an_op_with_a_state_behind_it_gets_no_order(tf, variable):
    count = variable("count")
    value = count * 2.0
    with tf.control_dependencies([tf.assign_add(count, 1.0)]):
        drawn = tf.random_gamma([], 1.0, seed=3)
    found = effects_of(tf, [value, drawn]).races
    with pytest.raises(ordered_copies.CannotOrder, match="has a state"):
        found.impose(waiting_in(found))


def test_a_read_in_a_branch_is_waited_for_where_the_branch_ends(tf, variable):
    """If the write waited for the read itself, it would not be made if the other branch is taken."""
    count = variable("count")
    is_read = tf.placeholder(tf.bool, [])
    value = tf.cond(tf.logical_and(is_read, True), lambda: tf.square(count) * 2.0, lambda: tf.constant(0.0))
    add = tf.assign_add(count, 1.0).op
    effects = effects_of(tf, [value, add], [is_read])
    effects.substitutes = effects.races.impose(waiting_in(effects.races))
    with tf.Session() as session:
        session.run(count.initializer)
        found = [float(session.run(effects.fetched([value, add]), {is_read: number % 2 == 0})[0]) for number in range(6)]
    assert found == [2.0, 0.0, 18.0, 0.0, 50.0, 0.0]


def test_pairs_that_would_wait_for_each_other_get_one_order(tf, variable):
    """Each of two variables is read after the write of the other one."""
    one, other = variable("one"), variable("other")
    add_one, add_other = tf.assign_add(one, 1.0).op, tf.assign_add(other, 1.0).op
    with tf.control_dependencies([add_one]):
        read_other = other.read_value() * 2.0
    with tf.control_dependencies([add_other]):
        read_one = one.read_value() * 3.0
    effects = effects_of(tf, [read_one, read_other])
    effects.substitutes = effects.races.impose(waiting_in(effects.races))
    assert effects_of(tf, effects.fetched([read_one, read_other])).races is None
    with tf.Session() as session:
        found = set()
        for _ in range(50):
            session.run([one.initializer, other.initializer])
            found.add(tuple(map(float, session.run(effects.fetched([read_one, read_other])))))
    assert len(found) == 1
