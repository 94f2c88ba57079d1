"""What the gate leaves to `cargo dev test --all`: no test is lost, whatever its mark."""

import itertools
import re

import gate
import pytest
from support import ROOT

pytestmark = pytest.mark.stack("one-python")

STACKS = {"a": ["letter"], "b": ["letter", "second"], "c": ["letter"]}


@pytest.fixture(autouse=True)
def of_three_stacks(monkeypatch, request):
    """Stacks `c` and `b` leave a file to `a`, and `c` leaves another one to `b`."""
    if "real" not in request.node.name:
        left = [gate.Left("b", "a", ["x.py"]), gate.Left("c", "a", ["x.py"]), gate.Left("c", "b", ["y.py"])]
        monkeypatch.setattr(gate, "LEFT", left)


def running(file, *wanted, stacks=STACKS):
    """The stacks that run a test with this mark."""
    having = [name for name in stacks if not {name, *stacks[name]}.isdisjoint(wanted)]
    return [name for name in having if not gate.is_left(name, file, wanted, stacks)]


def test_a_test_that_the_other_stack_has_is_left_to_it():
    assert running("x.py", "letter") == ["a"]
    assert running("x.py", "a", "c") == ["a"]
    assert running("y.py", "letter") == ["a", "b"]


def test_a_test_that_no_other_stack_has_is_kept():
    assert running("x.py", "c") == ["c"]
    assert running("x.py", "b", "c") == ["b", "c"]
    assert running("x.py", "second") == ["b"]


def test_a_file_that_is_not_named_runs_wherever_its_mark_says():
    assert running("z.py", "letter") == ["a", "b", "c"]


def test_a_stack_that_this_machine_cannot_run_is_left_nothing():
    assert running("x.py", "letter", stacks={name: STACKS[name] for name in "bc"}) == ["b", "c"]


def real_stacks():
    """The stacks of the gate in the order of `matrix.toml`, which only newer Pythons can read otherwise."""
    text = (ROOT / "tests" / "matrix.toml").read_text(encoding="utf-8")
    tables = re.findall(r"^\[\[stack\]\]\n(.*?)^(?=\[)", text + "\n[", re.MULTILINE | re.DOTALL)
    found = {}
    for table in tables:
        name = re.search(r'^name = "([^"]+)"', table, re.MULTILINE).group(1)
        tags = re.search(r"^tags = \[(.*)\]", table, re.MULTILINE)
        if not re.search(r"^(?:only_trains|optional) = ", table, re.MULTILINE):
            found[name] = re.findall(r'"([^"]+)"', tags.group(1)) if tags else []
    return found


def test_real_stacks_leave_files_to_stacks_before_them():
    order = list(real_stacks())
    for left in gate.LEFT:
        assert order.index(left.to) < order.index(left.on)
        assert [file for file in left.files if not (ROOT / "tests" / file).is_file()] == []


def test_with_real_stacks_each_mark_has_a_stack_that_runs_it():
    stacks = real_stacks()
    names = sorted({*stacks, *itertools.chain(*stacks.values())})
    files = sorted({file for left in gate.LEFT for file in left.files})
    for wanted in [*itertools.combinations(names, 1), *itertools.combinations(names, 2)]:
        for file in files:
            assert running(file, *wanted, stacks=stacks), (file, wanted)
