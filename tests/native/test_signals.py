"""The handler of `_pedl` for signals that ask for the end: which it delays, which act at once, and what Python sees.

Each case is a separate program that plays the part of the hooks: it begins a trial, and counts batches.
"""
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import support

BEGIN = """
import faulthandler, json, os, signal, subprocess, sys, threading, time
import _pedl

trial = _pedl.Trial(sys.argv[1])
came = []

def begin():
    trial.begin(json.dumps({"python": "3", "versions": {}, "cpu": ""}))

def batch():
    due = trial.batch_done(time.monotonic())
    return due is not None and due.signal

def handle(number, frame):
    came.append(int(number))

def send(number=signal.SIGTERM):
    "Another process sends it, and when this returns it has come."
    subprocess.run(["kill", "-%d" % number, str(os.getpid())], check=True)
    for _ in range(100):
        pass

def caught(number, process="self"):
    with open("/proc/%s/status" % process) as lines:
        (mask,) = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)
"""


@pytest.fixture(scope="session")
def library():
    """The directory with `_pedl` that pedl-run has unpacked."""
    command = [support.executable(), "--python", sys.executable, "-c", "import _pedl; print(_pedl.__file__)"]
    path = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    return os.path.dirname(path)


@pytest.fixture
def play(library, tmp_path):
    """A function that runs a program to its end, and checks how it ends; returns its output, and the seconds."""

    def run(code, expected=0, grace=25.0):
        message = {
            "schema": 1,
            "trial_dir": str(tmp_path / "trial"),
            "command": ["train.py"],
            "python_options": [],
            "trial_id": 1,
            "experiment_id": 1,
            "trial_seed": 7,
            "hash_seed": 9,
            "hyperparameters": {},
            "batches_per_step": 3,
            "checkpoint_period": None,
            "checkpoint_seconds": 60.0,
            "grace_seconds": grace,
            "exact": False,
            "log_limit_bytes": 1 << 30,
            "no_hooks": [],
            "log_format": "text",
            "verbosity": 0,
            "threads": 2,
            "resume": False,
            "attempt": 0,
            "library": "/",
            "mode": "embed",
        }
        environment = support.clean_environment({"PYTHONPATH": library})
        started = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-c", BEGIN + code, json.dumps(message)],
            env=environment,
            check=False,
            capture_output=True,
            timeout=support.TIMEOUT,
        )
        text = ended.stdout.decode(), ended.stderr.decode()
        assert ended.returncode == expected, text
        return text + (time.monotonic() - started,)

    return run


def events(tmp_path):
    text = (tmp_path / "trial" / "events.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


TERM = -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_without_a_handler_it_waits_for_the_batch(play, tmp_path, number):
    code = f"number = {int(number)}\n" + """
assert not caught(number)
begin()
assert signal.getsignal(number) == signal.SIG_DFL
assert not batch()
send(number)
send(number)
assert trial.pending_signal == number and signal.getsignal(number) == signal.SIG_DFL
assert batch() and batch()
print("held back", flush=True)
trial.preempt(True)
print("not reached")
"""
    stdout, _, _ = play(code, -number)
    assert stdout == "held back\n"
    event = events(tmp_path)[-1]
    assert (event["event"], event["signal"], event["batch"]) == ("preempted", signal.Signals(number).name, 3)


@pytest.mark.parametrize(
    "before",
    [
        "send()",
        "begin(); send()",
        "begin(); batch(); os.kill(os.getpid(), signal.SIGTERM)",
        "begin(); batch(); trial.keep_nothing(); send()",
        "begin(); batch(); send(); time.sleep(1.2); send()",
    ],
)
def test_where_there_is_nothing_to_wait_for_it_acts_at_once(play, before):
    stdout, _, _ = play(f"{before}\nprint('not reached')", TERM)
    assert stdout == ""
    handler = "signal.signal(signal.SIGTERM, handle)\n"
    stdout, _, _ = play(f"{handler}{before}\nprint(came[-1:])")
    assert stdout == f"[{int(signal.SIGTERM)}]\n"


def test_two_that_come_together_are_one(play):
    stdout, _, _ = play("begin(); batch(); send(); send(); send(); print('held back', flush=True); trial.preempt(False)", TERM)
    assert stdout == "held back\n"


@pytest.mark.parametrize("work", ["time.sleep(60)", "sum(range(10**11))", "os.read(os.pipe()[0], 1)"])
def test_when_the_grace_is_over_it_acts_whatever_runs(play, work):
    _, _, seconds = play(f"begin(); batch(); send(); {work}", TERM, grace=0.7)
    assert 0.7 <= seconds < 20
    code = f"""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
begin(); batch(); send(); {work}
"""
    if "sum" not in work:
        # A call of C code runs to its end, as under python.
        play(code, 5, grace=0.7)


def test_without_a_grace_it_acts_at_once(play):
    play("begin(); batch(); send(); print('not reached')", TERM, grace=0.0)


@pytest.mark.parametrize("order", ["install(); begin(); batch()", "begin(); batch(); install(); time.sleep(0.2); batch()"])
def test_a_handler_of_the_script_runs_after_the_batch(play, tmp_path, order):
    code = f"""
def install():
    assert signal.signal(signal.SIGTERM, handle) == signal.SIG_DFL
{order}
assert signal.getsignal(signal.SIGTERM) is handle
send()
assert not came and batch()
trial.preempt(True)
assert came == [signal.SIGTERM] and signal.getsignal(signal.SIGTERM) is handle
assert batch() and not trial.pending_signal
assert trial.trained_on() and not trial.trained_on()
trial.keep_nothing()
assert not batch()
send()
assert came == [signal.SIGTERM] * 2
"""
    _, stderr, _ = play(code)
    assert "the script handled SIGTERM by itself, and trains on" in stderr
    assert [event["event"] for event in events(tmp_path)][-2:] == ["preempted", "trained_on"]


def test_what_a_handler_raises_is_raised(play):
    play("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); begin(); batch(); send(); trial.preempt(True)", 5)


def test_a_handler_that_is_taken_out_again(play):
    code = """
begin()
signal.signal(signal.SIGTERM, handle)
time.sleep(0.2)
batch()
signal.signal(signal.SIGTERM, signal.SIG_DFL)
time.sleep(0.2)
batch()
send()
print("held back", flush=True)
trial.preempt(True)
"""
    assert play(code, TERM)[0] == "held back\n"


def test_what_the_script_ignores_is_left_alone(play):
    code = """
begin()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(0.2)
batch()
send()
assert not batch() and not trial.pending_signal and not trial.received_signal
"""
    play(code)
    play("signal.signal(signal.SIGTERM, signal.SIG_IGN); begin(); batch(); send(); assert not trial.pending_signal")


def test_a_handler_for_the_notice_runs_at_once(play):
    for order in ("install(); begin(); batch()", "begin(); batch(); install(); time.sleep(0.2); batch()"):
        code = f"""
def install():
    signal.signal(signal.SIGUSR1, handle)
{order}
send(signal.SIGUSR1)
assert came == [signal.SIGUSR1] and not batch()
"""
        play(code)


def test_children_have_nothing_of_it(play):
    code = """
def waits():
    print("ready", flush=True)
    time.sleep(60)

begin(); batch()
assert caught(signal.SIGTERM) and caught(signal.SIGUSR1)
for start in (os.fork, lambda: subprocess.Popen(["sleep", "60"]).pid):
    child = start()
    if child == 0:
        os.write(1, b"%d%d" % (caught(signal.SIGTERM), caught(signal.SIGUSR1)))
        trial.batch_done(time.monotonic())
        time.sleep(60)
    time.sleep(0.5)
    os.kill(child, signal.SIGTERM)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status
signal.signal(signal.SIGTERM, handle)
time.sleep(0.2)
batch()
child = os.fork()
if child == 0:
    send()
    os._exit(len(came))
assert os.waitpid(child, 0)[1] >> 8 == 1
assert not trial.pending_signal
"""
    assert play(code)[0] == "00"


def test_the_wakeup_descriptor_is_told_when_it_acts(play):
    code = """
reader, writer = os.pipe()
os.set_blocking(reader, False)
os.set_blocking(writer, False)
signal.signal(signal.SIGTERM, handle)
assert signal.set_wakeup_fd(writer) == -1
begin(); batch(); send()
try:
    os.read(reader, 10)
    raise AssertionError("too early")
except BlockingIOError:
    pass
trial.preempt(True)
assert os.read(reader, 10) == bytes([signal.SIGTERM]) and came
assert signal.set_wakeup_fd(-1) == writer
"""
    play(code)


def test_a_signal_that_is_waited_for_is_not_held_back(play):
    code = """
begin(); batch()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
send()
assert signal.sigpending() == {signal.SIGTERM}
assert signal.sigwait([signal.SIGTERM]) == signal.SIGTERM
assert not trial.pending_signal and not batch()
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGTERM}
"""
    play(code)


def test_faulthandler_works_as_ever(play):
    code = """
faulthandler.register(signal.SIGTERM)
begin(); batch(); send()
print("held back", flush=True)
trial.preempt(True)
faulthandler.register(signal.SIGUSR1)
time.sleep(0.2)
batch()
send(signal.SIGUSR1)
faulthandler.unregister(signal.SIGUSR1)
"""
    stdout, stderr, _ = play(code)
    assert stdout == "held back\n"
    assert stderr.count("most recent call first") == 2
    code = "faulthandler.register(signal.SIGTERM, chain=True); begin(); batch(); send(); trial.preempt(True)"
    assert play(code, TERM)[1].count("most recent call first") == 1


def test_it_may_come_to_any_thread(play):
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
begin(); batch()
def work():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    ready.set()
    done.wait()
ready, done = threading.Event(), threading.Event()
threading.Thread(target=work, daemon=True).start()
ready.wait()
send()
limit = time.monotonic() + 10
while not batch() and time.monotonic() < limit:
    time.sleep(0.01)
print("held back", flush=True)
trial.preempt(True)
"""
    assert play(code, TERM)[0] == "held back\n"


@pytest.mark.parametrize("end", ["trial.settle()", "trial.settle(); send()"])
def test_a_script_that_comes_to_its_end_outlives_it(play, tmp_path, end):
    code = f"begin(); batch(); send(); {end}; print('the end')"
    if "send" in end:
        play(code, TERM)
    else:
        play(code)
    assert [event["event"] for event in events(tmp_path)][1:] == ["outlived"]


def test_ctrl_c_is_none_of_it(play):
    code = """
begin(); batch()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
try:
    send(signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted")
assert not batch()
"""
    assert play(code)[0] == "interrupted\n"
