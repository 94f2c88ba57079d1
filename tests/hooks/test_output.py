"""What the world has seen is not printed again, and what it has not is not lost.

Each start of the script is a process: its stdout is what the world sees.
"""

import subprocess
import sys
import textwrap

import pytest

# A start: `drop` as the host does where a checkpoint is there, then some lines of a script.
START = """
import sys
from py_hooks.advice.output import Output

output = Output()
directory = {directory!r}
{script}
"""


@pytest.fixture
def start(tmp_path):
    """A function that runs lines of a script with our layer below its streams; returns what they print on stdout."""

    def run(script):
        lines = START.format(directory=str(tmp_path), script=textwrap.dedent(script))
        path = {"PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", lines], env=path, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode()

    return run


FIRST = """
print("before")
output.begin(directory, False)
print("one")
length = output.capture()[1]["stdout"]
print("two", length)
"""

# The next start, up to the resume point.
AGAIN = """
output.drop()
print("before")
output.begin(directory, True)
print("one")
output.restore([], {"stdout": 11})
"""


def test_a_trial_is_copied(start, tmp_path):
    printed = start(FIRST)
    assert printed == "before\none\ntwo 11\n"
    assert (tmp_path / "stdout.log").read_text() == printed


def test_a_replay_prints_nothing_until_what_is_new(start, tmp_path):
    start(FIRST)
    again = AGAIN + """
print("two 11")
print("three")
"""
    assert start(again) == "three\n"
    assert (tmp_path / "stdout.log").read_text() == "before\none\ntwo 11\nthree\n"


def test_from_the_first_line_that_differs_everything_is_printed(start, tmp_path):
    start(FIRST)
    again = AGAIN + """
print("two 12")
"""
    assert start(again) == "two 12\n"
    assert (tmp_path / "stdout.log").read_text() == "before\none\ntwo 12\n"


def test_nothing_that_is_written_is_nothing_new(start):
    """Python without a buffer (`PYTHONUNBUFFERED`) writes no bytes now and then."""
    start(FIRST)
    again = AGAIN + """
print("two 11")
sys.stdout.flush()
repeats = output.only_repeats("stdout")
raw = sys.stdout.buffer.raw
raw.write(b"")
assert repeats and output.only_repeats("stdout")
"""
    assert start(again) == ""


def test_what_was_held_back_is_printed_where_there_is_no_replay(start):
    assert start("output.drop(); print('before'); output.begin(directory, False); print('one')") == "before\none\n"


@pytest.mark.parametrize("begin", ["", "output.begin(directory, True)"], ids=["before the trial", "in the trial"])
def test_an_end_in_the_replay_prints_what_is_new_and_leaves_the_copy(start, tmp_path, begin):
    start(FIRST)
    again = f"""
    output.drop()
    print("before")
    {begin}
    print("o", end="")
    print("dd")
    output.end(directory)
    print("late")
    """
    assert start(again) == "odd\nlate\n"
    assert (tmp_path / "stdout.log").read_text() == "before\none\ntwo 11\n"


def test_an_end_in_the_replay_prints_nothing_where_nothing_is_new(start):
    start(FIRST)
    assert start("output.drop(); print('before'); output.begin(directory, True); output.end(directory)") == ""


def test_an_end_in_the_replay_knows_what_was_printed_a_long_time_ago(start):
    lines = "for line in range(200000):\n    print('line', line)\n"
    start("output.begin(directory, False)\n" + lines)
    again = "output.drop()\noutput.begin(directory, True)\n" + lines + "print('new')\noutput.end(directory)\n"
    assert start(again) == "new\n"
