"""The clock of a replay: told again by line, call and number, and going on from there where there is nothing to tell."""

import json
import os
import random
import secrets
import sys
import types

import pytest

from py_hooks.advice import clock as clocks

_urandom = os.urandom


@pytest.fixture
def real(monkeypatch):
    """The real clock, to be set."""
    real = types.SimpleNamespace(now=1000)
    monkeypatch.setattr(clocks, "_now", lambda: real.now)
    return real


def ask(clock):
    return clock.now(sys._getframe())


def recorded(clock):
    """A clock that replays what one has told, by way of a checkpoint."""
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


def test_what_the_operating_system_drew_is_drawn_again_in_a_replay(monkeypatch):
    # These tests lie below the folder of our own files.
    monkeypatch.setattr(clocks.Clock, "is_asked_by_user", lambda clock, frame: True)

    def draw(clock):
        before = clocks.drawn(clock, _urandom)
        monkeypatch.setattr(random, "_urandom", lambda size: _or(before(size), _urandom, size))
        return [before(5), before(5), random.SystemRandom().getrandbits(70), secrets.choice("abcdefgh")]

    first = clocks.Clock(None)
    drawn = draw(first)
    assert draw(first) != drawn
    assert draw(recorded(first)) == drawn
    before = clocks.drawn(first, _urandom)
    assert [before(size) for size in (0, "5")] == [NotImplemented] * 2


@pytest.mark.parametrize("sizes", [[clocks.MAX_DRAWN_BYTES + 1], [1] * (clocks.MAX_DRAWS + 1)], ids=["large", "many"])
def test_what_draws_much_is_named_as_a_cause(monkeypatch, sizes):
    monkeypatch.setattr(clocks.Clock, "is_asked_by_user", lambda clock, frame: True)
    said, clock = [], clocks.Clock(None)
    before = clocks.drawn(clock, _urandom)
    assert before(3) is not NotImplemented
    drawn = [before(size) for size in sizes]
    assert drawn[-1] is NotImplemented
    clock.calls = types.SimpleNamespace(begun=False, refuse_exactness=said.append)
    clock.begin(False)
    assert said == ["the script draws much from the operating system (`os.urandom`)"]


def _or(answer, original, size):
    return original(size) if answer is NotImplemented else answer
