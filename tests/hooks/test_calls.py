"""The recorder: actions of other threads do not count as the script's, and do not hide those of the main thread."""

import json
import threading

import pytest

from py_hooks import causes
from py_hooks.recording.recorder import Calls

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


def test_what_a_thread_finds_while_it_is_said_that_a_run_is_exact_is_said_after_it_and_once():
    cause = causes.THREAD_TRAINS()
    found = threading.Thread(target=lambda: calls.exactness.refuse(cause))
    said = []

    class Trial:
        exact = False

        def log(self, text):
            if not said:
                found.start()
                found.join(0.1)
            said.append(text.partition(";")[0])

        def event(self, text):
            said.append(json.loads(text)["causes"])

        def keep_nothing(self):
            pass

    calls = Calls(Trial(), None, ValueError)
    calls.begun = True
    calls.exactness.tell()
    found.join(30)
    calls.exactness.tell()
    assert said == ["exact resume: yes", [], f"exact resume: no: {cause}", [cause]]
