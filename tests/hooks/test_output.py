"""Output that has been printed is not printed again, and output that has not is not lost.

Each start of the script is a process, and its stdout is the output that counts.
"""

import os
import subprocess
import sys
import textwrap

import pytest

# A start: `drop` as the host does if there is a checkpoint, then some lines of a script.
START = """
import atexit
import sys
from py_hooks.script_io import raw_streams

raw_streams.put_below_own()
{before}
from py_hooks.script_io.output import Output

output = Output()
atexit.register(output.give_back)
directory = {directory!r}
{script}
"""


@pytest.fixture
def start(tmp_path, native):
    """A function that runs lines of a script with the layer of pedl below its streams; returns what they print on stdout.

    Its second argument is lines that run before the layer does anything.
    """

    def run(script, before=""):
        lines = START.format(directory=str(tmp_path), script=textwrap.dedent(script), before=textwrap.dedent(before))
        path = {"PYTHONPATH": ":".join([*sys.path, os.path.dirname(native.__file__)])}
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


# Objects of stdout that a script may hold from before, and how it prints with them. Nobody else flushes what it does not.
HELD = {
    "stdout": "held = sys.stdout; write = held.write",
    "its buffer": "held = sys.stdout.buffer; write = lambda text: (sys.stdout.flush(), held.write(text.encode()))",
    "a bound method": "write = sys.stdout.write",
    "a stream of its own": """
        class Tee:
            def __init__(self, below):
                self.below = below
            def write(self, text):
                self.below.write(text)
            def flush(self):
                pass
        sys.stdout = Tee(sys.stdout)
        write = sys.stdout.write
        """,
    "a text layer of its own": """
        import io
        sys.stdout = io.TextIOWrapper(sys.stdout.buffer, "utf-8", line_buffering=True)
        write = sys.stdout.write
        """,
    "the buffer, detached": """
        import io
        sys.stdout = io.TextIOWrapper(sys.stdout.detach(), "utf-8")
        write = sys.stdout.write
        """,
    "a file of its own for the same descriptor": """
        import os
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", 1)
        write = sys.stdout.write
        """,
    "a logger": """
        import logging
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        write = lambda text: logging.warning(text.rstrip("\\n"))
        """,
}


@pytest.mark.parametrize("held", HELD)
def test_what_was_held_of_the_streams_before_the_layer_prints_through_it(start, tmp_path, held):
    first = FIRST.replace('print("one")', 'write("one\\n")').replace('print("two", length)', 'write(f"two {length}\\n")')
    assert start(first, HELD[held]) == "before\none\ntwo 11\n"
    assert (tmp_path / "stdout.log").read_text() == "before\none\ntwo 11\n"
    again = AGAIN.replace('print("one")', 'write("one\\n")') + 'write("two 11\\n")\nwrite("three\\n")\n'
    assert start(again, HELD[held]) == "three\n"


def test_a_destructor_that_prints_when_all_is_over_prints(start):
    lines = """
    class Last:
        def __init__(self, out):
            self.out = out
        def __del__(self):
            self.out.write("last\\n")
    output.begin(directory, False)
    print("first")
    last = Last(sys.stdout)
    last.itself = last
    """
    assert start(lines) == "first\nlast\n"


def test_threads_print_while_the_layer_begins_and_ends(start):
    before = """
    import threading
    failed, is_over = [], threading.Event()
    def prints():
        try:
            while not is_over.is_set():
                print("from a thread", flush=True)
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=prints) for _ in range(3)]
    for thread in threads:
        thread.start()
    """
    lines = """
    output.begin(directory, False)
    for _ in range(200):
        output.give_back()
        output = Output()
    print("through the layer")
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failed, failed
    """
    lines = set(start(lines, before).splitlines())
    # The ends of lines of several threads may come together, as under python.
    assert {line.replace("from a thread", "") for line in lines} == {"", "through the layer"}


def test_what_the_script_holds_of_its_streams_stays_what_it_was(start):
    before = "objects = sys.stdout, sys.stderr, sys.stdout.buffer; words = repr(objects), sys.stdout.mode"
    same = """
    assert (sys.stdout, sys.stderr, sys.stdout.buffer) == objects == (sys.__stdout__, sys.__stderr__, sys.__stdout__.buffer)
    assert (repr(objects), sys.stdout.mode) == words, objects
    sys.stdout.close()
    try:
        print("closed")
    except ValueError as error:
        print(error, file=sys.stderr)
    else:
        raise AssertionError("printed on a closed stream")
    """
    start(same, before)


def test_a_file_in_the_place_of_stdout_is_the_files_of_the_script(start, tmp_path):
    """Text printed into it comes back with the files; it must not be dropped as a repetition."""
    before = f"sys.stdout = open({str(tmp_path / 'log.txt')!r}, 'w')"
    start(FIRST, before)
    assert (tmp_path / "log.txt").read_text() == "before\none\ntwo 0\n"
    assert start(AGAIN + "print('three')\n", before) == ""
    assert (tmp_path / "log.txt").read_text() == "before\none\nthree\n"


def test_nothing_that_is_written_is_nothing_new(start):
    """Python without a buffer (`PYTHONUNBUFFERED`) sometimes writes no bytes."""
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


END = """
import atexit
atexit.register(print, "the last line")
import numpy as np
import keras
model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)
print("trained")
"""


@pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
def test_the_trial_has_what_handlers_of_the_end_print_that_were_there_first(script_run, tmp_path):
    (tmp_path / "train.py").write_text(END)
    run = script_run(tmp_path / "train.py", environment={"PYTHONUNBUFFERED": ""})
    assert run.run().check().stdout.endswith("trained\nthe last line\n")
    assert (run.trial.directory / "stdout.log").read_text().endswith("trained\nthe last line\n")


LEADS_AWAY = """
import os

def in_place(original, module, before):
    def replaced(*args):
        answer = before(*args)
        return original(*args) if answer is NotImplemented else answer

    return replaced

output.watch_descriptors(in_place)
"""


@pytest.mark.parametrize("flags", ["os.O_TRUNC", "os.O_APPEND"])
def test_a_descriptor_that_leads_into_a_file_of_the_script_is_written_by_a_replay(start, tmp_path, flags):
    own = tmp_path / "own.log"
    lead = f"""
    kept = os.dup(1)
    sys.stdout.flush()
    os.dup2(os.open({str(own)!r}, os.O_WRONLY | os.O_CREAT | {flags}), 1)
    print("into the file")
    """
    back = "print('still')\nsys.stdout.flush()\nos.dup2(kept, 1)\nprint('two')\n"
    lead = textwrap.dedent(LEADS_AWAY) + textwrap.dedent(lead)
    first = textwrap.dedent(FIRST).replace('print("two", length)\n', lead + "output.capture()\n" + back)
    assert start(first) == "before\none\ntwo\n"
    assert own.read_text() == "into the file\nstill\n"
    own.unlink()
    again = textwrap.dedent(AGAIN).replace("output.restore", lead + "output.restore")
    assert start(again + back) == ""
    assert own.read_text() == "into the file\nstill\n"
    assert (tmp_path / "stdout.log").read_text() == "before\none\ntwo\n"


def test_the_traceback_of_a_failure_that_did_not_come_again_is_not_kept(start, tmp_path):
    begin = "output.begin(directory, False)\nprint('one', file=sys.stderr)\nlength = output.capture()[1]['stderr']\n"
    start(begin + "print('Traceback (most recent call last):\\n  ...\\nOSError', file=sys.stderr)\n")
    assert "Traceback" in (tmp_path / "stderr.log").read_text()
    start("output.drop()\noutput.begin(directory, True)\noutput.restore([], {'stderr': 4})\n")
    assert (tmp_path / "stderr.log").read_text() == "one\n"
