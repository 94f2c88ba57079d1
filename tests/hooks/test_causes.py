"""The table of causes (`py_hooks/causes.py`): the documentation is generated from it, and there is no other cause."""
import ast
import string

import pytest
import support

from py_hooks import causes

FILES = sorted((support.ROOT / "py_hooks").rglob("*.py"))

# The functions that take a cause.
_TAKERS = ("exactness.refuse", "_say_cause", "_say_unkept", "say")

ROWS = {name: row for name, row in vars(causes).items() if isinstance(row, causes.Cause)}


def test_the_page_is_made_from_the_table():
    page = support.ROOT / "docs" / "reference" / "causes.md"
    assert page.read_text(encoding="utf-8") == causes.page(), "write `causes.page()` into it"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_is_said_with_its_values(name):
    row = ROWS[name]
    names = [field for _, field, _, _ in string.Formatter().parse(row.text) if field is not None]
    told = row(**{field: f"<{field}>" for field in names})
    assert told.cause is row
    assert all(f"<{field}>" in told for field in names)
    assert row.why.endswith(".")
    assert not row.cure.endswith(".")
    assert row.cure[0].islower()


def _literals_in(node):
    """Texts in an argument of a call, in either branch of a condition."""
    if isinstance(node, ast.IfExp):
        return _literals_in(node.body) + _literals_in(node.orelse)
    # Up to Python 3.7 a text is a `Str`.
    return [node] if type(node).__name__ in ("JoinedStr", "Constant", "Str") else []


def _name_of(function):
    """The name of a function that is called; of a method of `exactness`, or of the host of a trial class, with that."""
    name = getattr(function, "attr", None)
    value = getattr(function, "value", None)
    holder = getattr(value, "attr", getattr(value, "id", None))
    return f"{holder}.{name}" if holder in ("exactness", "host") else name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(support.ROOT)))
def test_no_other_text_is_a_cause(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = _name_of(node.func) if isinstance(node, ast.Call) else None
        if name in _TAKERS and node.args:
            assert not _literals_in(node.args[0]), f"line {node.lineno}"


def test_every_row_is_used():
    text = "\n".join(path.read_text(encoding="utf-8") for path in FILES if path.name != "causes.py")
    assert [name for name in ROWS if f"causes.{name}" not in text and f"table.{name}" not in text] == []
