"""Steps of trials and their callbacks (rules C1 to C12), and the processing of metrics."""
import sys

import pytest
from support import ROOT

sys.path.append(str(ROOT / "shims"))
from pedl._loops import metrics
from pedl._loops.steps import Steps
from pedl.callback import Callback
from pedl.errors import DefinitionError
from pedl.trial import call_with

pytestmark = pytest.mark.stack("plain", "keras")


class Noting(Callback):
    """Notes its calls."""

    def __init__(self, notes, name=""):
        self._notes, self._name = notes, name

    def on_trial_begin(self):
        self._notes.append(f"{self._name}trial")

    def on_train_step_begin(self, step_id):
        self._notes.append(f"{self._name}begin {step_id}")

    def on_train_step_end(self, step_id, metrics):
        self._notes.append(f"{self._name}end {step_id} {metrics}")

    def on_validation_step_begin(self, step_id):
        self._notes.append(f"{self._name}validation {step_id}")

    def on_validation_step_end(self, step_id, metrics):
        self._notes.append(f"{self._name}validated {step_id} {metrics}")


def train(steps, count, first=0):
    for batch in range(first, first + count):
        steps.batch_begins()
        steps.batch_ended({"loss": batch})


def test_c1_callbacks_are_a_list_of_callbacks():
    assert not Steps([], 2).has_callbacks
    for wrong, what in [(None, "NoneType"), ([1, Callback()], "int"), (Callback(), "Callback")]:
        with pytest.raises(DefinitionError, match=what):
            Steps(wrong, 2)


def test_c2_they_are_called_in_their_order_at_every_hook():
    notes = []
    steps = Steps([Noting(notes, "a "), Noting(notes, "b ")], 1)
    train(steps, 1)
    steps.validation_begins()
    steps.validated({})
    names = [note.split()[0] + note.split()[1] for note in notes]
    hooks = ["trial", "begin", "end", "validation", "validated"]
    assert names == [name + hook for hook in hooks for name in "ab"]


def test_c3_every_hook_is_optional():
    class Empty(Callback):
        pass

    steps = Steps([Empty()], 1)
    train(steps, 2)
    steps.validation_begins()
    steps.validated({})


def test_c4_the_trial_begins_once_and_before_the_first_training_step():
    notes = []
    steps = Steps([Noting(notes)], 2)
    steps.validation_begins()
    train(steps, 5)
    assert notes[:3] == ["validation 0", "trial", "begin 1"]
    assert notes.count("trial") == 1


def test_c5_c6_a_step_has_its_batches():
    notes = []
    train(Steps([Noting(notes)], 2), 5)
    assert notes[1:] == [
        "begin 1", "end 1 [{'loss': 0}, {'loss': 1}]", "begin 2", "end 2 [{'loss': 2}, {'loss': 3}]", "begin 3",
    ]


def test_c7_c8_a_validation_has_one_dict_and_the_number_of_the_steps_before_it():
    notes = []
    steps = Steps([Noting(notes)], 2)
    train(steps, 4)
    steps.validation_begins()
    steps.validated({"val_loss": 1.0})
    assert notes[-2:] == ["validation 2", "validated 2 {'val_loss': 1.0}"]


def test_c12_steps_are_counted_from_1():
    class Typed(Callback):
        def on_train_step_begin(self, step_id):
            assert type(step_id) is int
            assert step_id >= 1

    train(Steps([Typed()], 3), 7)


def test_metrics_of_batches_have_the_same_names_and_values():
    assert metrics.checked({"loss": 1.0}, "train_batch", None) == {"loss": 1.0}
    for wrong, what in [([1], "class `list`"), ({"loss": None}, "None for the metric `loss`")]:
        with pytest.raises(DefinitionError, match=what):
            metrics.checked(wrong, "train_batch", None)
    with pytest.raises(DefinitionError, match="`a`, `loss`\n  expected: those of the batches before, `loss`"):
        metrics.checked({"loss": 1.0, "a": 2.0}, "train_batch", {"loss": 1.0})


def test_arguments_are_given_as_they_are_taken():
    def none(): return ()
    def one(hparams): return (hparams,)
    def other(config, parameters): return (config, parameters)
    def rest(*args): return args
    def named(**kwargs): return tuple(kwargs.values())
    given = {"experiment_config": 1, "hparams": 2}
    assert call_with(none, **given) == ()
    assert call_with(other, **given) == (1, 2)
    assert call_with(rest, **given) == (1, 2)
    assert call_with(named, **given) == (1, 2)
    assert call_with(one, **given) == (2,)
    assert call_with(lambda hparams, extra=3: (hparams, extra), **given) == (2, 3)
    assert call_with(lambda parameters, **rest: (parameters, rest), hparams=2) == (2, {})
    assert call_with(lambda config, *, extra=3, **rest: (config, extra, rest), **given) == (1, 3, {"hparams": 2})
    with pytest.raises(DefinitionError, match="at most `experiment_config`, `hparams`"):
        call_with(lambda experiment_config, hparams, extra: None, **given)
    with pytest.raises(DefinitionError, match="object of class `int`"):
        call_with(3, **given)


def test_what_a_method_does_with_its_hyperparameters_is_nothing_to_the_others():
    def changes(hparams):
        hparams["layers"].append(hparams.pop("units"))
        return hparams

    hparams = {"layers": [3], "units": 5}
    assert call_with(changes, hparams=hparams) == {"layers": [3, 5]}
    assert call_with(lambda hparams: hparams, hparams=hparams) == hparams == {"layers": [3], "units": 5}


def test_the_mean_over_batches_is_not_weighted():
    numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")
    batches = [
        {"loss": 1.0, "by_class": numpy.array([1.0, 2.0])},
        {"loss": numpy.float32(4), "by_class": numpy.array([3.0, 0.0])},
    ]
    means, without = metrics.mean(batches)
    assert means["loss"] == 2.5
    assert means["by_class"].tolist() == [2.0, 1.0]
    assert without == []
    assert metrics.scalars(means) == [("loss", 2.5)]


def test_what_has_another_shape_in_each_batch_has_no_mean():
    numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")
    means, without = metrics.mean([{"loss": 1, "rows": numpy.ones(3)}, {"loss": 2, "rows": numpy.ones(2)}])
    assert (means, without) == ({"loss": 1.5}, ["rows"])
    assert metrics.mean([]) == ({}, [])
