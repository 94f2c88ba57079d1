"""Files that a training saves: after any kill they equal those of an undisturbed training, and none is lost."""

import random
import shutil

import pytest
import support

SCRIPT = support.SCRIPTS / "saves.py"
OPTIONS = ["--exact", "--checkpoint-seconds", "0.2"]


@pytest.fixture
def saving(script_run):
    """A function that makes a run of the script, with the file in which it counts its epochs."""

    def make():
        run = script_run(SCRIPT, options=OPTIONS)
        h5py = pytest.importorskip("h5py")
        with h5py.File(str(run.directory / "counts.h5"), "w") as file:
            file["epochs"] = 0
        return run

    return make


@pytest.mark.stack("keras")
def test_all_saved_files_are_those_of_an_undisturbed_run(saving):
    undisturbed = saving().run().check()
    assert len(undisturbed.hashes) > 20
    run = saving()
    for epochs in (4, 9, 14):
        running = run.start()
        count = run.trial.count("checkpoint")
        # It has saved again after the checkpoint from which it resumes.
        running.wait_until(lambda: _lines(run) >= epochs and run.trial.count("checkpoint") > count)  # noqa: B023
        running.ends_within(0.1)
        running.kill_everything()
    ended = run.run().check()
    assert run.trial.count("resumed") == 3
    assert ended.hashes == undisturbed.hashes


@pytest.mark.stack("tfkeras")
def test_a_saved_folder_that_the_script_removed_is_a_folder_in_the_replay_too(script_run):
    script = support.SCRIPTS / "saves_folder.py"
    undisturbed = script_run(script, options=OPTIONS)
    expected = undisturbed.run().check()
    run = script_run(script, options=OPTIONS)
    run.trial.directory.mkdir(parents=True)
    shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
    run.start_and_kill(lambda: run.trial.checkpoint >= 40)
    assert run.run().check().hashes == expected.hashes
    assert run.trial.count("resumed") == 1


@pytest.mark.stack("keras")
def test_a_failure_that_the_script_handles_ends_the_checkpoints_not_the_run(script_run):
    script = support.SCRIPTS / "handles_failure.py"
    cause = "of a call that was to be recorded"
    ended = script_run(script, options=["--checkpoint-batches", "4,12"]).run().check()
    assert ended.stdout.splitlines()[-1] == "trained"
    assert ended.stderr.count(cause) == 1
    ended = script_run(script, options=["--exact", "--checkpoint-batches", "4,12"]).run().check(77)
    assert cause in ended.stderr
    assert "trained" not in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.stack("keras3-jax")
def test_no_file_is_lost_by_kills_in_the_replay(saving):
    run = saving()
    run.start_and_kill(lambda: _lines(run) >= 11)
    before = _files(run)
    dice = random.Random(1)
    ended = None
    for _ in range(6):
        # Some kills come in the imports, some in the replay; on a quick machine the run may finish.
        ended = run.start().ends_within(dice.uniform(0.2, 2))
        if ended is not None:
            break
        run._starts[-1].kill_everything()
        there = _files(run) | {path for path in before if path in _in_ledger(run)}
        assert before - {path for path in before if "best" not in path} <= there
    ended = (ended or run.run()).check()
    assert ended.hashes == saving().run().check().hashes


def _lines(run):
    return support.lines_of(run.directory / "progress.txt")


def _files(run):
    return {str(path.relative_to(run.directory)) for path in (run.directory / "models").rglob("*") if path.stat().st_size}


def _in_ledger(run):
    """Files that are in the trial directory, by the paths at which the next start finds them again."""
    found = set()
    lines = (run.trial.directory / "files.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        path = line.split('": "')[1].partition('"')[0] if '"created"' in line else ""
        if path and (run.trial.directory / "aside" / str(number)).exists():
            found.add(path.replace("../../", ""))
    return found
