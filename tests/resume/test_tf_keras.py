"""Keras 2 on TensorFlow 2, in all of its generations: killed trainings equal the undisturbed ones, bit for bit."""

import pytest
import support
from campaigns import everything

pytestmark = pytest.mark.stack("tfkeras")

SCRIPT = support.SCRIPTS / "everything_tensorflow2.py"
OWN_STEP = support.SCRIPTS / "own_step.py"

# A fit of a killed training takes at least two seconds, with a checkpoint about every twentieth of that.
EPOCHS = 3
PACE = 0.015

CELLS = [
    ("arrays", None),
    ("sequence-3", 3),
    ("processes-2", None),
    ("own-generators", 3),
    ("generator-1", None),
    ("images", 3),
    ("tf-data", None),
    ("train-on-batch", None),
]


@pytest.mark.parametrize(("source", "seed"), CELLS)
def test_a_killed_training_ends_as_the_undisturbed_one(tmp_path, source, seed):
    options = ["--exact", "--checkpoint-seconds", "0.1"]
    cell = everything.Cell(tmp_path, SCRIPT, source, seed, epochs=EPOCHS, options=options)
    try:
        undisturbed = cell.undisturbed()
        killed = cell.killed("killed", undisturbed, pace=PACE)
        killed.start()
        for fit in (1, 2):
            assert killed.wait_until(lambda fit=fit: killed.checkpoint_in_fit(fit) and killed.is_training)
            killed.kill("everything")
            killed.start()
        assert killed.finish() == []
    finally:
        cell.close()


@pytest.mark.stack("keras2.15-tensorflow2.15")
def test_a_model_with_tables_among_its_weights_goes_on_exactly(script_run):
    options = ["--exact", "--batches-per-step", "4", "--checkpoint-period", "1"]
    run = script_run(support.SCRIPTS / "vocabulary.py", options=options, environment={"DIES": "1"})
    ended = run.run().check()
    assert "it is started again from the newest checkpoint" in ended.stderr
    assert ended.stdout == run.python().check().stdout


def test_a_step_of_its_own_and_looks_at_variables_between_steps_are_the_same(script_run):
    options = ["--exact", "--checkpoint-seconds", "0.01"]
    undisturbed = script_run(OWN_STEP, "0", options=options)
    hashes = [line for line in undisturbed.run().check().stdout.splitlines() if line.startswith("HASH")]
    assert len(hashes) == 5
    # With another command line the trial's random numbers still come from its seed.
    killed = script_run(OWN_STEP, "63", options=options)
    text = (undisturbed.trial.directory / "trial.json").read_text()
    killed.trial.directory.mkdir(parents=True)
    (killed.trial.directory / "trial.json").write_text(text.replace('"0"', '"63"'))
    ended = killed.run().check()
    assert (killed.directory / "died").exists()
    assert killed.trial.count("resumed") == 1
    assert [line for line in ended.stdout.splitlines() if line.startswith("HASH")] == hashes


GRAPH_MODE = """
import numpy
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
print("compiled")
model.fit(numpy.zeros((4, 2), "float32"), numpy.zeros((4, 1), "float32"), verbose=0)
"""


def test_graph_mode_does_not_train_unprotected(script_run, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(GRAPH_MODE)
    ended = script_run(path).run().check(69)
    assert ended.stdout == "compiled\n"
    assert "Keras in the graph mode of TensorFlow 1 is not something pedl-run can intercept on TensorFlow 2" in ended.stderr
