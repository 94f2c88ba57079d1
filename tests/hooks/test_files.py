"""The ledger of files: each start of a trial finds the same files as the first, and none is lost whenever it dies.

The script's files are made in a separate process, as in a start of a trial, because `Files` stays installed for
the rest of a process.
"""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import types
from pathlib import Path

import pytest

from py_hooks.script_io.files import Files
from py_hooks.script_io.ledger import Ledger

# A start of a trial: the actions of its first recorded call, then some lines of a script.
START = """
import atexit, os, posix, sys, types
from py_hooks.script_io import file_calls, files

class in_place:
    def __init__(self, original, module, before):
        self.original, self.before = original, before

    def __call__(self, *args, **kwargs):
        answer = self.before(*args, **kwargs) if self.before else NotImplemented
        return self.original(*args, **kwargs) if answer is NotImplemented else answer

directory = {directory!r}
trial = types.SimpleNamespace(directory=directory, seed=1)
files = files.Files(trial)
if os.path.isdir(directory):
    files.withdraw()
    atexit.register(files.put_back)
watched = file_calls.FileCalls(files)
watched.install(in_place)
# As `boot` does.
atexit.register(files.note_seen)
said = []
calls = types.SimpleNamespace(in_composite=False, begun=False, exactness=types.SimpleNamespace(refuse=said.append, causes=[]))
files.attach(calls)
watched.watch_copies()
{before}
if {begins}:
    posix.mkdir(directory) if not os.path.isdir(directory) else None
    files.begin()
    calls.begun = True
{script}
"""


@pytest.fixture
def start(tmp_path, native):
    """A function that runs lines of a script as a start of a trial in a directory."""

    def run(script, dies=False, before=False, begins=True):
        end = "\nos._exit(9)" if dies else ""
        texts = (script, end) if before else ("", script + end)
        lines = START.format(directory=str(tmp_path / "trial"), before=texts[0], script=texts[1], begins=begins)
        path = {"PYTHONPATH": ":".join([*sys.path, os.path.dirname(native.__file__)])}
        done = subprocess.run([sys.executable, "-c", lines], cwd=str(tmp_path), env=path, check=False)
        assert done.returncode == (9 if dies else 0)

    return run


def ledger(directory):
    return [json.loads(line) for line in (directory / "trial" / "files.jsonl").read_text().splitlines()]


def test_what_a_start_made_is_not_there_for_the_next(start, tmp_path):
    start("os.mkdir('runs'); open('runs/w.h5', 'w').write('1')")
    assert (tmp_path / "runs" / "w.h5").read_text() == "1"
    assert ledger(tmp_path) == [{"made": "../runs"}, {"created": "../runs/w.h5"}]
    start("assert not os.path.exists('runs'); os.mkdir('runs'); open('runs/w.h5', 'w').write('2')")
    assert (tmp_path / "runs" / "w.h5").read_text() == "2"


def test_what_a_start_does_not_make_again_is_put_back(start, tmp_path):
    start("open('w.h5', 'w').write('1')")
    start("assert not os.path.exists('w.h5')")
    assert (tmp_path / "w.h5").read_text() == "1"


def test_what_a_dead_start_withdrew_is_put_back_by_the_next(start, tmp_path):
    start("open('w.h5', 'w').write('1')")
    start("assert not os.path.exists('w.h5')", dies=True)
    assert not (tmp_path / "w.h5").exists()
    start("assert not os.path.exists('w.h5')", dies=True)
    start("")
    assert (tmp_path / "w.h5").read_text() == "1"


def test_what_lay_in_a_folder_that_is_gone_is_put_back_with_it(start, tmp_path):
    start("os.mkdir('runs'); open('runs/w.h5', 'w').write('1')")
    start("assert not os.path.exists('runs')", dies=True)
    start("assert not os.path.exists('runs')", dies=True)
    start("")
    assert (tmp_path / "runs" / "w.h5").read_text() == "1"


def test_what_the_replay_made_and_removed_does_not_come_back(start, tmp_path):
    start("open('temporary', 'w').write('1')", dies=True)
    start("open('temporary', 'w').write('1'); os.remove('temporary')")
    assert not (tmp_path / "temporary").exists()


def test_a_copy_of_a_trial_and_its_files_lets_the_original_alone(start, tmp_path):
    start(f"open('w.h5', 'w').write('1'); open(os.path.join({str(tmp_path.parent)!r}, 'far'), 'w').write('1')")
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(str(tmp_path / "trial"), str(copy / "trial"))
    shutil.copy(str(tmp_path / "w.h5"), str(copy / "w.h5"))
    assert [list(entry.values())[0] for entry in ledger(tmp_path)] == ["../w.h5", str(tmp_path.parent / "far")]
    copied = Ledger(str(copy / "trial"), str(copy))
    copied.withdraw()
    assert (tmp_path / "w.h5").exists()
    assert not (copy / "w.h5").exists()
    # Files that the original made elsewhere belong to it, and are named.
    assert copied.foreign() == [str(tmp_path.parent / "far")]
    assert (tmp_path.parent / "far").exists()
    start(f"assert not os.path.exists({str(tmp_path.parent / 'far')!r})")
    assert (tmp_path.parent / "far").read_text() == "1"


@pytest.fixture
def foreign(tmp_path):
    """A function that makes a trial of somebody else from the lines of its journal, and makes files of the user."""
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (home / "key").write_text("secret")
    (home / "folder" / "inner").write_text("precious")
    (tmp_path / "trial" / "aside").mkdir(parents=True)
    (tmp_path / "trial" / "aside" / "rules-2").write_text("")
    (tmp_path / "trial" / "originals").mkdir()
    for number in range(9):
        (tmp_path / "trial" / "originals" / str(number)).write_text("evil")
        (tmp_path / "trial" / "aside" / str(number)).write_text("evil")

    def make(*lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "trial" / "files.jsonl").write_text(text)
        return home

    yield make
    found = {str(path.relative_to(home)): path.is_file() and path.read_text() for path in home.rglob("*")}
    assert found == {"key": "secret", "folder": False, os.path.join("folder", "inner"): "precious"}


WAYS_OUT = {
    "absolute": lambda home: str(home) + "/",
    "dots": lambda home: "../sub/../home/",
    "link": lambda home: "../work/link/",
}


@pytest.mark.parametrize("way", sorted(WAYS_OUT))
def test_files_of_others_are_left_alone_whatever_a_foreign_journal_says(foreign, tmp_path, way):
    out = WAYS_OUT[way](tmp_path / "home")
    home = foreign(
        {"created": out + "key"},
        {"overwritten": out + "key"},
        {"appended": out + "key", "bytes": 0},
        {"changed": out + "key", "mode": 0o4777, "times": [0, 0]},
        {"removed": out + "new"},
        {"created": out + "other"},
        {"logged": out + "key"},
        {"removed": out + "folder"},
        {"made": out + "folder"},
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(str(home))
    mode = (home / "key").stat().st_mode
    ledger = Ledger(str(tmp_path / "trial"), str(tmp_path / "work"))
    ledger.withdraw()
    ledger.put_back()
    ledger.restore_logged({str(home / "key"): 0})
    assert (home / "key").stat().st_mode == mode
    named = {os.path.realpath(path) for path in ledger.foreign()}
    assert named == {str(home / name) for name in ("key", "new", "other", "folder")}
    assert ledger.lines() == []
    assert not ledger.may_touch(str(home / "key"))


def test_a_foreign_line_does_not_count_behind_one_of_our_own(foreign, start, tmp_path):
    home = foreign({"created": str(tmp_path.parent / "foreign")})
    (tmp_path.parent / "foreign").write_text("of others")
    (home / "ours").mkdir()
    ledger = Ledger(str(tmp_path / "trial"), str(home / "ours"))
    ledger.open()
    ledger.add("created", str(tmp_path / "far"))
    (tmp_path / "far").write_text("1")
    ledger = Ledger(str(tmp_path / "trial"), str(home / "ours"))
    ledger.withdraw()
    assert not (tmp_path / "far").exists()
    assert (tmp_path.parent / "foreign").read_text() == "of others"
    (home / "ours").rmdir()


def test_what_shows_where_a_journal_was_written_cannot_be_copied(foreign, tmp_path):
    home = foreign()
    ledger = Ledger(str(tmp_path / "trial"), str(tmp_path / "trial"))
    ledger.open()
    ledger.add("created", str(home / "key"))
    assert Ledger(str(tmp_path / "trial"), str(tmp_path / "trial")).foreign() == []
    for copy in (shutil.copytree, lambda one, two: subprocess.check_call(["cp", "-a", one, two])):
        copy(str(tmp_path / "trial"), str(tmp_path / "copy"))
        assert Ledger(str(tmp_path / "copy"), str(tmp_path / "copy")).foreign() == [str(home / "key")]
        shutil.rmtree(str(tmp_path / "copy"))
    # A trial that is renamed remains the same trial.
    (tmp_path / "trial").rename(tmp_path / "renamed")
    assert Ledger(str(tmp_path / "renamed"), str(tmp_path / "renamed")).foreign() == []


@pytest.mark.parametrize("kept", ["home", "../home/folder", 7, None, ".pedl-kept-1"])
def test_no_folder_of_others_is_taken_for_what_the_trial_has_kept(foreign, tmp_path, kept):
    kept = str(tmp_path / kept) if isinstance(kept, str) else kept
    foreign({"created": "../x", "kept": kept})
    if kept == str(tmp_path / ".pedl-kept-1"):
        (tmp_path / ".pedl-kept-1").symlink_to(str(tmp_path / "home"))
    shutil.rmtree(str(tmp_path / "trial" / "originals"))
    Ledger(str(tmp_path / "trial"), str(tmp_path)).withdraw()
    assert not (tmp_path / "trial" / "originals").exists()


@pytest.mark.parametrize("folder", ["aside", "originals"])
def test_nothing_is_put_aside_through_a_link(foreign, tmp_path, folder):
    home = foreign({"created": "../key"})
    (tmp_path / "key").write_text("1")
    shutil.rmtree(str(tmp_path / "trial" / folder))
    (tmp_path / "trial" / folder).symlink_to(str(home))
    with pytest.raises(OSError, match="it is a link"):
        Ledger(str(tmp_path / "trial"), str(tmp_path)).withdraw()
    assert (tmp_path / "key").exists()


def test_lines_that_nobody_writes_are_none(foreign, tmp_path):
    (tmp_path / "file").write_text("12345")
    foreign(
        {"appended": "../file"}, {"appended": "../file", "bytes": -1}, {"appended": "../file", "bytes": 10 ** 30},
        {"appended": "../file", "bytes": True}, {"appended": "../file", "bytes": "1"}, {"created": "../a\0b"},
        {"created": ["x"]},
        {"changed": "../file"}, {"changed": "../file", "mode": 0o10000, "times": [0, 0]},
        {"changed": "../file", "mode": 0o600, "times": [10 ** 30, 0]}, {"changed": "../file", "mode": 0o600, "times": [0.5, 0]},
    )  # fmt: skip
    (tmp_path / "trial" / "files_seen.json").write_text('{"0": 7, "1": ["x"], "2": null}')
    ledger = Ledger(str(tmp_path / "trial"), str(tmp_path))
    ledger.withdraw()
    ledger.put_back()
    assert ledger.lines() == []
    assert (tmp_path / "file").read_text() == "12345"


def test_a_folder_with_what_others_left_in_it_can_be_made_again(start, tmp_path):
    start("os.makedirs('runs/1'); os.system('echo 1 > runs/1/of_a_child')")
    start("os.makedirs('runs/1'); assert os.listdir('runs/1') == ['of_a_child']")
    start("os.makedirs('runs/1'); os.makedirs('runs/1', exist_ok=True)")
    start(
        "os.mkdir('runs'); os.mkdir('runs/1')\n"
        "try: os.mkdir('runs/1')\n"
        "except FileExistsError: open('refused', 'w').close()"
    )
    assert (tmp_path / "refused").exists()


def test_what_is_opened_by_its_descriptor_is_noted_as_what_open_opens(start, tmp_path):
    (tmp_path / "log.csv").write_text("before\n")
    (tmp_path / "emptied").write_text("before")
    (tmp_path / "held").write_text("")
    script = """
os.close(os.open("lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
os.write(os.open("log.csv", os.O_WRONLY | os.O_APPEND), b"line\\n")
assert os.read(os.open("emptied", os.O_RDONLY), 9) == b"before"
os.write(os.open("emptied", os.O_WRONLY | os.O_TRUNC | os.O_APPEND), b"new")
try: os.open("held", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
except FileExistsError: os.open("held", os.O_RDWR)
"""
    start(script)
    names = [next(iter(entry.items())) for entry in ledger(tmp_path)]
    expected = [("created", "../lock"), ("appended", "../log.csv"), ("overwritten", "../emptied"), ("overwritten", "../held")]
    assert names == expected
    start(script)
    assert (tmp_path / "log.csv").read_text() == "before\nline\n"
    assert (tmp_path / "emptied").read_text() == "new"


def test_a_new_database_is_noted_with_what_stands_beside_it(start, tmp_path):
    script = """
import sqlite3
watched.watch_sqlite(sqlite3, in_place)
for name, options in (("new.db", {}), ("file:other%20one.db?mode=rwc", {"uri": True}), (":memory:", {})):
    for _ in range(2):
        database = sqlite3.connect(name, **options)
        database.execute("create table if not exists rows (number int)")
    database.execute("insert into rows values (1)")
    database.commit()
    assert database.execute("select count(*) from rows").fetchall() == [(1,)], name
    database.close()
"""
    start(script, dies=True)
    start(script)
    assert [path.name for path in sorted(tmp_path.glob("*.db*"))] == ["new.db", "other one.db"]
    endings = ("", "-journal", "-wal", "-shm")
    expected = ["../" + name + ending for name in ("new.db", "other one.db") for ending in endings]
    assert [entry["created"] for entry in ledger(tmp_path)] == expected


def test_a_database_that_was_there_is_let_alone_and_named(start, tmp_path):
    with contextlib.closing(sqlite3.connect(str(tmp_path / "old.db"))) as database:
        database.execute("create table rows (number int)")
    script = """
import sqlite3
watched.watch_sqlite(sqlite3, in_place)
said = []
exactness = types.SimpleNamespace(refuse=said.append, causes=[])
files.calls = types.SimpleNamespace(in_composite=False, begun=True, exactness=exactness)
sqlite3.connect("file:old.db?mode=ro", uri=True)
assert said == []
for _ in range(2):
    database = sqlite3.connect("old.db")
    database.execute("insert into rows values (1)")
    database.commit()
(cause,) = said
assert cause == "the script opens the database `old.db`, into which a replay writes again", cause
"""
    start(script)
    start(script)
    assert ledger(tmp_path) == []
    with contextlib.closing(sqlite3.connect(str(tmp_path / "old.db"))) as database:
        assert database.execute("select count(*) from rows").fetchall() == [(4,)]


def test_what_was_there_before_the_trial_stays(start, tmp_path):
    (tmp_path / "w.h5").write_text("0")
    start("open('w.h5', 'w').write('1')")
    start("assert open('w.h5').read() == '1'")
    assert ledger(tmp_path) == []


def test_what_was_appended_is_cut_off(start, tmp_path):
    (tmp_path / "log.csv").write_text("before\n")
    start("open('log.csv', 'a').write('first\\n')")
    start("assert open('log.csv').read() == 'before\\n'; open('log.csv', 'a').write('first\\nsecond\\n')")
    assert (tmp_path / "log.csv").read_text() == "before\nfirst\nsecond\n"


def test_what_was_appended_and_is_not_again_is_put_back(start, tmp_path):
    (tmp_path / "log.csv").write_text("before\n")
    start("open('log.csv', 'a').write('first\\nsecond\\n')")
    start("assert open('log.csv').read() == 'before\\n'", dies=True)
    assert (tmp_path / "log.csv").read_text() == "before\n"
    start("assert open('log.csv').read() == 'before\\n'; open('log.csv', 'a').write('first\\n')", dies=True)
    start("assert open('log.csv').read() == 'before\\n'")
    assert (tmp_path / "log.csv").read_text() == "before\nfirst\nsecond\n"


def test_a_torn_line_of_the_ledger_is_none(start, tmp_path):
    start("open('w.h5', 'w').write('1')")
    with open(str(tmp_path / "trial" / "files.jsonl"), "a") as file:
        file.write('{"created": "' + str(tmp_path / "other"))
    (tmp_path / "other").write_text("not of the trial")
    start("open('next', 'w').write('1')")
    assert (tmp_path / "other").read_text() == "not of the trial"
    start("assert not os.path.exists('next')")
    assert (tmp_path / "next").read_text() == "1"


def test_what_was_read_and_then_overwritten_is_as_it_was(start, tmp_path):
    state = tmp_path / "state.json"
    state.write_text("0")
    start("number = int(open('state.json').read()); open('state.json', 'w').write(str(number + 1))")
    assert state.read_text() == "1"
    start("assert open('state.json').read() == '0'", dies=True)
    start("assert open('state.json').read() == '0'")
    assert state.read_text() == "1"
    start("assert open('state.json').read() == '0'; open('state.json', 'w').write('2')")
    assert state.read_text() == "2"


@pytest.mark.parametrize("function", ["rename", "replace"])
def test_what_takes_the_place_of_something_is_seen(start, tmp_path, function):
    state = tmp_path / "state.json"
    state.write_text("0")
    line = "open('new', 'w').write('1'); os.{}('new', '{}')"
    start("open('state.json').read(); " + line.format(function, "state.json"))
    start(line.format(function, "other.json"))
    start("assert open('state.json').read() == '0'; assert not os.path.exists('other.json')")
    assert (state.read_text(), (tmp_path / "other.json").read_text()) == ("1", "1")


def test_a_download_is_not_made_twice(start, tmp_path):
    start("os.makedirs('.keras/datasets'); open('.keras/datasets/mnist.npz', 'w').write('1'); open('.state', 'w')")
    start("assert os.path.exists('.keras/datasets/mnist.npz') and not os.path.exists('.state')")


def test_wrong_arguments_are_told_by_the_function_itself(start, tmp_path):
    start(
        "for call in (open, os.mkdir, os.rename):\n"
        "    try:\n        call()\n    except TypeError as error:\n        assert 'required' in str(error), error\n"
        "    else:\n        raise AssertionError(call)\n"
    )


def test_files_that_grow_come_back_as_long_as_they_were_at_the_checkpoint(start, tmp_path):
    grow = "files.logging(os.path.abspath({0!r})); io.FileIO({0!r}, 'w').write({1!r})\n"
    start("import io\n" + grow.format("first", b"1234") + grow.format("later", b"56"))
    assert ledger(tmp_path) == [{"logged": "../first"}, {"logged": "../later"}]
    gone = "assert not os.path.exists('first') and not os.path.exists('later')\n"
    resume = gone + "assert files.restore_logged({'../first': 3}) == [os.path.abspath('first')]\n"
    start(gone, dies=True)
    start(resume + "import io\n" + grow.format("third", b"78"), dies=True)
    assert (tmp_path / "first").read_bytes() == b"123"
    # The next start resumes from the same checkpoint: files that were begun since are not put back.
    start(resume)
    assert (tmp_path / "first").read_bytes() == b"123"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "trial"]


def test_files_that_grow_are_put_back_whole_where_no_resume_point_is_reached(start, tmp_path):
    start("import io; files.logging(os.path.abspath('first')); io.FileIO('first', 'w').write(b'1234')", dies=True)
    start("assert not os.path.exists('first')", dies=True)
    start("assert not os.path.exists('first')")
    assert (tmp_path / "first").read_bytes() == b"1234"


def test_files_that_a_recorded_call_saved_belong_to_the_checkpoint(tmp_path, monkeypatch):
    guarded = lambda function, *arguments: function(*arguments)  # noqa: E731
    monkeypatch.chdir(tmp_path)
    restored = []

    def restore(path):
        restored.append(path)
        return True

    files = Files(types.SimpleNamespace(directory=str(tmp_path / "trial"), restore_file=restore))
    files.attach(types.SimpleNamespace(in_composite=False, begun=False, guarded=guarded))
    files.saving(Path("best.h5"))
    assert files.saved.paths() == []
    Path("best.h5").write_text("1")
    assert files.saved.paths() == [str(tmp_path / "best.h5")]
    files.saved.replace("best.h5")
    assert restored == [str(tmp_path / "best.h5")]


INBOX = """
for name in sorted(os.listdir('inbox')):
    with open('inbox/' + name) as file: rows = file.read()
    os.makedirs('done', exist_ok=True)
    os.rename('inbox/' + name, 'done/' + name)
"""


def test_what_was_moved_before_the_trial_began_is_there_again(start, tmp_path):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "1.csv").write_text("rows")
    (tmp_path / "old").symlink_to("inbox")
    script = INBOX + "assert rows == 'rows'\nos.remove('old')\nos.link('done/1.csv', 'first')\n"
    for number in range(3):
        start(script + "open('first', 'a').write('+')", before=True, dies=number < 2)
    assert (tmp_path / "done" / "1.csv").read_text() == "rows+"
    assert not os.path.lexists(str(tmp_path / "old"))
    assert os.listdir(str(tmp_path / "inbox")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "first", "inbox", "trial"]


def test_a_script_that_trains_nothing_leaves_nothing_of_ours(start, tmp_path):
    (tmp_path / "stale").write_text("1")
    start("os.remove('stale')", begins=False)
    assert os.listdir(str(tmp_path)) == []


def test_what_a_replay_does_not_remove_again_is_gone_again_behind_it(start, tmp_path):
    (tmp_path / "stale").write_text("1")
    (tmp_path / "folder").mkdir()
    start("os.remove('stale'); os.rmdir('folder'); os.symlink('nothing', 'link')", dies=True)
    gone = "assert open('stale').read() == '1' and os.path.isdir('folder') and not os.path.lexists('link')"
    start(gone, dies=True)
    start(gone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "trial"]


def test_what_others_change_between_two_starts_is_left_as_it_is(start, tmp_path):
    (tmp_path / "inbox").write_text("1")
    script = "open('mine', 'w').write('1'); open('log', 'a').write('1'); os.path.exists('inbox') and os.remove('inbox')"
    start(script)
    (tmp_path / "mine").write_text("of the user")
    (tmp_path / "inbox").write_text("a new one")
    (tmp_path / "log").touch()
    start(
        "assert open('mine').read() == 'of the user' and open('inbox').read() == 'a new one'\n"
        "assert not os.path.exists('log')\n"
        "assert sorted(said) == ['`%s` was changed by something else after the process had ended, and is left as it was'"
        " % name for name in ('inbox', 'mine')], said"
    )
    assert (tmp_path / "mine").read_text() == "of the user"
    assert (tmp_path / "inbox").read_text() == "a new one"
    assert (tmp_path / "log").read_text() == "1"


def test_what_cannot_be_kept_is_named(start, tmp_path):
    (tmp_path / "large").write_bytes(bytes(100))
    (tmp_path / "data").write_bytes(bytes(100))
    start(
        "from py_hooks.script_io import ledger\nledger.MAX_REMOVED_BYTES = ledger.MAX_ORIGINAL_BYTES = 99\n"
        "open('data', 'r+').close(); os.remove('large')\n"
        "assert said == ['the script overwrites `data`, which was there before and holds more than 0 MiB',"
        " 'the script removes `large`, which was there before (more than 0 GiB)'], said"
    )


def test_a_journal_of_an_older_version_is_read(start, tmp_path):
    (tmp_path / "trial" / "aside").mkdir(parents=True)
    (tmp_path / "trial" / "originals").mkdir()
    lines = [{"created": "../w.h5"}, {"appended": "../log", "bytes": 1}, {"overwritten": "../state"}]
    lines.append({"appended": "../cut", "bytes": 1})
    (tmp_path / "trial" / "files.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "trial" / "originals" / "2").write_text("0")
    # The file that is cut was withdrawn; the file aside of the log is old.
    (tmp_path / "trial" / "aside" / "1").write_text("2")
    (tmp_path / "trial" / "aside" / "3").write_text("2")
    for name, text in (("w.h5", "1"), ("log", "123"), ("state", "1"), ("cut", "1")):
        (tmp_path / name).write_text(text)
    begun = "assert not os.path.exists('w.h5') and [open(name).read() for name in ('log', 'state', 'cut')] == ['1', '0', '1']"
    start(begun, dies=True)
    start(begun)
    assert [(tmp_path / name).read_text() for name in ("w.h5", "log", "state", "cut")] == ["1", "123", "1", "12"]


def test_names_of_temporary_files_are_those_of_the_first_time(start, tmp_path):
    script = (
        "import tempfile\nwatched.watch_tempfile(tempfile)\n"
        "open('names', 'a').write(tempfile.mkdtemp(dir='.') + tempfile.mkstemp(dir='.')[1] + '\\n')"
    )
    start(script, dies=True)
    names = (tmp_path / "names").read_text()
    start(script)
    assert (tmp_path / "names").read_text() == names
    assert len(list(tmp_path.iterdir())) == 4


def test_what_failed_changed_nothing(start, tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "file").write_text("1")
    script = """
import shutil
for call in (lambda: os.unlink('in'), lambda: os.rename('in', 'file')):
    try: call()
    except OSError: pass
with open('file') as file: assert file.read() == '1'
open('file', 'w').write('2')
shutil.rmtree('in')
"""
    start(script, dies=True)
    start(script)
    assert (tmp_path / "file").read_text() == "2"
    assert not (tmp_path / "in").exists()


def test_a_cache_that_other_code_fills_is_withdrawn_and_one_of_before_is_not(start, tmp_path):
    other = tmp_path / "rows.csv"
    other.write_text("of the user")
    start("files.caching('rows'); os.system('touch rows_0.lockfile rows.index')")
    assert ledger(tmp_path) == [{"begun": "../rows"}]
    start("assert not os.path.exists('rows.index'); files.caching('rows'); os.system('touch rows.index')")
    assert sorted(path.name for path in tmp_path.glob("rows*")) == ["rows.csv", "rows.index"]
    start("")
    assert (tmp_path / "rows.index").exists()
    assert other.read_text() == "of the user"
    (tmp_path / "before.index").touch()
    start("files.caching('before')")
    start("assert os.path.exists('before.index')")
