"""A trial continues identically elsewhere: directory, HOME, user, workers and processors may change."""

import os
import shutil
import subprocess
import sys

import pytest
import support

SCRIPT = support.SCRIPTS / "moves.py"
OPTIONS = ["--exact", "--batches-per-step", "20", "--checkpoint-period", "1"]

# A user id that this machine does not have.
USER = 12345

# Becomes that user, with the right to read what only root may: a Python below root's home, and the directories of tests.
AS_USER = [
    "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search", "--pdeathsig=KILL",
]  # fmt: skip


def give_away(directory, user):
    """Makes another user the owner of a directory and everything in it."""
    for path in [directory] + sorted(directory.rglob("*")):
        os.chown(str(path), user, user, follow_symlinks=False)


def skip_unless_users_change():
    if os.geteuid() != 0:
        pytest.skip("only root may give a trial to another user, and become that")
    if not shutil.which("setpriv"):
        pytest.skip("there is no `setpriv`")
    probe = [*AS_USER, sys.executable, "-c", "pass"]
    ended = subprocess.run(probe, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if ended.returncode != 0:
        pytest.skip(f"root may not become another user who reads everything: {ended.stdout.decode().strip()}")


@pytest.mark.stack("keras3-jax", "keras2")
def test_p8_it_goes_on_identically(script_run, tmp_path, monkeypatch):
    undisturbed = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "3"})
    expected = undisturbed.run().check()

    run = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "3"})
    run.trial.directory.mkdir(parents=True)
    shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
    run.start_and_kill()
    os.rename(str(run.directory), str(tmp_path / "elsewhere"))

    # The process that is started inherits the processors.
    (tmp_path / "home").mkdir()
    environment = {"WORKERS": "1", "HOME": str(tmp_path / "home")}
    moved = support.ScriptRun(tmp_path / "elsewhere", SCRIPT, options=OPTIONS, environment=environment)
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    try:
        ended = moved.run().check()
    finally:
        os.sched_setaffinity(0, processors)
        moved.close()
    assert ended.hashes == expected.hashes
    assert moved.trial.count("resumed") == 1
    assert (moved.directory / "models").is_dir()
    assert not run.directory.exists()


@pytest.mark.stack("keras3-jax", "keras2")
def test_another_user_goes_on_identically_and_so_does_root_after_that(script_run, tmp_path):
    skip_unless_users_change()
    undisturbed = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "1"})
    expected = undisturbed.run().check()

    run = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "1"})
    run.trial.directory.mkdir(parents=True)
    shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
    run.start_and_kill()

    home = tmp_path / "home"
    home.mkdir()
    for directory in (home, run.directory):
        give_away(directory, USER)
    settings = {"options": OPTIONS, "environment": {"WORKERS": "1", "HOME": str(home)}, "wrapper": AS_USER}
    of_user = support.ScriptRun(run.directory, SCRIPT, **settings)
    of_user.start_and_kill()
    assert (run.trial.directory / "latest").lstat().st_uid == USER

    ended = run.run().check()
    of_user.close()
    assert ended.hashes == expected.hashes
    assert run.trial.count("resumed") == 2


@pytest.mark.stack("keras2")
def test_a_move_to_no_workers_where_keras_then_trains_otherwise_is_no_drift(script_run):
    run = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "3"})
    run.start_and_kill()

    without = support.ScriptRun(run.directory, SCRIPT, options=OPTIONS, environment={"WORKERS": "0"})
    ended = without.run().check(76)
    without.close()
    _, _, message = ended.stderr.partition("pedl: error: ")
    assert "argument `workers`" in message, ended
    assert "above 0" in message, ended


@pytest.mark.stack("keras3-jax")
def test_copies_go_on_identically(script_run, tmp_path):
    undisturbed = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "1"})
    expected = undisturbed.run().check()
    run = script_run(SCRIPT, options=OPTIONS, environment={"WORKERS": "1"})
    run.trial.directory.mkdir(parents=True)
    shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
    run.start_and_kill()
    for way in ("copied without links", "snapshot"):
        elsewhere = tmp_path / way
        shutil.copytree(str(run.directory), str(elsewhere), symlinks=False)
        trial = elsewhere / run.trial.directory.relative_to(run.directory)
        if way == "snapshot":
            shutil.rmtree(str(trial))
            command = [support.executable(), "--pedl", "checkpoint", "snapshot", run.trial.directory, trial]
            subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)
        assert (trial / "latest").is_symlink() == (way == "snapshot")
        copy = support.ScriptRun(elsewhere, SCRIPT, options=OPTIONS, environment={"WORKERS": "1"})
        ended = copy.run().check()
        copy.close()
        assert ended.hashes == expected.hashes
        assert copy.trial.count("resumed") == 1
        assert copy.trial.count("checkpoint_failed") == 0
        assert (trial / "latest").is_symlink()
        assert len(list((trial / "checkpoints").glob("batch-*"))) <= 2


@pytest.mark.stack("keras3-jax")
def test_started_in_another_directory_it_is_refused_where_its_files_would_be_others(script_run, tmp_path):
    script = support.SCRIPTS / "run_folder.py"
    run = script_run(script, options=OPTIONS)
    run.start_and_kill()
    options = [*OPTIONS, "--trial-dir", run.trial.directory]
    elsewhere = support.ScriptRun(tmp_path / "elsewhere", script, options=options)
    ended = elsewhere.run().check(65)
    assert f"`{run.trial.directory}` belongs to another working directory" in ended.stderr
    assert f"begun in: {run.directory}\n" in ended.stderr
    assert f"run in: {elsewhere.directory}\n" in ended.stderr
    assert f"`cd {run.directory}`" in ended.stderr
    assert list(elsewhere.directory.iterdir()) == []
