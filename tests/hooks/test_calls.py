"""The recorder: what other threads do neither counts as the script's doing, nor hides what the main thread does."""

import threading

import pytest

from py_hooks.advice.calls import Calls

pytestmark = pytest.mark.stack("plain")


def test_a_thread_that_is_not_recorded_leaves_the_main_threads_calls_recordable():
    calls = Calls(None, None, ValueError)
    begun, may_end, seen = threading.Event(), threading.Event(), []

    def work():
        with calls.unrecorded():
            begun.set()
            assert may_end.wait(30)
            seen.append(calls.recordable())

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(30)
    assert calls.recordable()
    with calls.unrecorded():
        assert not calls.recordable()
        may_end.set()
        thread.join(30)
        assert not calls.recordable()
    assert calls.recordable()
    assert seen == [False]
