"""Scripts that look for files they saved, and continue from there: in a replay there are none yet, as the first time."""

import contextlib
import sqlite3

import pytest
import support

SCRIPT = support.SCRIPTS / "resumes_itself.py"
OPTIONS = ["--exact", "--checkpoint-seconds", "0.2"]


@pytest.mark.stack("each-keras")
@pytest.mark.parametrize("way", ["exists", "newest", "whole", "pickle"])
def test_it_ends_as_if_nobody_had_disturbed_it(script_run, way):
    _compare(script_run, way)


@pytest.mark.stack("keras3")
def test_backup_and_restore_ends_as_if_nobody_had_disturbed_it(script_run):
    _compare(script_run, "backup")


@pytest.mark.stack("keras3-jax")
def test_what_was_saved_before_the_trial_is_read_again_although_the_trial_has_overwritten_it(script_run):
    def begun():
        run = script_run(SCRIPT, "exists", options=OPTIONS)
        run.python().check()
        (run.directory / "progress.txt").unlink()
        return run

    undisturbed, run = begun().run().check(), begun()
    _kill(run, 8)
    ended = run.run().check()
    assert run.trial.count("resumed") == 1
    assert "found weights" in ended.stdout
    assert ended.hashes == undisturbed.hashes


def _compare(script_run, way):
    undisturbed = script_run(SCRIPT, way, options=OPTIONS).run().check()
    run = script_run(SCRIPT, way, options=OPTIONS)
    for epochs in (4, 10):
        _kill(run, epochs)
    ended = run.run().check()
    assert run.trial.count("resumed") == 2
    assert ended.stdout == undisturbed.stdout
    assert "began at 0 found None epochs 16" in ended.stdout


def _kill(run, epochs):
    path = run.directory / "progress.txt"
    run.start_and_kill(lambda: path.exists() and len(path.read_text().splitlines()) >= epochs)


@pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
def test_what_is_written_without_open_is_there_once(script_run):
    run = script_run(support.SCRIPTS / "writes_past_open.py", options=OPTIONS)
    for steps in (20, 60):
        _kill(run, steps)
    ended = run.run().check()
    assert run.trial.count("resumed") == 2
    # They have the same names as the first time, so none is left behind.
    assert not list((run.directory / "out").glob("*.temporary"))
    assert ended.stdout.splitlines()[:-1] == ["early True", "late True", "True ['child.txt']"]


@pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
def test_a_database_that_was_there_before_the_trial_is_named_as_a_cause(script_run):
    run = script_run(support.SCRIPTS / "writes_past_open.py", options=OPTIONS)
    with contextlib.closing(sqlite3.connect(str(run.directory / "begun.db"))) as database:
        database.execute("create table rows (number int)")
    ended = run.run().check(77)
    assert "the script opens the database `" in ended.stderr
    assert "begun.db`, into which a replay writes again" in ended.stderr
