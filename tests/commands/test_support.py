"""The module that the other tests use: `support` watches, waits, kills and compares as it says."""

import os
import signal
import sys

import pytest
import support
from campaigns import kill_at_byte

COUNT = """
import hashlib, sys, time
print("begun", flush=True)
for number in range(int(sys.argv[1])):
    print(number, flush=True)
    time.sleep(0.001)
print("sha256:", hashlib.sha256(sys.argv[1].encode()).hexdigest())
"""

START_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(1000)
"""

WRITE = """
import os, time
os.mkdir("inside")
files = [os.open(name, os.O_WRONLY | os.O_CREAT) for name in ("outside", "inside/log", "inside/data")]
for number in range(3):
    os.write(files[0], b"." * 1000)
    os.write(files[1], b"." * 100)
    os.writev(files[2], [b"." * 30, b"." * 30])
    os.pwrite(files[2], b"+" * 10, 0)
os.rename("inside/log", "inside/log.1")
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


def test_a_script_runs_to_its_end(script_run, script):
    ended = script_run(script(COUNT), 3).python().check()
    assert ended.stdout.splitlines()[:4] == ["begun", "0", "1", "2"]
    assert len(ended.hashes) == 1
    assert ended.hashes[0].startswith("sha256: 4e07408562bedb8b60ce05c1decfe3ad")
    assert ended.stderr == ""


def test_an_unexpected_exit_code_shows_the_output(script_run, script):
    ended = script_run(script("import sys; print('so far'); sys.exit('no further')")).python()
    with pytest.raises(AssertionError, match="(?s)expected exit code 0, got 1 .*so far.*no further"):
        ended.check()


def test_a_script_is_killed_at_a_condition(script_run, script):
    running = script_run(script(COUNT), 1000000).start_python()
    running.wait_until(lambda: "\n5\n" in running.stdout)
    ended = running.kill_everything()
    assert ended.code == -signal.SIGKILL
    assert ended.hashes == []


def test_a_condition_that_comes_too_late_is_a_failure(script_run, script):
    running = script_run(script(COUNT), 3).start_python()
    with pytest.raises(AssertionError, match="(?s)ended too early.*begun"):
        running.wait_until(lambda: False)
    running = script_run(script(COUNT), 1000000).start_python()
    with pytest.raises(AssertionError, match="did not happen within 0.2 s"):
        running.wait_until(lambda: False, timeout=0.2)


def test_a_script_that_hangs_is_a_failure(script_run, script):
    with pytest.raises(AssertionError, match="(?s)still running after 0.5 s"):
        script_run(script(COUNT), 1000000).python(timeout=0.5)


def test_processes_that_left_the_session_are_killed_too(script_run, script):
    running = script_run(script(START_CHILD)).start_python()
    running.wait_until(lambda: running.stdout.endswith("\n"))
    child = int(running.stdout)
    assert running.trial_pid == child
    running.kill_everything()
    assert child not in support._parents()


def test_a_script_is_started_until_it_comes_to_its_end(script_run, script, monkeypatch, dice, tmp_path):
    # A substitute for pedl-run: counts its starts, and needs less time each time.
    fake = tmp_path / "fake-pedl-run"
    fake.write_text(f"#!/bin/sh\necho >> starts\nexec '{sys.executable}' \"$3\" $((1500 / $(wc -l < starts)))\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PEDL_RUN", str(fake))
    run = script_run(script(COUNT))
    ended, kills = support.kill_at_random(run, dice, 1, targets=["everything"])
    assert ended.code == 0
    assert len(ended.hashes) == 1
    assert len(kills) + 1 == (run.directory / "starts").read_text().count("\n")
    assert all(0 <= kill.seconds < support.TIMEOUT for kill in kills)


def test_a_trial_is_seen_from_nothing_on(tmp_path):
    trial = support.Trial(tmp_path / "trial")
    assert (trial.events, trial.count("step"), trial.checkpoint) == ([], 0, None)
    trial.directory.mkdir()
    (trial.directory / "events.jsonl").write_text('{"event": "step"}\n{"event": "st\n{"event": "checkpoint"}\n{"event": ')
    os.symlink("checkpoints/batch-0000000700", str(trial.directory / "latest"))
    assert (len(trial.events), trial.count("step"), trial.checkpoint) == (2, 1, 700)
    (trial.directory / "events.jsonl").write_text('{"event": "step"}\n{"event": "step"}')
    assert trial.count("step") == 2


def test_what_the_shell_says_about_python_does_not_reach_a_script(script_run, script, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    monkeypatch.setenv("PEDL_EXACT", "1")
    run = script_run(script("import os; print(sorted(n for n in os.environ if n[:4] in ('PYTH', 'PEDL')))"))
    assert run.python().stdout == "[]\n"


@pytest.mark.parametrize(
    ("count", "hit", "sizes"),
    [
        (1, ("write", 0, 100, "log"), {"log": 0, "data": 0}),
        (100, ("write", 99, 100, "log"), {"log": 99, "data": 0}),
        (101, ("writev", 0, 60, "data"), {"log": 100, "data": 0}),
        (151, ("writev", 50, 60, "data"), {"log": 100, "data": 50}),
        (171, ("write", 0, 100, "log"), {"log": 100, "data": 60}),
        (3 * 170 + 1, ("rename", 0, 1, "log"), {"log": 300, "data": 180}),
        (3 * 170 + 256, ("rename", 1, 1, "log"), {"log.1": 300, "data": 180}),
        (3 * 170 + 257, None, {"log.1": 300, "data": 180}),
    ],
)
def test_a_script_is_killed_at_a_byte(script_run, script, tmp_path, count, hit, sizes):
    kill = kill_at_byte.KillAtByte(tmp_path / "control", tmp_path / "run-1" / "inside")
    run = script_run(script(WRITE), environment=kill.environment)
    kill.arm(count, "everything")
    ended = run.python()
    assert (ended.code, ended.stderr) == (-signal.SIGKILL if hit else 0, "")
    assert kill.hit == hit
    assert {path.name: path.stat().st_size for path in (run.directory / "inside").iterdir()} == sizes
    assert hit or kill.counted == 3 * 170 + 256
