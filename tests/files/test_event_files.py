"""Event files that C++ writes: after any kill, a reader finds each step once, and none is missing."""

import pytest
import support

SCRIPT = support.SCRIPTS / "writes_events.py"


@pytest.mark.stack("tensorflow", "keras2.2.4-tensorflow1.13")
def test_every_event_is_there_once_after_kills_at_and_between_checkpoints(script_run):
    options = ["--exact", "--checkpoint-seconds", "0.3"]
    undisturbed = script_run(SCRIPT, options=options).run().check()
    assert undisturbed.stdout.count("twice: []") == len(undisturbed.hashes) - 1 >= 7, undisturbed
    run = script_run(SCRIPT, options=options)
    for epochs in (3, 9, 16):
        run.start_and_kill(lambda: _lines(run) >= epochs)  # noqa: B023
    ended = run.run().check()
    assert run.trial.count("resumed") == 3
    assert ended.hashes == undisturbed.hashes
    assert len(list(run.directory.glob("logs-*"))) == 1


@pytest.mark.stack("tensorflow")
def test_events_of_a_start_without_a_checkpoint_are_written_anew(script_run):
    options = ["--exact", "--checkpoint-seconds", "1000"]
    run = script_run(SCRIPT, options=options)
    running = run.start()
    running.wait_until(lambda: _lines(run) >= 3)
    running.kill_everything()
    (first,) = run.directory.glob("logs-*")
    ended = run.run().check()
    assert run.trial.count("resumed") == 0
    assert ended.stdout.count("twice: []") == len(ended.hashes) - 1
    # The folder of the first start no longer contains any of them.
    assert not first.exists() or not list(first.rglob("*tfevents*"))


@pytest.mark.stack("tensorflow")
def test_what_is_killed_in_its_replay_keeps_all_events(script_run):
    options = ["--exact", "--checkpoint-seconds", "0.3"]
    undisturbed = script_run(SCRIPT, options=options).run().check()
    run = script_run(SCRIPT, options=options)
    run.start_and_kill(lambda: _lines(run) >= 14)
    before = run.trial.checkpoint
    for name in ("events.txt", "progress.txt"):
        running = run.start()
        # The start moves it away, and the script makes it again.
        made = run.directory / name
        running.wait_until(lambda: not made.exists())  # noqa: B023
        running.wait_until(made.exists)
        running.kill_everything()
    assert run.trial.checkpoint >= before
    assert run.run().check().hashes == undisturbed.hashes


def _lines(run):
    return support.lines_of(run.directory / "progress.txt")
