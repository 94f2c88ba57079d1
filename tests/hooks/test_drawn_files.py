"""A replay reads the same from `/dev/urandom` and similar files, in every way of reading; they behave like any file."""

import io
import json
import os
import re
import sys
import types

import pytest

from py_hooks.random_numbers import entropy
from py_hooks.script_io import clock as clocks
from py_hooks.script_io import drawn_files

pytestmark = pytest.mark.stack("plain", "plain-python37")

UUID = drawn_files.UUID


class Start:
    """A start of a trial, with the files that a script opens in it."""

    def __init__(self, directory, state=None):
        self.clock = clocks.Clock(state, entropy.Entropy(str(directory), state is not None, os.urandom))
        self.causes = []

    def open(self, path, mode="r", *args, **kwargs):
        frame = sys._getframe().f_back
        answer = drawn_files.opened(self.clock, self.causes.append, frame, path, mode, args, kwargs)
        return open(path, mode, *args, **kwargs) if answer is NotImplemented else answer

    def begun(self):
        """Makes the trial begin; returns what a checkpoint contains of it."""
        self.clock.calls = types.SimpleNamespace(begun=True, position=lambda: 0)
        self.clock.begin(False)
        return json.loads(json.dumps(self.clock.capture()[1]))


@pytest.fixture(autouse=True)
def _here_is_the_script(monkeypatch):
    # These tests are below the folder of pedl, whose files do not count as the user's.
    monkeypatch.setattr(clocks.Clock, "is_asked_by_user", lambda clock, frame: True)


def read(start):
    """The data that each way of reading returns, and the kind of file."""
    found = []
    with start.open("/dev/urandom", "rb") as file:
        found += [file.read(4), file.read(10_000), file.peek(1)[:1], file.readinto(bytearray(3)), file.readline()]
    with start.open("/dev/random", "rb", buffering=0) as file:
        found += [file.read(5), file.readline(), type(file).__mro__[-4:]]
    with start.open("/dev/urandom", encoding="latin-1", newline="") as file:
        found += [file.read(7), file.encoding, file.mode, file.name]
    for options in ({}, {"mode": "rb"}, {"mode": "rb", "buffering": 0}, {"mode": "rt", "buffering": 1}):
        with start.open(UUID, **options) as file:
            found.append(file.read())
            file.seek(0)
            found += [file.readline(), file.read()]
    with start.open(UUID) as file:
        found.append(list(file))
    return found


def test_it_is_read_again_in_a_replay(tmp_path):
    first = Start(tmp_path)
    found = read(first)
    assert len(found[1]) == 10_000
    texts = [one for one in found if isinstance(one, (str, bytes)) and len(one) > 20]
    assert len(texts) >= 10
    assert len(set(texts)) == len(texts)
    state = first.begun()
    assert read(Start(tmp_path, state)) == found
    assert first.causes == []
    other = read(Start(tmp_path / "other"))
    assert [type(one) for one in other] == [type(one) for one in found]
    assert other[0] != found[0]


def test_a_uuid_is_in_the_kernels_format(tmp_path):
    start = Start(tmp_path)
    for _ in range(50):
        with start.open(UUID) as file:
            text = file.read()
        assert re.match(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n\Z", text)


@pytest.mark.parametrize("path", ["/dev/urandom", UUID])
@pytest.mark.parametrize("options", [{"mode": "rb"}, {"mode": "rb", "buffering": 0}, {"mode": "r", "encoding": "latin-1"}])
def test_it_is_a_file_as_python_opens_it(tmp_path, path, options):
    with Start(tmp_path).open(path, **options) as file, open(path, **options) as real:
        for ask in ("readable", "writable", "seekable", "isatty", "tell"):
            assert getattr(file, ask)() == getattr(real, ask)()
        assert (file.name, file.mode, file.closed) == (real.name, real.mode, real.closed)
        assert isinstance(file, type(real))
        assert len(file.read(9)) == len(real.read(9))
        assert file.tell() == real.tell() if path == UUID else True
    for each in (file, real):
        with pytest.raises(ValueError, match="closed"):
            each.read(1)


def test_what_is_not_supported_is_a_cause(tmp_path):
    start = Start(tmp_path)
    with start.open("/dev/urandom", "rb") as file:
        assert start.causes == []
        assert len(os.read(file.fileno(), 3)) == 3
    with start.open("/dev/urandom", "r+b", buffering=0) as file:
        assert len(file.read(3)) == 3
    assert start.causes == ["`/dev/urandom` by its descriptor", "`/dev/urandom`, which it may write to, too"]


WRONG = [("rx", {}), ("rb", {"encoding": "utf-8"}), ("r", {"buffering": 0}), ("r", {"encoding": "none"}), ("rb", {"other": 1})]


@pytest.mark.parametrize(("mode", "options"), WRONG, ids=repr)
def test_what_is_wrong_is_pythons_error(tmp_path, mode, options):
    with pytest.raises((ValueError, TypeError, LookupError)):
        open("/dev/urandom", mode, **options).close()
    assert drawn_files.opened(Start(tmp_path).clock, None, sys._getframe(), "/dev/urandom", mode, (), options) is NotImplemented


def test_what_nobody_reads_or_a_library_does_is_let_alone(tmp_path, monkeypatch):
    start = Start(tmp_path)
    with start.open("/dev/urandom", "wb", buffering=0) as file:
        assert type(file) is io.FileIO
    monkeypatch.setattr(clocks.Clock, "is_asked_by_user", lambda clock, frame: False)
    with start.open("/dev/urandom", "rb", buffering=0) as file:
        assert type(file) is io.FileIO
    assert start.causes == []


