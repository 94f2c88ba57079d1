"""The wall clock: a replay repeats what the script read from it; otherwise it is the current time."""

import json
import os
import time

import pytest
import support

OPTIONS = ["--exact", "--checkpoint-seconds", "0.2"]

# The time after which a training ends itself.
SECONDS = 3


@pytest.mark.stack("plain")
def test_every_way_to_ask_is_answered_as_by_plain_python(script_run):
    run = script_run(support.SCRIPTS / "clock.py")
    undisturbed = run.python().check()
    assert run.run().check().stdout == undisturbed.stdout
    assert not run.trial.directory.exists()


@pytest.mark.stack("each-keras")
def test_a_folder_named_by_the_clock_is_the_same_after_each_kill(script_run):
    undisturbed = script_run(support.SCRIPTS / "run_folder.py", options=OPTIONS)
    hashes = undisturbed.run().check().hashes
    run = script_run(support.SCRIPTS / "run_folder.py", options=OPTIONS)
    lines = []
    for epochs in (5, 9, 14):
        run.start_and_kill(lambda: _lines(run) >= epochs)  # noqa: B023
        text = _logs(run)[0].read_text().splitlines()
        # Lines from before the checkpoint of the previous kill keep their times.
        assert text[: len(lines)] == lines
        # An epoch ends behind its last batch, so a checkpoint of that batch does not have the epoch's line.
        lines = text[: (run.trial.checkpoint - 1) // 40]
    ended = run.run().check()
    told = json.loads(ended.stdout.splitlines()[0])
    assert run.trial.count("resumed") == 3
    assert ended.hashes == hashes
    assert [path.parent.name for path in _logs(run)] == [os.path.basename(told["folder"])]
    log = _logs(run)[0].read_text().splitlines()
    assert log[: len(lines)] == lines
    assert [line.split()[1] for line in log] == [str(epoch) for epoch in range(40)]


@pytest.mark.stack("each-keras")
def test_a_kill_before_the_first_checkpoint_begins_anew_in_a_new_folder(script_run):
    run = script_run(support.SCRIPTS / "run_folder.py", options=["--exact", "--checkpoint-seconds", "1000"])
    running = run.start()
    running.wait_until(lambda: _lines(run) >= 2)
    (first,) = (path.parent for path in _logs(run))
    running.kill_everything()
    told = json.loads(run.run().check().stdout.splitlines()[0])
    assert os.path.basename(told["folder"]) != first.name
    log = run.directory / told["folder"] / "log.txt"
    assert len(log.read_text().splitlines()) == told["epochs"] == 40
    # It comes back at the end, like every file that was not made again.
    assert (first / "log.txt").exists()


@pytest.mark.stack("each-keras")
def test_a_limit_of_time_is_kept_by_a_training_that_is_resumed(script_run):
    run = script_run(
        support.SCRIPTS / "run_folder.py", options=OPTIONS, environment={"SECONDS": str(SECONDS), "EPOCHS": "10000"}
    )
    run.start_and_kill(lambda: _lines(run) >= 5)
    resumed_at = run.trial.checkpoint // 40
    time.sleep(SECONDS)
    told = json.loads(run.run().check().stdout.splitlines()[0])
    assert run.trial.count("resumed") == 1
    # The limit had passed in the first start, but not before its checkpoint: no epoch is lost again.
    assert resumed_at <= told["epochs"] <= resumed_at + 1
    assert told["times"] == sorted(told["times"])
    assert len(_logs(run)) == 1
    assert _lines(run) == told["epochs"]


def _logs(run):
    return sorted((run.directory / "runs").glob("*/log.txt"))


def _lines(run):
    return sum(len(path.read_text().splitlines()) for path in _logs(run))
