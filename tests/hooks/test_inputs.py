"""Files that the script reads: noted once, and compared with those of the checkpoint."""
import importlib
import json
import os

import pytest

from py_hooks.script_io import inputs
from py_hooks.script_io.inputs import Inputs


@pytest.fixture
def stops(monkeypatch):
    """The ends of the process that were asked for: `(exit code, message)`."""
    stops = []
    monkeypatch.setattr(inputs.ending, "stop", lambda calls, code, message, hint: stops.append((code, message)))
    return stops


def read(found, path):
    """Makes the script read a file, in its first line."""
    exec(compile("found.reading(path)", "/home/somebody/train.py", "exec"), {"found": found, "path": str(path)})


def noted(*paths):
    """The contents of a checkpoint after these files were read."""
    found = Inputs()
    for path in paths:
        read(found, path)
    tensors, state = found.capture()
    assert tensors == []
    return json.loads(json.dumps(state))


@pytest.mark.parametrize("reads_first", [False, True], ids=["read in the trial", "read before the trial"])
def test_a_file_that_has_changed_stops_the_run(tmp_path, stops, reads_first):
    path = tmp_path / "data.npy"
    path.write_bytes(b"1" * 100)
    state = noted(path)
    path.write_bytes(b"1" * 99 + b"2")
    now = Inputs()
    if reads_first:
        read(now, path)
    now.begin(state)
    read(now, path)
    (code, message), = stops
    assert code == 76
    for part in ("data.npy", "train.py:1", "recorded: 100 bytes", "now: 100 bytes"):
        assert part in message


def test_the_same_file_may_be_another_copy(tmp_path, stops):
    path = tmp_path / "data.npy"
    path.write_bytes(b"1" * 100)
    state = noted(path)
    path.unlink()
    path.write_bytes(b"1" * 100)
    now = Inputs()
    now.begin(state)
    for each in (path, tmp_path / "not there", tmp_path):
        read(now, each)
    assert list(now.capture()[1].values()) == list(state.values())
    assert stops == []


@pytest.mark.parametrize("place", [0, -1, inputs.WHOLE_BYTES], ids=["first byte", "last byte", "a byte within"])
def test_of_a_large_file_both_ends_and_blocks_are_compared(tmp_path, place):
    path = tmp_path / "data.npy"
    content = bytearray(3 * inputs.WHOLE_BYTES)
    path.write_bytes(content)
    before = noted(path)
    if place == inputs.WHOLE_BYTES:
        # One of 64 blocks at even distances begins here.
        place = (len(content) - (1 << 14)) * 21 // 63
    content[place] = 1
    path.write_bytes(content)
    assert noted(path) != before


def test_the_notes_of_a_checkpoint_last_whatever_a_resumed_start_reads(tmp_path, stops):
    paths = [tmp_path / name for name in ("first", "second")]
    for path in paths:
        path.write_text("1")
    resumed = Inputs()
    resumed.begin(noted(*paths))
    read(resumed, paths[0])
    third = Inputs()
    third.begin(resumed.capture()[1])
    paths[1].write_text("2")
    read(third, paths[1])
    assert [code for code, _ in stops] == [76]


def test_a_pipe_is_not_touched(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    assert noted(tmp_path / "pipe") == {}


def test_a_name_may_hold_anything(tmp_path, stops):
    path = tmp_path / "d{1}%s.npy"
    path.write_text("1")
    state = noted(path)
    path.write_text("2")
    now = Inputs()
    now.begin(state)
    read(now, path)
    assert "d{1}%s.npy" in stops[0][1]


def test_caches_and_sources_are_left_out(tmp_path):
    for name in (".cache/index.json", "module.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
        assert noted(path) == {}
    assert noted("/etc/passwd", os.path.join(os.path.dirname(json.__file__), "not_a_source.txt")) == {}


@pytest.mark.parametrize(("folder", "is_noted"), [("site-packages", False), ("project", True)])
def test_what_the_import_of_a_library_reads_is_left_out(tmp_path, monkeypatch, folder, is_noted):
    data = tmp_path / "data.txt"
    data.write_text("1")
    name = f"reads_at_import_in_{folder[:4]}"
    module = tmp_path / folder / f"{name}.py"
    module.parent.mkdir()
    module.write_text(f"from py_hooks.script_io.inputs import Inputs\nfound = Inputs()\nfound.reading({str(data)!r})\n")
    monkeypatch.syspath_prepend(str(module.parent))
    assert bool(importlib.import_module(name).found.capture()[1]) == is_noted


def test_only_the_first_files_are_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_FILES", 3)
    paths = [tmp_path / str(number) for number in range(5)]
    for path in paths:
        path.write_text("1")
    assert len(noted(*paths)) == 3
