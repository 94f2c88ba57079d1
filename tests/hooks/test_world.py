"""Actions of a script on the world outside during training, and what it learns of it: once, in spite of any kills.

Each start of a trial is a separate process, with a substitute for the recorder: `call()` is a recorded call, and a start
resumes at the call that it is given.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

START = """
import atexit, importlib.util, os, subprocess, sys, threading, types

specification = importlib.util.spec_from_file_location("_pedl", {native!r})
native = importlib.util.module_from_spec(specification)
specification.loader.exec_module(native)
sys.modules["_pedl"] = native

from py_hooks.script_io import command_starts, file_calls, files, observations

in_place = native.InPlace

class Exactness:
    causes = []

    def refuse(self, cause):
        self.causes.append(str(cause))

class Calls:
    begun, batches, depth, entries, in_composite, exactness = True, 1, 0, (), False, Exactness()
    main_thread = threading.main_thread().ident
    at_stop = ()
    resume_at, count = {resume_at}, 0
    resumes = is_past = resume_at > 0
    trial = types.SimpleNamespace(
        received_signal=0,
        log=lambda text: print(text, file=sys.stderr, flush=True),
        log_error=lambda message, hint: print(message, file=sys.stderr, flush=True),
    )

    def position(self):
        return self.count

    def recordable(self):
        return True

def call():
    calls.count += 1
    if calls.count == calls.resume_at:
        calls.is_past = False
        journal.restore([], None)

calls = Calls()
directory = os.path.abspath("trial")
trial = types.SimpleNamespace(directory=directory, seed=1)
calls.files = made = files.Files(trial)
if os.path.isdir(directory):
    made.withdraw()
    atexit.register(made.put_back)
watched = file_calls.FileCalls(made)
watched.install(in_place)
{early}
made.attach(calls)
watched.watch_copies()
os.makedirs(directory, exist_ok=True)
if not os.path.exists("trial/trial.json"):
    with open("trial/trial.json", "w") as file:
        file.write('{{"created": "2026-01-01T00:00:00.000Z"}}')
made.begin()
process = types.SimpleNamespace(environment_of_child=lambda command, environment: environment)
journal = command_starts.attach(trial, calls)
command_starts.watch_subprocess(subprocess, process)
command_starts.watch_os(in_place)
journal.begin()
observed = observations.Observations(calls, made, journal)
observations.install(observed, in_place)
observed.begin(directory)
sys.argv[0] = "script.py"
exec(compile(open("script.py").read(), os.path.abspath("script.py"), "exec"))
"""


class Starts:
    """Starts of one trial in a directory."""

    def __init__(self, directory, native):
        self.directory = directory
        self.native = native

    def run(self, script, resume_at=0, code=0, early=""):
        """Runs a script from its first line, and the lines `early` before it imports a library; returns the printed lines."""
        (self.directory / "script.py").write_text(script)
        # The script must be a user's file, so it may not be among those of an interpreter.
        command = [sys.executable, "-c", START.format(resume_at=resume_at, native=self.native, early=early)]
        environment = dict(os.environ, PYTHONPATH=":".join(sys.path))
        done = subprocess.run(command, cwd=str(self.directory), env=environment, capture_output=True, check=False)
        assert done.returncode == code, done.stderr.decode()
        self.errors = done.stderr.decode()
        return done.stdout.decode().splitlines()

    def read(self, name):
        return (self.directory / name).read_text()

    def lines(self):
        text = self.read("trial/commands.jsonl")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def starts(tmp_path, native):
    return Starts(tmp_path, native.__file__)


DIES = "\nos._exit(9)\n"

# Each epoch appends a line, with every way to run a command and wait for it.
APPENDS = """
for epoch in range(3):
    call()
    line = "echo epoch %d >> log" % epoch
    {run}
    call()
"""

WAYS = {
    "run": """
    subprocess.run(line, shell=True)
    """,
    "call": """
    assert subprocess.call(["sh", "-c", line]) == 0
    """,
    "check_output": """
    assert subprocess.check_output(line + "; echo said", shell=True) == b"said\\n"
    """,
    "getoutput": """
    assert subprocess.getoutput(line + "; echo said") == "said"
    """,
    "popen": """
    with os.popen(line + "; echo said") as child:
        assert child.read() == "said\\n"
    """,
    "system": """
    assert os.system(line + "; exit 3") == 3 << 8
    """,
    "spawn": """
    assert os.spawnlp(os.P_WAIT, "sh", "sh", "-c", line + "; exit 3") == 3
    """,
    "wait": """
    assert subprocess.Popen(line + "; kill -9 $$", shell=True).wait() == -9
    """,
    "communicate": """
    child = subprocess.Popen(line + "; cat; echo err >&2", shell=True, stdin=-1, stdout=-1, stderr=-1, universal_newlines=True)
    assert child.communicate("in") == ("in", "err\\n")
    """,
    "read by lines": """
    child = subprocess.Popen(line + "; seq 40000", shell=True, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdout.readline() == b"1\\n"
    assert len(child.stdout.read()) > 200000
    assert child.wait() == 0
    """,
    "read after the wait": """
    child = subprocess.Popen(line + "; seq 400", shell=True, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"1\\n" and child.wait() == 0
    assert child.stdout.read().endswith(b"400\\n")
    """,
    "with a time": """
    try:
        subprocess.run(line + "; exec sleep 100", shell=True, timeout=0.5)
    except subprocess.TimeoutExpired:
        call()
    """,
}


def test_a_command_is_run_once(starts):
    script = APPENDS.format(run="".join(WAYS.values()))
    starts.run(script.replace("range(3)", "range(2)") + DIES, code=9)
    once = [starts.read("log").count(f"epoch {epoch}\n") for epoch in range(2)]
    assert once == [len(WAYS), len(WAYS)]
    # Killed after the first epoch, and again: actions after the checkpoint are not repeated.
    starts.run(script, resume_at=3)
    assert starts.read("log") == "".join(f"epoch {epoch}\n" * len(WAYS) for epoch in range(3))
    starts.run(script, resume_at=8)
    assert starts.read("log") == "".join(f"epoch {epoch}\n" * len(WAYS) for epoch in range(3))


SAID_OF_FUNCTIONS = """
import json, os, pickle, posix

said = {}
for name in sorted(set(vars(os)) & set(vars(posix))):
    function = getattr(os, name)
    if callable(function) and not isinstance(function, type):
        abilities = os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids
        said[name] = [pickle.loads(pickle.dumps(function)) is function, *(function in able for able in abilities)]
print(json.dumps(said))
"""


def test_what_python_says_of_functions_of_os_stays_true(starts):
    expected = subprocess.run([sys.executable, "-c", SAID_OF_FUNCTIONS], stdout=subprocess.PIPE, check=True).stdout.decode()
    watched = """
from py_hooks.script_io import exec_again
exec_again.install(types.SimpleNamespace(), "{}", in_place)
"""
    assert json.loads(starts.run(watched + SAID_OF_FUNCTIONS)[-1]) == json.loads(expected)


@pytest.mark.parametrize("begun", [True, False])
def test_words_are_read_once_and_what_is_no_word_is_pythons_error(starts, begun):
    script = f"""
calls.begun = {begun}
call()
print(subprocess.check_output(word for word in ("echo", "said")).decode().strip())
try:
    subprocess.call(["echo", 3])
except TypeError as error:
    print(error)
"""
    said = ["said", "expected str, bytes or os.PathLike object, not int"]
    assert starts.run(script) == said
    assert starts.run(script, resume_at=1 if begun else 0) == said


def test_what_cannot_be_started_fails_in_a_replay_too(starts):
    script = """
call()
try:
    subprocess.run(["./tool"])
except OSError as error:
    print(repr(error), error.filename)
call()
"""
    first = starts.run(script + DIES.replace("os._exit", "sys.stdout.flush(); os._exit"), code=9)
    (starts.directory / "tool").write_text("#!/bin/sh\ntouch ran\n")
    (starts.directory / "tool").chmod(0o755)
    assert first[0].startswith("FileNotFoundError(2, ")
    assert starts.run(script, resume_at=2) == first
    assert not (starts.directory / "ran").exists()


def test_files_of_the_script_are_as_the_command_left_them(starts):
    script = """
os.makedirs("bucket", exist_ok=True)
log = open("own.log", "a")
for epoch in range(3):
    call()
    with open("weights", "w") as file:
        file.write("weights of %d" % epoch)
    subprocess.check_call("mv weights bucket/%d" % epoch, shell=True)
    log.write("a%d\\n" % epoch)
    log.flush()
    subprocess.check_call("echo b%d >> own.log" % epoch, shell=True)
    with open("given.log", "a" if epoch else "w") as file:
        file.write("before\\n")
        file.flush()
        subprocess.check_call(["echo", "given"], stdout=file)
        file.write("after\\n")
    call()
"""
    starts.run(script.replace("range(3)", "range(2)") + DIES, code=9)
    starts.run(script, resume_at=3)
    assert starts.read("own.log") == "a0\nb0\na1\nb1\na2\nb2\n"
    assert starts.read("given.log") == "before\ngiven\nafter\n" * 3
    assert [starts.read(f"bucket/{epoch}") for epoch in range(3)] == [f"weights of {epoch}" for epoch in range(3)]
    assert not (starts.directory / "weights").exists()


# What the script and its commands do with folders in each epoch.
FOLDERS = {
    "the command makes it and the script writes into it": """
    os.system("mkdir -p ep%d && chmod 700 ep%d" % (epoch, epoch))
    write("ep%d/loss" % epoch)
    if epoch:
        os.system("rm -rf ep%d" % (epoch - 1))
    """,
    "the command removes it with what the script has made in it": """
    os.makedirs("own/sub")
    write("own/sub/loss")
    subprocess.check_call(["cp", "-r", "own", "copy%d" % epoch])
    subprocess.check_call(["rm", "-rf", "own"])
    """,
    "the command moves it into another": """
    os.makedirs("own")
    os.makedirs("runs", exist_ok=True)
    write("own/loss")
    with open("own/when", "w") as file:
        file.write(repr(time.perf_counter()))
    os.symlink("loss", "own/last")
    os.system("mv own runs/ep%d" % epoch)
    """,
    "the script makes one in that of the command": """
    subprocess.check_call("d=runs/ep%d; mkdir -p $d/plots" % epoch, shell=True)
    os.mkdir("runs/ep%d/own" % epoch)
    write("runs/ep%d/own/loss" % epoch)
    os.rename("runs/ep%d/own/loss" % epoch, "runs/ep%d/plots/loss" % epoch)
    if epoch > 1:
        os.system("rm -r runs/ep%d" % (epoch - 2))
    """,
    "the command makes it anew": """
    os.system("rm -rf same; mkdir same")
    os.mkdir("same/own")
    write("same/own/loss")
    os.system("rm -rf of_before")
    os.mkdir("of_before")
    write("of_before/loss")
    """,
    "the command fills it and the script moves it": """
    os.system("mkdir new; echo filled %d > new/data" % epoch)
    write("new/loss")
    os.rename("new", "kept%d" % epoch)
    """,
    "the command leads a link to it": """
    os.system("mkdir -p ep%d; ln -sfn ep%d current; ln -sfn ep%d link_of_before" % (epoch, epoch, epoch))
    write("current/loss")
    write("link_of_before/other")
    if epoch:
        os.system("rm -rf ep%d/loss" % (epoch - 1))
    """,
    "it was there before": """
    os.system("mkdir -p of_before/empty users")
    write("users/loss")
    write("of_before/loss")
    os.system("rm -f users/loss; mv of_before/loss of_before/ep%d" % epoch)
    """,
}

IN_EPOCHS = """
import posix, time

def write(name):
    with open(name, "w") as file:
        file.write("of epoch %d" % epoch)

print(sorted(posix.listdir(".")), sorted(posix.listdir("users")), flush=True)
for epoch in range(4):
    call()
    {body}
    call()
    {dies}
"""


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_as_commands_left_them(starts, tmp_path, native, name):
    body = FOLDERS[name]
    undisturbed = Starts(tmp_path / "undisturbed", native.__file__)
    starts.directory = tmp_path / "killed"
    for directory in (undisturbed.directory, starts.directory):
        for folder in ("users/empty", "of_before"):
            (directory / folder).mkdir(parents=True)
        (directory / "users" / "data").write_text("of the user")
        (directory / "link_of_before").symlink_to("users")
        (directory / "trial").mkdir()
    found = undisturbed.run(IN_EPOCHS.format(body=body, dies=""))
    dies = IN_EPOCHS.format(body=body, dies="epoch < 2 or os._exit(9)")
    assert starts.run(dies, code=9) == found
    # Before the commands of the third epoch, and after them. Folders that only commands make remain in place.
    for at, script, code in ((5, dies, 9), (6, IN_EPOCHS.format(body=body, dies=""), 0)):
        (line,) = starts.run(script, resume_at=at, code=code)
        assert [each for each in ("ep0", "ep1", "ep2", "own", "same", "current") if f"'{each}'" in line] == []
    assert _tree(starts.directory) == _tree(undisturbed.directory)


def _tree(top):
    """The contents of a folder, by path: modes of folders, targets of links, contents of files, except those with a time."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if name.split(os.sep)[0] in ("trial", "script.py"):
            continue
        if path.is_symlink():
            found[name] = os.readlink(str(path))
        else:
            found[name] = oct(path.stat().st_mode) if path.is_dir() else path.name == "when" or path.read_text()
    return found


def test_a_link_that_leads_out_is_made_again_only_where_it_was_noted(starts, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    starts.directory = tmp_path / "own"
    starts.directory.mkdir()
    script = f"""
call()
os.system("ln -s {out} current")
try:
    with open("current/loss", "w") as file:
        file.write("1")
except OSError:
    print("no link", calls.exactness.causes, flush=True)
call()
"""
    starts.run(script + DIES, code=9)
    shutil.copytree(str(starts.directory), str(tmp_path / "copy"), symlinks=True)
    (starts.directory / "current").unlink()
    assert starts.run(script, resume_at=2) == []
    assert os.readlink(str(starts.directory / "current")) == str(out)
    (out / "loss").write_text("of the user")
    starts.directory = tmp_path / "copy"
    (starts.directory / "current").unlink()
    (said,) = starts.run(script, resume_at=2)
    assert "a command is said to have changed `current`, which is no file of the script" in said
    assert not os.path.lexists(str(starts.directory / "current"))
    assert (out / "loss").read_text() == "of the user"


def test_a_folder_that_somebody_else_has_filled_is_never_removed(starts):
    script = """
for epoch in range(3):
    call()
    os.system("mkdir -p out")
    with open("out/loss", "w") as file:
        file.write("%d" % epoch)
    os.system("rm -rf out")
    call()
"""
    starts.run(script.replace("range(3)", "range(2)") + DIES, code=9)
    (starts.directory / "out" / "sub").mkdir(parents=True)
    (starts.directory / "out" / "notes").write_text("of the user")
    starts.run(script.replace("range(3)", "range(2)") + DIES, resume_at=2, code=9)
    assert starts.read("out/notes") == "of the user"
    starts.run(script.replace("rm -rf", "rm -f"), resume_at=4, code=0)
    assert starts.read("out/notes") == "of the user"
    assert (starts.directory / "out" / "sub").is_dir()


def test_behind_the_checkpoint_a_command_on_another_file_runs_again(starts):
    script = """
call()
with open("weights", "w") as file:
    file.write({weights!r})
subprocess.check_call("cp weights copy; echo ran >> log", shell=True)
"""
    starts.run(script.format(weights="1") + DIES, code=9)
    starts.run(script.format(weights="1"), resume_at=1)
    assert starts.read("log") == "ran\n"
    starts.run(script.format(weights="2"), resume_at=1)
    assert starts.read("copy") == "2"
    assert starts.read("log") == "ran\nran\n"


def test_what_was_done_to_the_file_of_an_answered_command_is_done(starts):
    script = """
for epoch in range({epochs}):
    call()
    subprocess.check_call("echo epoch %d >> log; echo x > made" % epoch, shell=True)
    os.remove("made")
    call()
"""
    starts.run(script.format(epochs=3) + DIES, code=9)
    # Its commands are done, and so are the actions after them: each removal was the same action of the same line.
    starts.run(script.format(epochs=4), resume_at=1)
    assert starts.read("log") == "".join(f"epoch {epoch}\n" for epoch in range(4))
    assert not (starts.directory / "made").exists()


@pytest.mark.parametrize("handler", ["TimedRotatingFileHandler('log', 'S')", "RotatingFileHandler('log', 'a', 20, 9)"])
def test_logs_that_are_named_by_the_clock_are_a_cause(starts, handler):
    script = """
import logging.handlers, time
handler = logging.handlers.{handler}
if hasattr(handler, "rolloverAt"):
    handler.rolloverAt -= 10
call()
for number in range(2):
    handler.emit(logging.makeLogRecord(dict(msg="a line of the log")))
print(calls.exactness.causes)
"""
    cause = "`logging` names log files by the clock, and a replay writes others"
    expected = [cause] if handler.startswith("Timed") else []
    assert starts.run(script.format(handler=handler)) == [str(expected)]


def test_another_command_in_a_replay_stops_it(starts):
    script = "call()\nsubprocess.run([{program!r}, 'one'])\ncall()\n"
    starts.run(script.format(program="echo") + DIES, code=9)
    starts.run(script.format(program="touch"), resume_at=2, code=76)
    assert "recorded: the command `echo`" in starts.errors
    assert "now: the command `touch`, at script.py:2" in starts.errors
    assert not (starts.directory / "one").exists()


def test_before_the_training_a_command_runs_each_time(starts):
    script = "calls.batches = 0\nsubprocess.run('echo ran >> log', shell=True)\ncall()\n"
    starts.run(script + DIES, code=9)
    starts.run(script, resume_at=1)
    assert starts.read("log") == "ran\nran\n"


def test_a_command_that_runs_at_a_checkpoint_is_a_cause_and_starts_again_behind_it(starts):
    script = """
call()
child = subprocess.Popen("read x < fifo; echo ran >> log", shell=True)
call()
{capture}
with open("fifo", "w") as file:
    file.write("go\\n")
child.wait()
"""
    os.mkfifo(str(starts.directory / "fifo"))
    dies = "journal.capture(); print(calls.exactness.causes, flush=True); child.kill(); os._exit(9)"
    (causes,) = starts.run(script.format(capture=dies), code=9)
    assert causes == "['`read`, which the script started, runs while a checkpoint is taken; a resume starts it again']"
    starts.run(script.format(capture=""), resume_at=2)
    assert starts.read("log") == "ran\n"


# The command ends the start in the middle of its work, by a kill of its parent.
DIES_INSIDE = '[ -z "$DIES" ] || { kill -9 $PPID; exit 1; }'
RUN = """
call()
done = subprocess.run({command!r}, shell=True)
assert done.returncode == 0, done
call()
"""


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        ("echo one >> log; {dies}; echo two >> log", {}, {"log": "one\ntwo\n"}),
        ("echo one >> log; {dies}; echo two >> log", {"log": "zero\n"}, {"log": "zero\none\ntwo\n"}),
        ("mv a b; {dies}; echo more >> b", {"a": "content"}, {"b": "contentmore\n"}),
        ("tr a-z b-za < a > b; cp b a; {dies}", {"a": "abc"}, {"a": "bcd", "b": "bcd"}),
        ("mkdir out && echo made >> log; {dies}; rmdir out", {"log": ""}, {"log": "made\n"}),
        ("rm a && echo gone > b; {dies}", {"a": "x" * (3 << 20)}, {"b": "gone\n"}),
        ("echo more >> a; {dies}", {"a": "x" * (3 << 20)}, {"a": "x" * (3 << 20) + "more\n"}),
    ],
    ids=["new file", "append", "move", "overwrite", "folder", "remove a long one", "append to a long one"],
)
def test_what_an_interrupted_command_did_is_taken_back_before_it_runs_again(starts, monkeypatch, command, before, after):
    for name, content in before.items():
        (starts.directory / name).write_text(content)
    script = RUN.format(command=command.format(dies=DIES_INSIDE))
    monkeypatch.setenv("DIES", "1")
    starts.run(script, code=-9)
    monkeypatch.delenv("DIES")
    starts.run(script)
    assert "was running when the start before this one was killed; it runs again; taken back: " in starts.errors
    names = {path.name for path in starts.directory.iterdir()} - {"script.py", "trial"}
    assert {name: starts.read(name) for name in names} == after
    assert not list(starts.directory.glob("trial/interrupted/*"))


def test_a_file_that_an_interrupted_command_has_changed_beyond_help_is_named(starts, monkeypatch):
    (starts.directory / "long").write_text("x" * (3 << 20))
    script = RUN.format(command=f'[ -z "$DIES" ] || echo short > long; {DIES_INSIDE}')
    monkeypatch.setenv("DIES", "1")
    starts.run(script, code=-9)
    monkeypatch.delenv("DIES")
    starts.run(script)
    assert "it runs again; stays as it is: long" in starts.errors
    assert starts.read("long") == "short\n"


def test_a_command_of_a_thread_is_answered_and_is_a_cause(starts):
    script = """
call()
thread = threading.Thread(target=lambda: subprocess.run("echo ran >> log", shell=True))
thread.start()
thread.join()
print(calls.exactness.causes, flush=True)
call()
"""
    (causes,) = starts.run(script + DIES, code=9)
    assert causes == "['a thread of the script runs commands (`echo`)']"
    starts.run(script, resume_at=2)
    assert starts.read("log") == "ran\n"


def test_a_command_that_builds_an_item_runs_each_time(starts):
    script = """
from py_hooks.random_numbers.random_streams import PrivateStream
call()
with PrivateStream("item"):
    subprocess.run("echo ran >> log", shell=True)
call()
"""
    starts.run(script + DIES, code=9)
    starts.run(script, resume_at=2)
    assert starts.read("log") == "ran\nran\n"


# -- what the script learns ------------------------------------------------------------------------------------------------

QUESTIONS = {
    "exists": 'os.path.exists("STOP")',
    "isfile": 'os.path.isfile("STOP"), os.path.isdir("STOP"), os.path.islink("STOP"), os.path.lexists("STOP")',
    "pathlib": '__import__("pathlib").Path("STOP").exists(), __import__("pathlib").Path("STOP").is_file()',
    "size": 'os.path.getsize("lr.txt"), os.path.getmtime("lr.txt"), os.stat("lr.txt").st_ino',
    "access": 'os.access("STOP", os.R_OK)',
    "listdir": 'sorted(os.listdir("inbox"))',
    "glob": 'sorted(__import__("glob").glob("inbox/*"))',
    "walk": '[(folder, sorted(folders), sorted(names)) for folder, folders, names in os.walk("inbox")]',
    "scandir": 'sorted((entry.name, entry.is_file(), entry.path) for entry in os.scandir("inbox"))',
    "open": 'open("lr.txt").read(), open("lr.txt", "rb").read(), open("lr.txt").name',
    "read_text": '__import__("pathlib").Path("lr.txt").read_text()',
    "json": '__import__("json").load(open("lr.txt"))',
    "readlink": 'os.readlink("link")',
    "failure": "failure()",
}


def test_a_replay_is_answered_as_the_first_run_was(starts):
    script = (
        "def failure():\n    try:\n        return open('STOP').read()\n    except OSError as error:\n        return repr(error)\n"
        "for epoch in range(3):\n    call()\n"
    )
    script += "".join(f"    print({name!r}, repr(({question})), flush=True)\n" for name, question in QUESTIONS.items())
    inbox, learning_rate, link = (starts.directory / name for name in ("inbox", "lr.txt", "link"))
    inbox.mkdir()
    (inbox / "one").touch()
    learning_rate.write_text("0.5")
    link.symlink_to("one")
    first = starts.run(script + DIES, code=9)
    (starts.directory / "STOP").touch()
    (inbox / "two").touch()
    learning_rate.unlink()
    learning_rate.write_text("0.25")
    link.unlink()
    link.symlink_to("two")
    script = script.replace("range(3)", "range(4)")
    later = starts.run(script + DIES, resume_at=3, code=9)
    count = len(QUESTIONS)
    assert later[:2 * count] == first[:2 * count]
    assert [now for now, then in zip(later[-count:], first) if now == then] == []
    # The answers that the second start received are repeated as well.
    (starts.directory / "STOP").unlink()
    learning_rate.write_text("1")
    (inbox / "three").touch()
    link.unlink()
    assert starts.run(script.replace("call()", "call(); epoch == 3 and os._exit(9)"), resume_at=4, code=9) == later[:3 * count]


def test_functions_that_the_script_took_before_it_imported_a_library_are_answered_too(starts):
    early = "from io import open as opens\nfrom os import listdir, mkdir, remove, rename, stat, system\nheld = {None: open}\n"
    script = """
for epoch in range(3):
    call()
    print(opens("lr.txt").read(), held[None]("lr.txt").read(), listdir("inbox"), stat("lr.txt").st_size, flush=True)
    subprocess.check_call("echo made %d > new; echo x > gone" % epoch, shell=True)
    rename("new", "kept%d" % epoch)
    remove("gone")
    mkdir("folder%d" % epoch)
    system("echo epoch %d >> log" % epoch)
"""
    inbox, learning_rate = starts.directory / "inbox", starts.directory / "lr.txt"
    inbox.mkdir()
    learning_rate.write_text("0.5")
    first = starts.run(script + DIES, early=early, code=9)
    assert first == ["0.5 0.5 [] 3"] * 3
    learning_rate.write_text("0.25")
    (inbox / "one").touch()
    later = starts.run(script.replace("range(3)", "range(4)"), early=early, resume_at=3)
    # It is answered as far as commands are answered.
    assert later == ["0.5 0.5 [] 3"] * 3 + ["0.25 0.25 ['one'] 4"]
    assert [starts.read(f"kept{epoch}") for epoch in range(4)] == [f"made {epoch}\n" for epoch in range(4)]
    assert starts.read("log") == "".join(f"epoch {epoch}\n" for epoch in range(4))


def test_what_the_kernel_draws_is_opened_for_the_script_and_os_open_of_it_is_a_cause(starts):
    script = """
import io, os, pathlib
opened = []
watched.drawn = lambda refuse, frame, path, mode, args, kwargs: opened.append((path, frame.f_code.co_filename)) or NotImplemented
calls.batches = calls.begun = {begun}
open(b"/dev/urandom", "rb", 0).close()
io.open("/dev/random", mode="rb").close()
pathlib.Path("/proc/sys/kernel/random/uuid").read_text()
open("/dev/null").close()
print([path for path, _ in opened], opened[0][1] == __import__("os").path.abspath("script.py"), calls.exactness.causes)
os.close(os.open("/dev/urandom", os.O_RDONLY))
calls.begun or made.begin()
print(calls.exactness.causes)
"""
    paths = ["/dev/urandom", "/dev/random", "/proc/sys/kernel/random/uuid"]
    cause = "the script reads random numbers of the kernel, which are others in a replay: `/dev/urandom` by `os.open`"
    for begun in (True, False):
        assert starts.run(script.format(begun=begun)) == [f"{paths} True []", str([cause])]


def test_a_file_that_a_command_makes_and_the_script_moves(starts):
    script = """
for epoch in range(4):
    call()
    subprocess.check_call("echo made %d > new" % epoch, shell=True)
    os.rename("new", "kept%d" % epoch)
    os.mkdir("folder%d" % epoch)
    if epoch == 1:
        os.remove("kept0")
print(open("kept1").read().strip(), sorted(os.listdir(".")))
"""
    starts.run(script.replace("range(4)", "range(3)") + DIES, code=9)
    expected = "['folder0', 'folder1', 'folder2', 'folder3', 'kept1', 'kept2', 'kept3', 'script.py', 'trial']"
    assert starts.run(script, resume_at=3) == ["made 1 " + expected]
    assert [starts.read(f"kept{epoch}") for epoch in (1, 2, 3)] == [f"made {epoch}\n" for epoch in (1, 2, 3)]


def test_polls_that_go_by_a_timer_are_answered_by_their_time(starts):
    script = """
answers = []
for batch in range(10):
    call()
    if batch % {every} == 0:
        answers.append((batch, os.path.exists("STOP")))
    if batch == 4 and not calls.resume_at:
        subprocess.run(["touch", "STOP"])
print(answers, flush=True)
"""
    starts.run(script.format(every=1) + DIES, code=9)
    (starts.directory / "STOP").unlink()
    assert starts.run(script.format(every=3).replace("batch == 4", "False"), resume_at=10) == [
        "[(0, False), (3, False), (6, True), (9, False)]"
    ]


def test_a_large_file_that_is_newer_than_the_trial_is_a_cause(starts):
    script = 'call()\nopen("large", "rb").close()\nopen("small", "rb").close()\nprint(calls.exactness.causes)\n'
    (starts.directory / "large").write_bytes(bytes(1 << 17))
    (starts.directory / "small").write_bytes(b"1")
    (causes,) = starts.run(script)
    assert "reads `large`, which was made or changed after the trial began" in causes


def test_a_large_file_of_before_is_no_cause(starts):
    (starts.directory / "large").write_bytes(bytes(1 << 17))
    os.utime(str(starts.directory / "large"), (1e9, 1e9))
    assert starts.run('call()\nopen("large", "rb").close()\nprint(calls.exactness.causes)\n') == ["[]"]


def test_many_equal_answers_take_one_line(starts):
    starts.run('for batch in range(1000):\n    call()\n    os.path.exists("STOP")\n')
    assert len(starts.read("trial/observations.jsonl").splitlines()) == 2


def test_what_a_library_makes_with_tempfile_and_removes_is_nobodys(starts):
    library = "import tempfile\nfile = tempfile.mkstemp()[1]\nos.remove(file)\n"
    library += "file = tempfile.mkstemp(dir='.')[1]\nos.replace(file, 'kept')"
    starts.run(f"open('own', 'w').close()\nexec(compile({library!r}, '/x/site-packages/library.py', 'exec'))\n")
    lines = [json.loads(line) for line in starts.read("trial/files.jsonl").splitlines()]
    assert [line for line in lines if "trial.json" not in str(line)] == [{"created": "../own"}, {"created": "../kept"}]


def test_behind_the_resume_point_the_world_is_asked(starts):
    script = "for epoch in range(3):\n    call()\n    print(os.path.exists('STOP'), flush=True)\n"
    assert starts.run(script + DIES, code=9) == ["False", "False", "False"]
    (starts.directory / "STOP").touch()
    assert starts.run(script, resume_at=2) == ["False", "True", "True"]
