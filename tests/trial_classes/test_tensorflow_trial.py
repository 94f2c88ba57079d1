"""`TensorFlowTrial`: rules T1 to T23, and that killed trials equal the undisturbed ones."""

import json
import shutil
import signal
import subprocess
import sys

import pytest
import support
from support import events_of, metrics_of

# Only tests that cost a kill or two run on both. The rest is the same code of pedl.
BOTH = pytest.mark.stack("keras2-tensorflow1", "keras2.15-tensorflow2.15")
pytestmark = pytest.mark.stack("keras2-tensorflow1")

DEFINITION = support.ROOT / "tests" / "definitions" / "graph_with_dropout"

STEPS, BATCHES, PERIOD = 6, 10, 2
# The mean size of the batches of the 28 rows for validation: three full batches and a shorter one.
MEAN_ROWS = 7.0


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run of the definition with the same seeds as all others."""

    def make(*options, kind=None, entrypoint="model_def:Trial", units=16, pause="0", lines=(), batches=BATCHES, steps=STEPS):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        written = [
            support.seeded_configuration(batches, steps),
            f"min_validation_period: {PERIOD}",
            f'entrypoint: "{entrypoint}"',
            f"hyperparameters: {{batch_size: {{type: categorical, vals: [8]}}, units: {units}}}",
            f"data: {{kind: {kind}, path: /my_data_path/}}" if kind else "data: {path: /my_data_path/}",
            *lines,
        ]
        file.write_text("\n".join(written) + "\n")
        return script_run(DEFINITION, options=["--config", file, *options], environment={"PAUSE": pause})

    return make


def refused(run, *texts):
    """Checks that nothing was trained, and that one error message says so."""
    ended = run.run().check(65)
    assert "Traceback" not in ended.stderr
    assert events_of(run, "step") == []
    for text in texts:
        assert text in ended.stderr


# -- the classes and functions of a definition -------------------------------------------------------------------------


def test_t1_t2_the_loaders_and_the_class_are_a_definition(run_of):
    ended = run_of(entrypoint="model_def:Defaults").run().check()
    assert ended.stdout.splitlines() == ["LOADERS /my_data_path/ {'batch_size': 8, 'units': 16}"]


def test_t3_data_sets_that_are_not_batched_are_refused(run_of):
    refused(run_of(kind="unbatched"), "to train on that is not batched", "PEDL requires batched data sets", "'labels': ()")
    # Its rows have a dimension, but not one for batches.
    refused(run_of(kind="rows"), "to train on that is not batched", "(8,)")
    refused(run_of(kind="arrays"), "of class `dict`", "PEDL requires batched data sets, each a `tf.data.Dataset`")
    refused(run_of(kind="one"), "`make_data_loaders` returned an object of class", "expected: a pair")


@pytest.mark.parametrize(("kind", "text"), [("structure", "(Tensor, Tensor)"), ("types", "int64"), ("shapes", "(None, 5)")])
def test_t4_data_sets_of_other_records_are_refused(run_of, kind, text):
    what = {"structure": "classes"}.get(kind, kind)
    refused(run_of(kind=kind), f"elements of different {what}", "to validate on: ")


def test_t5_t9_the_record_is_nested_as_elements_are_and_is_training_is_a_boolean(run_of):
    assert "BUILT ['inputs', 'labels'] bool ()" in run_of(steps=1).run().check().stdout


def test_t6_t7_the_loaders_are_given_the_data_section_and_this_trials_sample(run_of):
    assert "LOADERS /my_data_path/ {'batch_size': 8, 'units': 5}" in run_of(units=5, steps=1).run().check().stdout


def test_t8_what_is_no_optimizer_is_refused(run_of):
    refused(run_of(kind="no optimizer"), "`optimizer` returned an object of class `str`", "expected: a `tf.train.Optimizer`")


def test_t8_t9_t11_missing_methods_are_told_before_training(run_of):
    refused(run_of(entrypoint="model_def:Incomplete"), "the trial class `Incomplete` lacks `build_graph`, `optimizer`")


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("no loss", ["`build_graph` returned no `loss`", "it returned `accuracy`, `counter`,"]),
        ("losses", ["`build_graph` returned a `loss` of shape (", "expected: one floating point number"]),
        ("list", ["`build_graph` returned an object of class `list`"]),
    ],
)
def test_t10_what_has_no_loss_is_refused(run_of, kind, texts):
    refused(run_of(kind=kind), *texts)


def test_t11_a_validation_metric_that_the_graph_lacks_is_refused(run_of):
    expected = "`validation_metrics` returned `val_loss`, which `build_graph` does not return"
    refused(run_of(kind="unknown validation metric"), expected, "it returns `accuracy`, `counter`, ")


def test_t12_training_metrics_are_names_in_the_graph_without_the_loss(run_of):
    refused(run_of(kind="unknown training metric"), "`training_metrics` returned `accuracies`, which `build_graph`")
    refused(run_of(kind="loss in metrics"), "`training_metrics` returned `loss`", "the loss is always reported")
    refused(run_of(kind="text"), "`training_metrics` returned an object of class `str`")
    run = run_of(entrypoint="model_def:Defaults", steps=1)
    run.run().check()
    assert [list(metrics) for metrics in metrics_of(run, "step")] == [["loss"]]


def test_t13_t16_the_session_is_configured_with_soft_placement_unless_the_trial_says_otherwise(run_of):
    run_of(steps=1).run().check()
    ended = run_of(kind="hard placement", steps=1).run()
    assert ended.code == 1
    assert "Cannot assign a device for operation placed" in ended.stderr


def test_t14_the_graph_is_built_once(run_of):
    assert run_of().run().check().stdout.count("BUILT") == 1


def test_t15_the_graph_of_each_trial_is_its_own(run_of):
    for units in (3, 5):
        assert f"(8, {units})" in run_of(units=units).run().check().stdout


# -- steps and validations ---------------------------------------------------------------------------------------------


def test_t17_each_batch_is_one_run_of_the_loss_and_the_training_metrics(run_of):
    run = run_of()
    ended = run.run().check()
    names = ["accuracy", "loss", "losses", "rows of batch", "training"]
    steps = [line for line in ended.stdout.splitlines() if line.startswith("STEP")]
    assert steps == [f"STEP {step} {BATCHES} {names}" for step in range(1, STEPS + 1)]
    assert {metrics["training"] for metrics in metrics_of(run, "step")} == {1.0}
    # One run is also one batch of the optimizer.
    assert [(event["batch"], event["metrics"]["counter"]) for event in events_of(run, "validation")] == [
        (batch, batch) for batch in (20, 40, 60)
    ]
    assert "loop of the script's own" not in ended.stderr


def test_t18_metrics_of_a_step_are_the_means_of_its_batches_whatever_their_sizes(run_of):
    # An epoch of 100 rows has 13 batches, the last one of 4 rows.
    run = run_of(kind="leftovers", batches=13, steps=2)
    run.run().check()
    assert [metrics["rows of batch"] for metrics in metrics_of(run, "step")] == pytest.approx([100 / 13] * 2)
    assert all(sorted(metrics) == ["accuracy", "loss", "rows of batch", "training"] for metrics in metrics_of(run, "step"))


def test_t19_a_step_has_100_batches_by_default(run_of, tmp_path):
    run = run_of(entrypoint="model_def:Defaults", steps=1)
    file = tmp_path / "0.yaml"
    file.write_text(file.read_text().replace(f"batches_per_step: {BATCHES}\n", ""))
    run.run().check()
    assert [event["batches"] for event in events_of(run, "step")] == [[1, 100]]


def test_t20_t21_t23_a_validation_is_the_mean_over_runs_of_the_same_graph_that_do_not_train(run_of):
    run = run_of()
    run.run().check()
    validations = metrics_of(run, "validation")
    assert [metrics["training"] for metrics in validations] == [0.0] * 3
    assert [metrics["rows of batch"] for metrics in validations] == [MEAN_ROWS] * 3
    assert events_of(run, "evaluation") == []


def test_t22_each_validation_goes_through_the_validation_set_once_from_its_beginning(run_of):
    run = run_of()
    run.run().check()
    assert len({metrics["first label"] for metrics in metrics_of(run, "validation")}) == 1
    assert [metrics["rows of batch"] for metrics in metrics_of(run, "validation")] == [MEAN_ROWS] * 3
    refused_at = run_of(kind="nothing").run().check(65)
    assert "the data set to validate on that `make_data_loaders` returned has no batches" in refused_at.stderr


def test_metrics_that_have_no_mean_are_left_out_and_told_once(run_of):
    ended = run_of().run().check()
    assert ended.stderr.count("the validation metric `losses` is left out: its shape differs between batches") == 1
    assert "VALIDATED 6 ['accuracy', 'counter', 'first label', 'kernel', 'loss', 'rows of batch', 'training']" in ended.stdout


def test_validations_come_by_their_period_and_at_the_end(run_of):
    run = run_of(steps=3)
    run.run().check()
    assert [event["batch"] for event in events_of(run, "validation")] == [20, 30]
    assert run.trial.checkpoint == 30


# -- kills -------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_trial_that_is_killed_is_the_undisturbed_one(run_of):
    expected = run_of("--exact", kind="slow").run().check()
    assert "exact resume: yes" in expected.stderr
    assert len(expected.hashes) == STEPS // PERIOD
    run = run_of("--exact", "--checkpoint-batches", "13,37", kind="slow", pause="0.1")
    run.kill_at_checkpoints(13, 37)
    run.run().check()
    assert run.hashes == expected.hashes
    assert run.trial.count("resumed") == 2


def test_a_trial_that_is_killed_while_it_validates_is_the_undisturbed_one(run_of):
    expected = run_of("--exact", kind="slow").run().check()
    run = run_of("--exact", "--checkpoint-batches", "13,37", kind="slow", pause="0.1")
    for step in (2, 4):
        running = run.start()
        running.wait_until(lambda: f"VALIDATES {step}" in running.stdout)  # noqa: B023
        assert running.ends_within(0.25) is None
        ended = running.kill_everything()
        assert f"VALIDATED {step}" not in ended.stdout
    run.run().check()
    assert run.hashes == expected.hashes
    assert [event["metrics"]["rows of batch"] for event in events_of(run, "validation")][-3:] == [MEAN_ROWS] * 3


def test_a_trial_that_is_told_to_end_while_it_validates_goes_on_from_there(run_of):
    expected = run_of("--exact", kind="slow").run().check()
    run = run_of("--exact", kind="slow", pause="0.1")
    running = run.start()
    running.wait_until(lambda: "VALIDATES 4" in running.stdout)
    running.send(signal.SIGTERM)
    ended = running.wait().check(-signal.SIGTERM)
    assert "VALIDATED 4" not in ended.stdout
    assert run.trial.checkpoint == 40
    run.run().check()
    assert run.hashes == expected.hashes


def test_a_trial_that_is_verified_is_exact(run_of, tmp_path):
    run = run_of()
    # Each run uses a copy of the directory.
    shutil.copytree(str(DEFINITION), str(run.directory / DEFINITION.name))
    command = [support.executable(), "--pedl", "verify", "--json", "--seed", "1", "--exact", "--kills", "3"]
    command += ["--python", sys.executable, "--work-dir", str(tmp_path), *run.options, DEFINITION.name]
    environment = support.clean_environment({"PAUSE": "0.1"})
    ended = subprocess.run(command, cwd=str(run.directory), env=environment, capture_output=True, check=False)
    result = json.loads(ended.stdout.decode() or "{}")
    assert (ended.returncode, result.get("verdict")) == (0, "identical"), ended.stderr.decode()
    assert result["faults"]["resumed"] >= 1
