"""The border: which exceptions are mistakes of pedl, and that a call whose advice has failed is made once."""

import itertools
import linecache
import types

import pytest

from py_hooks.engine import guard, patch

_NUMBERS = itertools.count()

pytestmark = pytest.mark.stack("plain")


class Process:
    errors = (ZeroDivisionError,)
    is_aside = False
    cannot_step_aside = None

    def __init__(self):
        self.said = []

    def step_aside(self, text):
        self.is_aside = True
        self.said.append(text)

    def end_for_bug(self, message, hint):
        raise SystemExit(message)


@pytest.fixture
def process(monkeypatch):
    made = Process()
    monkeypatch.setattr(guard, "PROCESS", made)
    return made


def advice_of_ours(text, room="advice"):
    """An advice whose code is in a file of pedl."""
    lines = f"def advice(original, *args):\n{text}"
    filename = f"{guard._OURS}{room}/planted{next(_NUMBERS)}.py"
    linecache.cache[filename] = (len(lines), None, lines.splitlines(True), filename)
    names = {}
    exec(compile(lines, filename, "exec"), names)
    return names["advice"]


def wrapped(text):
    """A function that counts its calls, behind an advice of pedl."""
    library = types.SimpleNamespace(calls=0)

    def original(value=1):
        library.calls += 1
        if value < 0:
            raise ValueError("the library's own")
        return 10 * value

    return library, patch._wrap(original, advice_of_ours(text))


@pytest.mark.parametrize(
    "text",
    [
        "    None.name\n    return original(*args)\n",
        "    result = original(*args)\n    None.name\n    return result\n",
        "    try:\n        return original(*args)\n    finally:\n        {}['a']\n",
    ],
    ids=["before", "after", "finally"],
)
def test_a_mistake_of_ours_leaves_the_call_made_once_with_its_result(process, text):
    library, function = wrapped(text)
    assert function(2) == 20
    assert library.calls == 1
    assert len(process.said) == 1
    assert "py_hooks/advice/planted" in process.said[0]
    assert function(3) == 30
    assert library.calls == 2
    assert len(process.said) == 1


@pytest.mark.parametrize(
    "text", ["    return original(*args)\n", "    original(*args)\n    raise ValueError('meant')\n"], ids=["library", "meant"]
)
def test_what_the_library_raises_and_what_we_raise_on_purpose_pass(process, text):
    library, function = wrapped(text)
    with pytest.raises(ValueError, match="own|meant"):
        function(-1)
    assert library.calls == 1
    assert process.said == []


def test_a_mistake_that_has_ended_the_librarys_loop_ends_the_run(process):
    inside = advice_of_ours("    None.name\n")

    def loop():
        inside(None)

    outer = patch._wrap(loop, advice_of_ours("    return original(*args)\n"))
    with pytest.raises(SystemExit, match="has ended the library's own loop"):
        outer()


def test_without_a_trial_everything_passes():
    _, function = wrapped("    None.name\n")
    with pytest.raises(AttributeError):
        function()


def test_what_the_program_of_a_trial_class_raises_is_raised_as_in_a_script(process):
    program = advice_of_ours("    None.name\n", "trial_classes")
    call = patch._wrap(lambda: program(None), advice_of_ours("    return original(*args)\n"))
    with pytest.raises(AttributeError, match="name"):
        call()
    assert process.said == []
