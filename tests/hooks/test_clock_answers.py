"""The clock of a replay: it repeats the answers by line, call and number, and continues if there is none to repeat."""

import json
import os
import random
import secrets
import sys
import types
import uuid

import pytest

from py_hooks import places
from py_hooks.random_numbers import entropy
from py_hooks.script_io import clock as clocks

_urandom = os.urandom


@pytest.fixture
def real(monkeypatch):
    """A substitute for the real clock, which a test can set."""
    real = types.SimpleNamespace(now=1000)
    monkeypatch.setattr(clocks, "_now", lambda: real.now)
    return real


def ask(clock):
    return clock.now(sys._getframe())


def recorded(clock):
    """A clock that replays the answers of another one, by way of a checkpoint."""
    return clocks.Clock(json.loads(json.dumps(clock.capture()[1])))


def calls(position, begun=True):
    return types.SimpleNamespace(begun=begun, position=lambda: position)


def test_a_replay_is_told_what_was_told_and_then_goes_on_at_the_pace_of_the_real_clock(real):
    first = clocks.Clock(None)
    for real.now in (1000, 1500, 1400):
        ask(first)
    replay = recorded(first)
    real.now = 9000
    assert [ask(replay) for _ in range(3)] == [1000, 1500, 1400]
    real.now = 9100
    assert ask(replay) == 1500
    real.now = 8000
    assert ask(replay) == 1400


def test_after_the_replay_the_clock_is_the_real_one_and_the_next_replay_has_all(real):
    first = clocks.Clock(None)
    ask(first)
    second = recorded(first)
    real.now = 5000
    assert ask(second) == 1000
    second.restore({}, first.capture()[1])
    assert ask(second) == 5000
    third = recorded(second)
    assert sum(len(values) for _, values in third.capture()[1].values()) == 2


def test_what_a_muted_call_would_have_asked_leaves_no_gap(real):
    first = clocks.Clock(None)
    for position, real.now in ((1, 10), (1, 11), (2, 20), (3, 30), (3, 31)):
        first.calls = calls(position)
        ask(first)
    replay = recorded(first)
    told = []
    for position in (1, 3, 3):
        replay.calls = calls(position)
        told.append(ask(replay))
    assert told == [10, 30, 31]


def test_so_many_answers_are_kept_and_no_more(real, monkeypatch):
    monkeypatch.setattr(clocks, "MAX_ANSWERS", 3)
    first = clocks.Clock(None)
    told = []
    for real.now in range(1000, 1010):
        told.append(ask(first))
    assert told == list(range(1000, 1010))
    replay = recorded(first)
    real.now = 7000
    assert [ask(replay) for _ in range(4)] == [1000, 1001, 1002, 1002]


def test_where_no_checkpoint_can_be_resumed_what_was_told_is_kept_and_the_rest_forgotten(real):
    first = clocks.Clock(None)
    for real.now in (1000, 2000):
        ask(first)
    second = recorded(first)
    assert ask(second) == 1000
    second.begin(is_replay=False)
    real.now = 6000
    assert ask(second) == 6000
    third = recorded(second)
    assert [ask(third), ask(third)] == [1000, 6000]


# -- random bytes of the operating system ------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Makes clocks of one trial directory, and draws from them: `asked(clock)`."""
    # These tests are below the folder of pedl, whose files do not count as the user's.
    monkeypatch.setattr(clocks.Clock, "is_asked_by_user", lambda clock, frame: True)
    unpatched = uuid.uuid1, uuid.uuid4
    yield lambda clock: _draw(clock, monkeypatch)
    uuid.uuid1, uuid.uuid4 = unpatched


def _draw(clock, monkeypatch):
    before = clocks.drawn(clock)
    monkeypatch.setattr(random, "_urandom", lambda size: _or(before(size), _urandom, size))
    clocks._in_uuid(clock, uuid)
    drawn = [before(5), before(5), random.SystemRandom().getrandbits(70), secrets.choice("abcdefgh"), before(100_000)]
    return drawn + [uuid.uuid4() for _ in range(2)] + [before(16) for _ in range(3)]


def clock_of(directory, state=None):
    return clocks.Clock(state, entropy.Entropy(str(directory), state is not None, _urandom))


def test_what_the_operating_system_drew_is_drawn_again_in_a_replay(asked, tmp_path):
    first = clock_of(tmp_path)
    drawn = asked(first)
    assert drawn[0] != drawn[1]
    assert len(drawn[4]) == 100_000
    assert len(set(map(str, drawn))) == len(drawn)
    assert [number.version for number in drawn[5:7]] == [4, 4]
    assert asked(clock_of(tmp_path)) != drawn
    first.calls = calls(0)
    first.begin(False)
    state = json.loads(json.dumps(first.capture()[1]))
    replay = clock_of(tmp_path, state)
    assert asked(replay) == drawn
    # After the replay it is a stream that continues, and the next replay repeats it as well.
    replay.restore({}, state)
    replay.calls = first.calls = calls(7)
    assert asked(replay) == asked(first)
    before = clocks.drawn(first)
    assert [before(size) for size in (0, "5")] == [NotImplemented] * 2


def test_nothing_drawn_is_readable_by_others(asked, tmp_path):
    clock = clock_of(tmp_path)
    drawn = asked(clock)
    assert list(tmp_path.iterdir()) == [], "there is no trial as yet"
    clock.calls = calls(0)
    clock.begin(False)
    (key,) = tmp_path.iterdir()
    assert key.name == "entropy.key"
    assert key.stat().st_mode & 0o7777 == 0o600
    state = json.dumps(clock.capture()[1])
    numbers = [value if isinstance(value, int) else int.from_bytes(value, "little") for value in (drawn[0], drawn[2])]
    for secret in [key.read_bytes().hex(), str(int.from_bytes(key.read_bytes(), "little")), *map(str, numbers)]:
        assert secret not in state
    assert len(state) < 200


def test_the_key_is_kept_before_the_first_draw_of_a_trial_returns(asked, tmp_path):
    clock = clock_of(tmp_path)
    clock.calls = calls(3)
    clock.begin(False)
    assert list(tmp_path.iterdir()) == [], "nothing was drawn"
    assert clock.capture() == ([], {})
    asked(clock)
    assert [path.name for path in tmp_path.iterdir()] == ["entropy.key"]


@pytest.mark.parametrize("key", [None, b"", b"k" * 32, b"k" * 33])
def test_without_its_key_a_trial_does_not_go_on(asked, tmp_path, key):
    clock = clock_of(tmp_path)
    clock.calls = calls(0)
    asked(clock)
    path = tmp_path / "entropy.key"
    path.unlink()
    if key is not None:
        path.write_bytes(key)
    with pytest.raises(entropy.KeyLost) as refused:
        clock_of(tmp_path, clock.capture()[1])
    assert refused.value.exit_code == 65
    assert str(path) in str(refused.value)


def test_a_trial_of_an_earlier_version_is_told_what_it_has_noted(asked, tmp_path):
    recording = clock_of(tmp_path)

    def draw(clock):
        return clocks.drawn(clock)(5)

    name = f"{places.display_path(__file__)}:{draw.__code__.co_firstlineno + 1} urandom(5)"
    recording._named[name] = line = clocks._Line()
    line.note(0, int.from_bytes(b"noted", "little"))
    replay = clock_of(tmp_path, recording.capture()[1])
    assert draw(replay) == b"noted"
    assert draw(replay) != b"noted"


def test_a_key_that_cannot_be_kept_is_a_cause(asked, tmp_path):
    said, clock = [], clock_of(tmp_path / "missing")
    clock.calls = calls(0)
    clock.calls.exactness = types.SimpleNamespace(refuse=said.append)
    asked(clock)
    assert said[0].startswith("what the script draws from the operating system cannot be kept: ")


def _or(answer, original, size):
    return original(size) if answer is NotImplemented else answer
