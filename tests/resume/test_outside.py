"""Kills do not change what a training does to the world outside, or learns of it: commands, files of others."""

import pytest
import support

pytestmark = pytest.mark.stack("keras3-jax")

OPTIONS = ["--exact", "--batches-per-step", "16", "--checkpoint-period", "1"]


def tree(run):
    """The files that a run has left, by path, except the trial."""
    found = [path for path in run.directory.rglob("*") if path.is_file() and ".pedl" not in path.parts]
    return {str(path.relative_to(run.directory)): path.read_bytes() for path in found}


def test_commands_and_files_of_others_are_as_undisturbed_after_two_kills(script_run):
    make = lambda: script_run(support.SCRIPTS / "outside.py", 30, options=OPTIONS)  # noqa: E731
    undisturbed, killed = make(), make()
    expected = undisturbed.run().check()
    assert "exact resume: yes" in expected.stderr
    for epoch in ("4", "9"):
        killed.environment["HOLD"] = epoch
        running = killed.start()
        running.wait_until(lambda running=running, epoch=epoch: f"holds {epoch}" in running.stderr)
        running.kill_everything()
    del killed.environment["HOLD"]
    ended = killed.run().check()
    assert "calls are replayed" in ended.stderr
    assert tree(killed) == tree(undisturbed)
    assert len(tree(killed)) > 50


def test_a_script_that_only_runs_another_that_trains_says_so_and_exact_refuses_it(script_run, tmp_path):
    driver, trains = tmp_path / "driver.py", tmp_path / "trains.py"
    driver.write_text(f"import subprocess, sys\nprint(subprocess.call([sys.executable, {str(trains)!r}]))\n")
    trains.write_text("import keras\n")
    ended = script_run(driver).run().check()
    assert ended.stdout == "0\n"
    assert f"`python {trains}`, which it ran, imports a framework, and is not intercepted" in ended.stderr
    refused = script_run(driver, options=["--exact"]).run().check(77)
    assert f"run `pedl-run python {trains}` in its place" in refused.stderr
    trains.write_text("")
    assert script_run(driver, options=["--exact"]).run().check().stderr == ""
