"""An experiment configuration decides the length of a fit and its validations (rules P2, P5).

The script trains one epoch of 20 batches by itself. What it learns under a plan is compared with what it learns if
the same plan is written into it by hand: enough epochs, and a callback that stops the model.
"""
import json

import pytest
import support

pytestmark = pytest.mark.stack("each-keras")

SCRIPT = support.SCRIPTS / "planned_fit.py"

CONFIGURATION = """
batches_per_step: 5
searcher: {{name: single, metric: {metric}, max_steps: {steps}}}
reproducibility: {{experiment_seed: 7}}
{more}
"""

VALIDATED = "min_validation_period: 2\ncheckpoint_policy: all"


def configured(directory, steps, more="", metric="loss"):
    """Writes a configuration of this many steps of 5 batches; returns the options that name it."""
    file = directory / "plan-{}.yaml".format(len(list(directory.glob("plan-*.yaml"))))
    file.write_text(CONFIGURATION.format(steps=steps, more=more, metric=metric))
    return ["--exact", "--config", file]


@pytest.fixture
def planned(script_run, tmp_path):
    """A function that makes a run of the script under such a configuration."""

    def make(steps, *arguments, **settings):
        return script_run(SCRIPT, *arguments, options=configured(tmp_path, steps, **settings))

    return make


@pytest.fixture(scope="module", params=["arrays", "sequence"])
def undisturbed(request, tmp_path_factory):
    """Nine steps, undisturbed: the source of the batches, the run, and its `Ended`."""
    directory = tmp_path_factory.mktemp("undisturbed")
    options = configured(directory, 9, VALIDATED)
    run = support.ScriptRun(directory / "run", SCRIPT, ["--source", request.param], options=options)
    yield request.param, run, run.run().check()
    run.close()


def answer(ended):
    """The JSON that the script has printed."""
    lines = [line for line in ended.check().stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])


def batches_of(run, kind):
    return [event["batch"] for event in run.trial.events if event["event"] == kind]


@pytest.mark.stack("keras", "generation")
def test_p5_max_steps_extends_the_fit_and_cuts_its_last_epoch(undisturbed):
    _, run, ended = undisturbed
    seen = answer(ended)
    assert (seen["batches"], seen["epoch_ends"], seen["epochs"]) == (45, [20, 40, 45], [0, 1, 2])
    # The epoch that was cut short has its row in the History, and its validation, like the others.
    assert set(seen["rows"].values()) == {3}
    assert "val_loss" in seen["logs"]
    assert run.trial.identity["configuration"]["steps"] == "9"


@pytest.mark.stack("keras", "generation")
def test_validations_come_by_period_and_at_each_end_of_an_epoch(undisturbed):
    _, run, _ = undisturbed
    assert batches_of(run, "validation") == [10, 20, 30, 40, 45]
    assert batches_of(run, "checkpoint") == [10, 20, 30, 40, 45]


@pytest.mark.stack("keras3-jax")
def test_the_end_of_an_epoch_does_not_shift_validations_of_the_period(planned):
    # Epochs end after 20 and 40 batches.
    run = planned(9, more="min_validation_period: 3")
    run.run().check()
    assert batches_of(run, "validation") == [15, 20, 30, 40, 45]


@pytest.mark.stack("keras", "generation")
def test_a_validation_inside_of_an_epoch_leaves_no_trace(undisturbed, planned):
    source, _, ended = undisturbed
    run = planned(9, "--source", source)
    without = run.run().check()
    # Neither the weights nor the History have one, and no callback has seen it.
    assert without.hashes == ended.hashes
    assert answer(without) == answer(ended)
    validations = [event for event in run.trial.events if event["event"] == "validation"]
    assert [event["batch"] for event in validations] == [20, 40, 45]
    # The policy is `best` by default.
    best, expected = float("inf"), []
    for event in validations:
        if event["metrics"]["val_loss"] < best:
            best = event["metrics"]["val_loss"]
            expected.append(event["batch"])
    assert batches_of(run, "checkpoint") == expected


def test_the_configuration_says_which_checkpoints_stay(planned):
    # The largest loss counts as the best, so that the best are not the latest.
    kept = "checkpoint_storage: {save_trial_best: 2, save_trial_latest: 3}"
    run = planned(9, more=VALIDATED + "\n" + kept, metric="loss, smaller_is_better: false")
    run.run().check()
    validated = [event for event in run.trial.events if event["event"] == "validation"]
    metrics = {event["batch"]: event["metrics"]["val_loss"] for event in validated}
    best = sorted(metrics, key=lambda batch: (-metrics[batch], batch))[:2]
    latest = sorted(metrics)[-3:]
    left = sorted(int(path.name[len("batch-"):]) for path in (run.trial.directory / "checkpoints").glob("batch-*"))
    assert left == sorted(set(best + latest)), metrics
    assert len(left) > 3, metrics


@pytest.mark.parametrize("batch", [10, 40])
def test_p2_killed_and_resumed_in_the_extended_part(undisturbed, planned, batch):
    source, _, ended = undisturbed
    run = planned(9, "--source", source, "--slow", more=VALIDATED)
    run.start_and_kill(lambda: run.trial.checkpoint >= batch)
    assert "resuming after batch" in run.run().check().stderr
    assert run.hashes == ended.hashes


def test_the_script_s_own_stop_is_not_overruled_by_a_validation(planned):
    ended = planned(9, "--stop-at", "10", more="min_validation_period: 1").run()
    assert answer(ended)["batches"] == 10


def test_a_fit_inside_of_a_callback_keeps_its_length_and_leaves_the_outer_one_its_own(planned):
    seen = answer(planned(9, "--fit-inside").run())
    # The ends of the first two epochs have used up one of the 45 batches each.
    assert (seen["epoch_ends"], seen["epochs"]) == ([20, 40, 43], [0, 1, 2])


def test_a_loop_of_the_script_s_own_is_told_that_it_decides_itself(script_run):
    run = script_run(support.SCRIPTS / "two_models_by_hand.py", options=["--steps", "1", "--batches-per-step", "2"])
    assert "a loop of the script's own" in run.run().check().stderr


@pytest.mark.stack("keras2")
def test_arrays_validate_a_fit_on_a_generator(planned):
    run = planned(9, "--source", "generator", "--validate-arrays", more="min_validation_period: 2")
    run.options.remove("--exact")
    assert answer(run.run())["epoch_ends"] == [20, 40, 45]
    assert batches_of(run, "validation") == [10, 20, 30, 40, 45]
    accuracies = [event["metrics"]["val_accuracy"] for event in run.trial.events if event["event"] == "validation"]
    assert max(accuracies) <= 1


@pytest.mark.stack("keras3")
def test_a_cut_is_what_a_callback_does_that_stops_the_model(undisturbed, script_run):
    source, _, ended = undisturbed
    by_hand = script_run(SCRIPT, "--source", source, "--epochs", "3", "--stop-at", "45", options=["--exact"])
    assert by_hand.run().check().hashes == ended.hashes


@pytest.mark.stack("keras", "generation")
def test_p5_max_steps_cuts_the_first_epoch(planned):
    seen = answer(planned(2, "--source", "split", "--epochs", "7").run())
    assert (seen["batches"], seen["epoch_ends"], set(seen["rows"].values())) == (10, [10], {1})
    assert "val_loss" in seen["logs"]


def test_what_is_learned_is_what_a_loop_of_that_length_learns(planned, script_run):
    by_hand = script_run(SCRIPT, "--source", "split", "--epochs", "2", options=["--exact"]).run().check()
    assert planned(8, "--source", "split").run().check().hashes == by_hand.hashes


def test_steps_alone_decide_without_a_configuration_and_a_generator_is_extended_too(script_run):
    run = script_run(SCRIPT, "--source", "generator", options=["--steps", "9", "--batches-per-step", "5"])
    assert answer(run.run())["epoch_ends"] == [20, 40, 45]


def test_a_second_fit_has_nothing_left_to_train(planned):
    ended = planned(4, "--fits", "2").run()
    assert answer(ended)["batches"] == 20
    assert "all steps were trained before this call; it trains none" in ended.stderr


def test_a_metric_that_no_validation_has_ends_the_run_with_those_that_there_are(planned):
    ended = planned(9, metric="error").run().check(65)
    assert "`searcher.metric` is `error`" in ended.stderr
    assert "`val_loss`" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_script_that_fails_is_started_again_as_often_as_the_configuration_says(undisturbed, planned):
    source, _, undisturbed_end = undisturbed
    run = planned(9, "--source", source, "--fail-at", "33", more=VALIDATED)
    ended = run.run().check()
    assert "the script ended with exit code 1; it is started again (1 of 5 restarts)" in ended.stderr
    assert run.trial.count("restart") == 1
    assert run.hashes == undisturbed_end.hashes


def test_without_restarts_it_is_not_and_another_configuration_is_refused_on_its_trial(planned, tmp_path):
    run = planned(9, "--fail-at", "30", more="max_restarts: 0")
    assert "RuntimeError: as asked for" in run.run().check(1).stderr
    assert run.trial.count("restart") == 0
    run.options = [str(option) for option in configured(tmp_path, 8, "max_restarts: 0\ndata: {a: 1}")]
    assert "it differs in: `data`, `steps`" in run.run().check(65).stderr
