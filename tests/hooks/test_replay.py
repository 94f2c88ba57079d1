"""The recorder without a framework: what a few calls do in a first start, and what becomes of them in the next.

A start is a recorder with a real trial (`_pedl.Trial`). A model is a number, which a batch is added to.
"""

import json
import os
import types

import pytest
import support

from py_hooks.recording import call_kinds
from py_hooks.recording.compute_functions import ComputeFunction
from py_hooks.recording.recorder import Calls

pytestmark = pytest.mark.stack("plain")


class Stopped(Exception):
    """The process would have ended here."""


class Model:
    """A number, and the state of it in checkpoints."""

    def __init__(self):
        self.value = 0

    def capture(self):
        return [], self.value

    def restore(self, tensors, state):
        self.value = state


class Function(ComputeFunction):
    """Adds a batch to the model. The first call of each start builds it."""

    def __init__(self, calls, kind=call_kinds.TRAIN):
        ComputeFunction.__init__(self, calls, kind, f"function of kind {kind}")
        self.events = []
        self.is_built = False

    def changed(self, calls):
        self.events.append("changes noted")

    def resumed(self):
        self.events.append("resumed")

    def compute(self, calls, model, batch):
        if not self.is_built:
            self.is_built = True
            calls.traces += 1
        if batch is None:
            raise ValueError("no batch")
        model.value += batch
        self.events.append("computed")
        return model.value

    def skipped(self):
        self.events.append("skipped")
        return 1


class Start:
    """One start of the trial in a directory."""

    def __init__(self, native, directory, **settings):
        trial = native.Trial(support.launch_message(directory, **settings))
        self.calls = Calls(trial, types.SimpleNamespace(draws=0), native.Error)
        self.calls.files = types.SimpleNamespace(saved=types.SimpleNamespace(paths=list))
        self.model = Model()
        self.calls.checkpoints.keep("model", self.model)
        self.calls.begin(json.dumps({"python": "3", "versions": {}, "cpu": ""}))
        self.function = Function(self.calls)
        self.put = []

    def id(self, name):
        return self.calls.trial.intern(name)

    def train(self, batch):
        """The call of a loop of the framework."""
        return self.function.perform(
            self.calls, lambda: (self.function.compute(self.calls, self.model, batch), 1), self.function.skipped
        )

    def train_on_batch(self, batch):
        """The call of the script for one batch."""
        compute = lambda: self.function.compute(self.calls, self.model, batch)  # noqa: E731
        return self.function.perform_batch(self.calls, self.id("here"), compute, (batch is None,), {})

    def read(self):
        return self.calls.perform(call_kinds.READ, self.id("read"), lambda: self.model.value, put=self.put.append)

    def save(self):
        self.calls.checkpoints.save(is_wanted=True)
        self.calls.trial.wait_saved()


@pytest.fixture
def start(native, tmp_path, monkeypatch):
    """A function that makes a start. A process that would end raises `Stopped` with its exit code."""

    def stop(code):
        raise Stopped(code)

    monkeypatch.setattr(os, "_exit", stop)
    return lambda **settings: Start(native, tmp_path / "trial", verbosity=-1, **settings)


def script(one, saves=False):
    """Returns what the calls of a script return."""
    found = [one.train(1), one.train(2), one.read(), one.calls.checked(call_kinds.WRITE, one.id("write"), 42)]
    found.append(one.train(3))
    if saves:
        one.save()
    found += [one.train(4), one.read()]
    return found


def test_calls_are_answered_up_to_the_checkpoint_and_made_after_it(start):
    first = start()
    expected = script(first, saves=True)
    assert expected == [1, 3, 3, True, 6, 10, 10]
    again = start()
    assert again.calls.resumes
    assert (again.calls.skips_data, again.calls.is_past, again.calls.holds_values) == (True, True, False)
    found = script(again)
    # What the script does again is compared, and that it was done before is said.
    assert found == [1, 3, 3, False, 6, 10, 10]
    assert again.put == [3]
    # The first call is made again, because it built something.
    made = ["computed", "changes noted", "skipped", "skipped", "resumed", "computed"]
    assert again.function.events == made
    assert (again.calls.skips_data, again.calls.is_past, again.calls.holds_values) == (False, False, True)
    assert again.calls.batches == first.calls.batches == 4


def test_a_call_that_built_something_is_made_again_and_compared_unless_calls_before_it_were_skipped(start):
    first = start()
    other = Function(first.calls, call_kinds.TEST)

    def test(one, function):
        return function.perform(one.calls, lambda: (function.compute(one.calls, Model(), 5), 1), function.skipped)

    assert [first.train(1), first.train(2), test(first, other), first.train(3)] == [1, 3, 5, 6]
    first.save()
    again = start()
    other = Function(again.calls, call_kinds.TEST)
    assert [again.train(1), again.train(2), test(again, other), again.train(3)] == [1, 3, 5, 6]
    assert other.events == ["computed", "changes noted"]


# The checksum of a batch needs numpy.
@pytest.mark.stack("keras3-jax")
def test_a_batch_of_the_script_is_answered_whole_and_one_that_failed_fails_again(start):
    def batches(one):
        found = []
        for batch in (1, 2, None, 3):
            try:
                found.append(one.train_on_batch(batch))
            except ValueError as error:
                found.append(str(error))
        return found

    first = start()
    expected = batches(first)
    assert expected == [1, 3, "no batch", 6]
    first.save()
    again = start()
    assert batches(again) == expected
    assert again.model.value == 6
    assert again.function.events.count("computed") == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda one: one.read(),
        lambda one: one.calls.checked(call_kinds.WRITE, one.id("write"), 1),
        lambda one: one.calls.perform(call_kinds.READ, one.id("another"), lambda: 0),
    ],
    ids=["kind", "arguments", "identity"],
)
def test_a_call_that_differs_ends_the_process_with_76_and_is_not_made(start, other, capfd):
    first = start()
    first.calls.checked(call_kinds.WRITE, first.id("write"), 2)
    first.train(1)
    first.save()
    again = start()
    with pytest.raises(Stopped, match="76"):
        other(again)
    assert "the replay differs from the record" in capfd.readouterr().err


def test_a_call_of_a_trial_class_counts_as_a_batch(start):
    def train(one, batch):
        def compute():
            one.model.value += batch
            return one.model.value

        return one.calls.perform(call_kinds.TRAIN, one.id("train"), compute, skip=lambda: one.put.append("skipped"))

    first = start(batches_per_step=2, checkpoint_period=1)
    assert [train(first, batch) for batch in (1, 2, 3)] == [1, 3, 6]
    first.calls.trial.wait_saved()
    again = start()
    assert [train(again, batch) for batch in (1, 2, 3)] == [1, 3, 6]
    assert again.put == ["skipped", "skipped"]
    assert again.calls.batches == 3


def test_inside_of_a_call_and_in_a_step_callback_nothing_is_recorded(start):
    one = start()
    with one.calls.unrecorded():
        assert not one.calls.recordable()
    one.calls.in_step_callback = True
    assert one.read() == 0
    assert [str(cause) for cause in one.calls.exactness.causes] != []
    one.calls.in_step_callback = True
    one.calls.entries.append(one.id("fit"))
    with pytest.raises(Stopped, match="65"):
        one.read()
