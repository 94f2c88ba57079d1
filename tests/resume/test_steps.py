"""The contents of the journal and of the lines on stderr about the steps of a training."""

import re

import pytest
import support


@pytest.mark.stack("each-keras")
def test_models_trained_in_turns_have_averages_of_their_own_and_no_epoch(script_run):
    run = script_run(support.SCRIPTS / "two_models_by_hand.py", options=["--batches-per-step", "4"])
    ended = run.run().check()
    steps = [event for event in run.trial.events if event["event"] == "step"]
    assert [step["epoch"] for step in steps] == [0, None, None]
    assert [sorted(step["metrics"]) for step in steps] == [["loss"]] + 2 * [["model 0 loss", "model 1 loss"]]
    for step in steps[1:]:
        assert step["metrics"]["model 0 loss"] < 10 < 90 < step["metrics"]["model 1 loss"]
    lines = re.findall(r"^pedl: step .*", ended.stderr, re.MULTILINE)
    assert "(batches 1-4, epoch 0): loss" in lines[0]
    assert "(batches 5-8): model 0 loss" in lines[1], lines


@pytest.mark.stack("each-keras")
def test_a_finished_trial_makes_room_when_the_next_one_trains(script_run):
    run = script_run(support.SCRIPTS / "two_models_by_hand.py")
    run.run().check()
    before = run.trial.identity
    run.options.append("--hp=lr=0.1")
    ended = run.run().check()
    kept = run.trial.directory.with_name(run.trial.directory.name + ".1")
    assert f"the trial before is kept in `{kept}`" in ended.stderr
    assert support.Trial(kept).identity == before != run.trial.identity
    assert run.trial.count("trial_begun") == run.trial.count("trial_ended") == 1


@pytest.mark.stack("each-keras")
def test_fresh_gives_up_a_trial_that_has_lost_its_identity(script_run):
    run = script_run(support.SCRIPTS / "two_models_by_hand.py", options=["--checkpoint-period=1", "--batches-per-step=2"])
    run.run().check()
    (run.trial.directory / "trial.json").unlink()
    run.trial.directory.joinpath("events.jsonl").unlink()
    assert "begin a new trial with `--fresh`" in run.run().check(65).stderr
    run.options.append("--fresh")
    run.run().check()
    assert run.trial.directory.with_name(run.trial.directory.name + ".1").is_dir()


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize(("way", "batches"), [("train_on_batch", 4000), ("fit", 10000), ("fits", 1000)])
def test_the_log_has_at_most_64_bytes_a_batch(script_run, way, batches):
    """`cargo dev endurance` shows this for a million batches, and that memory does not grow."""
    run = script_run(support.SCRIPTS / "endurance.py", way, batches)
    run.run().check()
    trial = run.trial.directory
    assert (trial / "calls.log").stat().st_size < 64 * batches
    others = [path for path in trial.rglob("*") if path.is_file() and path.name != "calls.log"]
    assert sum(path.stat().st_size for path in others) < 4 * batches + 10000
