"""Targets that are called many times per batch skip the guard only while their advice would do nothing."""

import threading
import types

import pytest

from py_hooks.engine.patch import Patch, _wrapper, shortcut
from py_hooks.keras.keras3 import variables
from py_hooks.recording import recorder

pytestmark = pytest.mark.stack("plain", "keras3")


@pytest.fixture
def calls(monkeypatch):
    """Those of a process whose main thread is this one, between two calls."""
    calls = types.SimpleNamespace(depth=0, main_thread=threading.get_ident())
    monkeypatch.setattr(recorder, "CALLS", calls)
    return calls


def _ways(make, *arguments):
    """What the function that `make` makes calls, here and in another thread: `original` or `intercepted`."""
    found = []
    function = make(lambda *_: found.append("original"), lambda *_: found.append("intercepted"))
    function(*arguments)
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()
    return found


def _unless_inside():
    from py_hooks.tensorflow.variables import resource_variables

    return resource_variables._unless_inside


@pytest.mark.parametrize("target", ["read", "read by TensorFlow"])
def test_a_read_in_another_thread_is_noticed_while_the_main_thread_computes(calls, monkeypatch, target):
    variable = types.SimpleNamespace()
    monkeypatch.setattr(variables.VARIABLES, "stale", {id(variable)})
    make = variables._unless_read_outside if target == "read" else _unless_inside()
    assert _ways(make, variable) == ["intercepted", "intercepted"]
    calls.depth = 1
    assert _ways(make, variable) == ["original", "intercepted"]


def test_a_variable_that_training_does_not_change_is_read_without_a_guard(calls):
    assert _ways(variables._unless_read_outside, object()) == ["original", "original"]


def test_a_shortcut_replaces_the_target_and_keeps_its_name_and_its_advice():
    def add(number):
        return number + 1

    @shortcut(lambda original, intercepted: lambda number: original(number) if number else intercepted(number))
    def twice(original, number):
        return 2 * original(number)

    wrapped = _wrapper(add, Patch("here", "add", twice, "").advice)
    assert [wrapped(0), wrapped(1)] == [2, 2]
    assert (wrapped.__name__, wrapped._pedl_original, wrapped._pedl_advice) == ("add", add, twice)
