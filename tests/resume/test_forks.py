"""Children that are forked before a framework is imported can train, and say so; nothing waits for ever."""

import re

import pytest
import support

SCRIPT = support.SCRIPTS / "forks.py"
LINE = re.compile(
    r"pedl: the child process (\d+) trains: it is not intercepted, trains as under python, and no checkpoints of it are taken\n"
)

pytestmark = pytest.mark.stack("keras3-jax")


def test_children_train_as_under_python_and_each_says_so_once(script_run):
    run = script_run(SCRIPT)
    expected, found = run.python().check(), run.run().check()
    assert found.stdout == expected.stdout
    assert len(set(LINE.findall(found.stderr))) == 4, found
    assert found.stderr.count("pedl:") == 4
    assert "Traceback" not in found.stderr
    assert not run.trial.directory.exists()


def test_exact_refuses_the_child_and_ends_the_run(script_run):
    ended = script_run(SCRIPT, "pool", options=["--exact"]).run().check(77)
    assert re.search(r"`--exact` was given, and the child process \d+, which was forked, trains", ended.stderr)
    assert "\n  at forks.py:" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
