"""After an unexpected error inside pedl, a script that runs under python still runs, and one line reports the error."""

import re

import pytest
import support

SCRIPT = support.SCRIPTS / "mistakes.py"
LINE = re.compile(r"pedl: a bug of pedl-run \(AttributeError: '.*' object has no attribute 'name' at py_hooks/[\w/]+\.py:\d+\)")

pytestmark = pytest.mark.stack("keras3-jax")


@pytest.mark.parametrize("place", ["import", "record"])
def test_the_script_runs_on_as_under_python_and_one_line_says_so(script_run, place):
    run = script_run(SCRIPT, environment={"MISTAKE": place})
    ended = run.run().check()
    (run.directory / "log.txt").unlink()
    assert ended.stdout == run.python().check().stdout
    assert len(LINE.findall(ended.stderr)) == 1, ended
    assert "Traceback" not in ended.stderr
    assert run.trial.checkpoint is None


def test_exact_ends_with_70(script_run):
    ended = script_run(SCRIPT, options=["--exact"], environment={"MISTAKE": "describe"}).run().check(70)
    assert "pedl: error: a bug of pedl-run: AttributeError" in ended.stderr
    assert "`--exact` was given" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_scripts_own_exception_passes_and_a_mistake_in_its_replay_ends_with_70(script_run):
    run = script_run(SCRIPT, options=["--checkpoint-batches", "20"], environment={"MISTAKE": "user"})
    ended = run.run().check(1)
    assert ended.stderr.endswith("KeyError: \"the script's own\"\n")
    assert "a bug of pedl-run" not in ended.stderr
    assert run.trial.checkpoint == 20
    run.environment["MISTAKE"] = "replay"
    ended = run.run().check(70)
    assert "pedl: error: a bug of pedl-run: AttributeError" in ended.stderr
    assert "calls were answered from the log" in ended.stderr
    assert "Traceback" not in ended.stderr
