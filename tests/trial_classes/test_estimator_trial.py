"""`EstimatorTrial`: rules E1 to E8, and that killed trials equal the undisturbed ones."""

import json
import subprocess
import sys

import pytest
import support
from support import events_of

# Only tests that cost a kill or two run on both. The rest is the same code of pedl.
BOTH = pytest.mark.stack("keras2-tensorflow1", "keras2.15-tensorflow2.15")
pytestmark = pytest.mark.stack("keras2-tensorflow1")

DEFINITION = support.ROOT / "tests" / "definitions" / "estimator"

STEPS, BATCHES, PERIOD = 6, 10, 2


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run of the definition with the same seeds as all others."""

    def make(*options, kind="own", pause="0", steps=STEPS):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        lines = f"min_validation_period: {PERIOD}\nhyperparameters: {{batch_size: 8}}\ndata: {{kind: '{kind}'}}\n"
        file.write_text(support.seeded_configuration(BATCHES, steps) + lines)
        return script_run(DEFINITION, options=["--config", file, *options], environment={"PAUSE": pause})

    return make


def refused(run, *texts):
    """Checks that nothing was trained, and that one error message says so."""
    ended = run.run().check(65)
    assert "Traceback" not in ended.stderr
    assert events_of(run, "step") == []
    for text in texts:
        assert text in ended.stderr


@pytest.mark.parametrize("kind", ["own", "premade"])
def test_t1_e1_e2_an_estimator_is_trained_without_data_loaders(run_of, kind):
    run = run_of(kind=kind, steps=2)
    run.run().check()
    assert [list(event["metrics"]) for event in events_of(run, "step")] == [["loss"]] * 2
    (validation,) = events_of(run, "validation")
    assert {"accuracy", "loss"} <= set(validation["metrics"])
    assert "global_step" not in validation["metrics"]
    assert events_of(run, "evaluation") == []


def test_e2_what_is_no_estimator_is_refused(run_of):
    expected = "`build_estimator` of `Trial` returned an object of class `str`"
    refused(run_of(kind="text"), expected, "expected: a `tf.estimator.Estimator`")


def test_e3_an_input_fn_that_returns_tensors_is_refused(run_of):
    expected = "returned a tuple of 2\n  expected: a `tf.data.Dataset`; a tuple `(features, labels)` of tensors is not supported"
    refused(run_of(kind="tensors"), "the `input_fn` of `build_train_spec` " + expected)
    refused(run_of(kind="tensors to validate"), "the `input_fn` of `build_validation_spec` " + expected)


def test_e4_the_plan_decides_how_long_it_trains_whatever_max_steps_is(run_of):
    # The value in the definition is 3, and an epoch of the data has 13 batches.
    run = run_of()
    ended = run.run().check()
    assert [event["batches"] for event in events_of(run, "step")] == [
        [first, first + BATCHES - 1] for first in range(1, STEPS * BATCHES, BATCHES)
    ]
    assert "loop of the script's own" not in ended.stderr


@pytest.mark.parametrize(("kind", "batches"), [("own", 5), ("two", 2)])
def test_e5_a_validation_is_as_many_batches_as_its_spec_says_or_all(run_of, kind, batches):
    run = run_of(kind=kind, pause="0.05", steps=1)
    run.run().check()
    (validation,) = events_of(run, "validation")
    assert validation["metrics"]["batches"] == batches


def manifest_of(run, batch):
    return json.loads((run.trial.directory / "checkpoints" / f"batch-{batch:010d}" / "manifest.json").read_text())


def kept_in(run, batch):
    """The files of the trial in a checkpoint, by their paths below its folder for them."""
    work = str(run.trial.directory / "work") + "/"
    manifest = manifest_of(run, batch)
    return [kept["path"][len(work):] for kept in manifest["kept"] if kept["path"].startswith(work)]


# Loads a SavedModel with TensorFlow alone, and computes with it.
SERVE = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
with tf.Session(graph=tf.Graph()) as session:
    model = tf.saved_model.load(session, ["serve"], sys.argv[1])
    signature = model.signature_def["serving_default"]
    (given,), (made,) = signature.inputs.values(), signature.outputs.values()
    print(list(session.run(made.name, {given.name: np.ones([2, 8])}).shape))
"""


@pytest.mark.parametrize(("kind", "names"), [("served", ["parsing", "raw"]), ("own", [])])
def test_e6_e7_e8_each_serving_function_is_a_saved_model_in_each_checkpoint_and_without_there_is_none(run_of, kind, names):
    run = run_of("--exact", "--checkpoint-batches", "13,20", kind=kind, steps=2)
    run.run().check()
    parts = ["saved_model.pb", "variables/variables.data-00000-of-00001", "variables/variables.index"]
    expected = [f"exports/{name}/{part}" for name in names for part in parts]
    for batch in (13, 20):
        kept = kept_in(run, batch)
        assert [path for path in kept if path.startswith("exports/")] == expected
    # The files of the Saver of the Estimator, which the validation has read.
    assert "estimator/model.ckpt-20.index" in kept_in(run, 20)
    if names:
        folder = run.trial.directory / "work" / "exports" / "raw"
        served = subprocess.run([sys.executable, "-c", SERVE, str(folder)], capture_output=True, check=True)
        assert served.stdout.decode().strip() == "[2, 3]"


def test_e6_what_is_no_dict_of_functions_is_refused(run_of):
    refused(run_of(kind="no functions"), "`build_serving_input_receiver_fns` returned an object of class `str`")


def test_validations_come_by_their_period_and_at_the_end(run_of):
    run = run_of(steps=3)
    run.run().check()
    assert [event["batch"] for event in events_of(run, "validation")] == [20, 30]
    assert run.trial.checkpoint == 30


@BOTH
@pytest.mark.parametrize("kind", ["own", "served"])
def test_a_trial_that_is_killed_is_the_undisturbed_one(run_of, kind):
    expected = run_of("--exact").run().check()
    assert "exact resume: yes" in expected.stderr
    assert len(expected.hashes) == STEPS // PERIOD
    run = run_of("--exact", "--checkpoint-batches", "13,37", kind=kind, pause="0.02")
    run.kill_at_checkpoints(13, 37)
    run.run().check()
    assert run.hashes == expected.hashes
    assert run.trial.count("resumed") == 2


def test_a_trial_that_is_killed_while_it_validates_is_the_undisturbed_one(run_of):
    expected = run_of("--exact").run().check()
    run = run_of("--exact", "--checkpoint-batches", "13,37", pause="0.1")
    for step in (2, 4):
        running = run.start()
        running.wait_until(lambda: f"VALIDATES {step}" in running.stdout)  # noqa: B023
        # Its graph is built, and read from a file, before its batches, which take half a second.
        assert running.ends_within(0.4) is None
        ended = running.kill_everything()
        assert f"VALIDATED {step}" not in ended.stdout
    run.run().check()
    assert run.hashes == expected.hashes


# -- ends before the last step -----------------------------------------------------------------------------------------


WEIGHTS = """
import json, sys
import tensorflow.compat.v1 as tf
with tf.Session(graph=tf.Graph()) as session:
    tf.saved_model.load(session, ["serve"], sys.argv[1])
    print(json.dumps(session.run("dense/kernel:0").tolist()))
"""


def exported_weights(run):
    """Weights of the SavedModel that was written for the last checkpoint."""
    folder = run.trial.directory / "work" / "exports" / "raw"
    command = [sys.executable, "-W", "ignore", "-c", WEIGHTS, str(folder)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode())


def variables_of(run, batch):
    """Hashes of the variables in a checkpoint."""
    tensors = manifest_of(run, batch)["tensors"]
    return {each["name"]: each["blake3"] for each in tensors if each["name"].startswith("tensorflow/")}


@pytest.mark.parametrize(("kind", "undisturbed"), [("ends", "own"), ("served, ends", "served")])
def test_a_trial_that_a_hook_ends_has_its_weights_in_the_last_checkpoint(run_of, kind, undisturbed):
    whole = run_of("--exact", "--checkpoint-batches", "25", kind=undisturbed, pause="0.1")
    running = whole.start()
    running.wait_until(lambda: whole.trial.checkpoint == 25)
    running.kill_everything()
    run = run_of("--exact", "--checkpoint-batches", "13", kind=kind)
    # The second time nothing is left to train, and the checkpoint remains.
    for _ in range(2):
        ended = run.run().check()
        assert "a hook of the trial class has ended its training, 35 batches before the last step" in ended.stderr
        assert run.trial.checkpoint == 25
        assert any(name.endswith("/dense/kernel") for name in variables_of(run, 25))
        assert variables_of(run, 25) == variables_of(whole, 25)
        if "served" in kind:
            assert "exports/raw/saved_model.pb" in kept_in(run, 25)
            assert exported_weights(run) == exported_weights(whole)
