"""Library calls that pedl makes for itself give no warnings; all others warn as under python."""

import sys
import threading
import types
import warnings

import pytest

from py_hooks.engine import guard
from py_hooks.own_account import is_ours, on_own_account, own_account
from py_hooks.recording import fingerprint
from py_hooks.script_io import given_warnings
from py_hooks.workers.transfer import settings

pytestmark = pytest.mark.stack("plain", "plain-python37")


@pytest.fixture(autouse=True)
def strict():
    """The filters of a script in which each warning is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        assert not any(map(is_ours, warnings.filters))


def warn(text="told"):
    warnings.warn(text, DeprecationWarning)  # noqa: B028 - one place for all warnings


def test_it_is_neither_raised_nor_shown_within_and_both_behind():
    with own_account():
        warn()
        with own_account():
            warn()
        warn()
    with pytest.raises(DeprecationWarning):
        warn()


def test_an_exception_passes_and_the_filters_are_the_scripts_again():
    with pytest.raises(KeyError):
        on_own_account({}.__getitem__)("missing")
    with pytest.raises(DeprecationWarning):
        warn()


def test_what_other_threads_warn_of_is_raised_meanwhile_and_their_filters_stay():
    raised = []

    def other():
        try:
            warn()
        except DeprecationWarning:
            raised.append(True)
        warnings.filterwarnings("ignore", "of another thread")

    with own_account():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        warn()
    assert raised == [True]
    warn("of another thread")
    with pytest.raises(DeprecationWarning):
        warn()
    del warnings.filters[0]


def test_what_is_given_once_is_neither_used_up_nor_new_again():
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        with own_account():
            warn("given once")
        for _ in range(2):
            warn("given once")
            with own_account():
                warn("another")
    assert [str(one.message) for one in given] == ["given once"]


class Warns:
    """A tensor of a library, an optimizer of one, and a provider of what belongs to a checkpoint."""

    shape, dtype = (2,), "float32"

    def __array__(self, *args, **kwargs):
        import numpy

        warn()
        return numpy.ones(2, "float32")


@pytest.mark.stack("keras3-jax")
def test_what_is_looked_at_warns_of_nothing():
    import numpy

    assert fingerprint.describe([Warns()]) == fingerprint.describe([numpy.ones(2, "float32")])


def test_what_runs_behind_an_import_warns_of_nothing(monkeypatch):
    said = []
    process = types.SimpleNamespace(errors=(), is_aside=False, cannot_step_aside=None, step_aside=said.append)
    monkeypatch.setattr(guard, "PROCESS", process)
    assert guard.run(lambda: warn() or 3) == 3
    assert said == []


def test_what_was_given_before_a_kill_is_told_to_python_all_the_same(monkeypatch):
    module = types.ModuleType("warned")
    module.__file__ = "/user/warned.py"
    monkeypatch.setitem(sys.modules, "warned", module)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with own_account():
            given_warnings.GivenWarnings().restore([], [["text", "builtins:UserWarning", "/user/warned.py", 1]])
    assert ("text", UserWarning, 1) in module.__warningregistry__


@pytest.mark.stack("keras3-jax")
def test_what_is_set_in_the_process_is_the_same_within():
    before = settings.of_process()
    with own_account():
        assert settings.of_process() == before
