"""The rules of `cargo dev counters`, on short pieces of text: what each finds, and what it leaves."""

import ast
import textwrap

import pytest
from counters import __main__ as command
from counters import imports, prose, python_rules, rust_imports, rust_rules, source, table
from counters.source import Place

pytestmark = pytest.mark.stack("one-python")

CODES = {2, 64, 65, 76, 201}


def found_in(rule, text, *arguments):
    """What a rule about the syntax of Python finds."""
    return [what for _, what in rule(ast.parse(textwrap.dedent(text)), *arguments)]


@pytest.mark.parametrize(("text", "expected"), [
    ("if calls.replaying: pass", ["`.replaying`"]),
    ("x = self._is_replay or files.is_replay()", ["`._is_replay`", "`.is_replay`"]),
    ("x = trial.is_replaying, trial.was_replaying, trial.is_replayed", ["`.is_replaying`", "`.was_replaying`", "`.is_replayed`"]),
    ("calls.replaying = False", []),
    ("def is_replay(replaying): return replaying", []),
    ("backend.replay(); calls.replays", []),
])
def test_questions_of_replay(text, expected):
    assert found_in(python_rules.questions_of_replay, text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("calls.depth += 1", ["`calls.depth`"]),
    ("a, self._calls.depth = 1, 0", ["`_calls.depth`"]),
    ("CALLS.depth = 0", ["`CALLS.depth`"]),
    ("del one.depth", ["`one.depth`"]),
    ("setattr(calls, 'depth', 1)", ["`setattr`"]),
    ("self.depth = 0", []),
    ("_Imports.depth -= 1", []),
    ("if calls.depth: depth = calls.depth", []),
])
def test_changes_of_depth(text, expected):
    assert found_in(python_rules.changes_of_depth, text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("stop(calls, 76, 'a message')", ["76"]),
    ("os._exit(64)", ["64"]),
    ("sys.exit(2)", ["2"]),
    ("exit_code = 65", ["65"]),
    ("error.exit_code: int = 65", ["65"]),
    ("_LOST = 201", ["201"]),
    ("USAGE, DAMAGED = 64, 65", ["64", "65"]),
    ("if error.exit_code == 64: pass", ["64"]),
    ("return 76 if missing else 0", ["76"]),
    ("f(code=64)", ["64"]),
    ("os._exit(codes.USAGE)", []),
    ("SIGNAL = 64", []),
    ("read(64 << 10); x[2]; f(2, size=64)", []),
    ("sys.exit(0)", []),
    ("x = 7600, True, '76', 1.0", []),
])
def test_exit_codes_as_literals(text, expected):
    assert found_in(python_rules.literal_exit_codes, text, CODES) == expected


def test_the_exit_codes_are_those_of_the_table():
    codes = table.exit_codes()
    assert {64, 65, 69, 70, 73, 75, 76, 77, 130, 201} <= codes
    assert not codes & {0, 1}


@pytest.mark.parametrize(("text", "expected"), [
    ("def f(a): pass", ["`f`: a, what it returns"]),
    ("def f(a: int, *b, c, **d) -> None: pass", ["`f`: c, b, d"]),
    ("async def f() : pass", ["`f`: what it returns"]),
    ("class C:\n  def f(self) -> None:\n    def g(a: int): pass", ["`g`: what it returns"]),
    ("class C:\n  @staticmethod\n  def f(a) -> None: pass", ["`f`: a"]),
    ("class C:\n  if x:\n    def f(self): pass", ["`f`: what it returns"]),
    ("class C:\n  def __init__(self): pass", ["`__init__`: what it returns"]),
    ("class C:\n  def __init__(self, a): pass", ["`__init__`: a, what it returns"]),
    ("class C:\n  def __init__(self, a: int): pass", []),
    ("class C:\n  @classmethod\n  def f(cls, a: 'int') -> C: pass", []),
    ("f = lambda a: a", []),
])
def test_functions_without_annotation(text, expected):
    assert found_in(python_rules.unannotated_functions, text) == expected


LINES = "    x = 1\n" * 80
ARGUED = "# More than 80 lines: a table of cases\n"


@pytest.mark.parametrize(("text", "expected"), [
    (f"def f():\n{LINES}", []),
    (f"def f():\n{LINES}    y = 2\n", ["`f`, 81 lines"]),
    (f"def f():\n{LINES}    y = (\n        1 +\n        2\n    )\n", ["`f`, 84 lines"]),
    (f"def f():\n    '''Long,\n    documented.'''\n{LINES}    # a comment\n\n", []),
    (f"def f():\n{LINES}    def g():\n        return 1\n", ["`f`, 82 lines"]),
    (f"{ARGUED}@wrapped\ndef f():\n{LINES}    y = 2\n", []),
    (f"# Long.\ndef f():\n{LINES}    y = 2\n", ["`f`, 81 lines"]),
    (f"{ARGUED}\ndef f():\n{LINES}    y = 2\n", ["`f`, 81 lines"]),
])
def test_long_functions_in_python(text, expected):
    assert [what for _, what in python_rules.long_functions(text)] == expected


RUST_LINES = "    x();\n" * 80
EXPECTED = '#[expect(clippy::too_many_lines, reason = "a table")]\n'


@pytest.mark.parametrize(("text", "expected"), [
    (f"fn f() {{\n{RUST_LINES}}}\n", []),
    (f"fn f() {{\n{RUST_LINES}    y();\n}}\n", ["`f`, 81 lines"]),
    (f"fn f<'a>(\n    x: [u8; 4],\n) -> &'a T\nwhere\n    T: X,\n{{\n{RUST_LINES}    '{{'\n}}\nfn g() {{}}\n", ["`f`, 81 lines"]),
    (f"fn f() {{\n{RUST_LINES}    // a comment {{\n\n    /* another\n    one */\n}}\n", []),
    (f"fn f() {{\n{RUST_LINES}    let x = r#\"\n}}\"#;\n}}\n", ["`f`, 82 lines"]),
    (f"{EXPECTED}pub(crate) fn f() {{\n{RUST_LINES}    y();\n}}\n", []),
    (f"{EXPECTED}fn g() {{}}\n\nfn f() {{\n{RUST_LINES}    y();\n}}\n", ["`f`, 81 lines"]),
    (f"#[allow(clippy::too_many_lines)]\nfn f() {{\n{RUST_LINES}    y();\n}}\n", ["`f`, 81 lines"]),
    (f"#[cfg(test)]\nmod tests {{\n    fn f() {{\n{RUST_LINES}    y();\n    }}\n}}\n", []),
    (f"trait T {{\n    fn f(x: [u8; 4]);\n}}\nimpl X {{\n{RUST_LINES}    y();\n}}\n", []),
])
def test_long_functions_in_rust(text, expected):
    assert [what for _, what in rust_rules.long_functions(text)] == expected


def test_a_long_function_in_rust_has_its_line():
    text = f"//! About.\n\nfn g() {{}}\n\npub fn f() {{\n{RUST_LINES}    y();\n}}\n"
    assert list(rust_rules.long_functions(text)) == [(5, "`f`, 81 lines")]


def test_comments_past_column_100():
    text = f"// {'x' * 97}\n    /// {'x' * 96}\nlet x = {'y' * 100};\n//! {'ä' * 96}\n"
    assert list(rust_rules.long_comments(text)) == [(2, "104 columns")]


@pytest.mark.parametrize(("arrows", "expected"), [
    ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
    ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
    ({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}}, [{"a", "b"}, {"c", "d"}]),
    ({"a": {"a"}}, [{"a"}]),
    ({"a": {"elsewhere"}}, []),
])
def test_circles(arrows, expected):
    assert imports.circles(arrows) == expected


def test_imports_in_python(tmp_path):
    package = tmp_path / "ours"
    (package / "inner").mkdir(parents=True)
    for name in ("a.py", "b.py", "inner/__init__.py", "inner/c.py"):
        (package / name).touch()
    text = "from ours import a\nimport os\nfrom other import b\ndef f():\n    from ours.inner import c, D\n"
    found = sorted((path.relative_to(package).as_posix(), is_late) for path, is_late in imports.imports(ast.parse(text), package))
    assert found == [("a.py", False), ("inner/__init__.py", True), ("inner/c.py", True)]


@pytest.mark.parametrize(("text", "expected"), [
    ("use crate::b;", {("b",)}),
    ("use crate::{b::{self, X}, c::Y};", {("b",), ("c",)}),
    ("use std::{io, fmt as b};", set()),
    ("fn f() { crate::c::g(); b::X }", {("c",)}),
    ("use super::b::X as Y;", {("b",)}),
    ("use self::inner::X;", {("a", "inner")}),
    ("fn f() { inner::g() }", {("a", "inner")}),
    ("pub use inner::X;", set()),
    ("use super::Top; use crate::Top;", set()),
    ("// use crate::b;\nconst X: &str = \"crate::b::X\";", set()),
    ("#[cfg(test)]\nmod tests {\n    use crate::b;\n}", set()),
])
def test_imports_in_rust(text, expected):
    others = {(): "", ("b",): "", ("c",): "", ("a", "inner"): ""}
    assert rust_imports.graph({("a",): text, **others})[("a",)] == expected


def test_modules_of_a_crate():
    names = ["lib.rs", "a/mod.rs", "a/inner.rs", "b.rs"]
    found = rust_imports.modules(source.ROOT, [source.ROOT / name for name in names])
    assert sorted(found) == [(), ("a",), ("a", "inner"), ("b",)]


@pytest.mark.parametrize(("name", "text", "count"), [
    ("is told", "The script is told. They were told.", 2),
    ("is told", "It told the reader.", 0),
    ("goes on", "A run goes on; others go on.", 2),
    ("goes on", "A light goes out, on and on.", 0),
    ("stands", "It stands there, and they stand here.", 2),
    ("stands", "What stands for it is a stand-in; the standard stands in for it.", 0),
    ("of its own", "A loop of its own, of the script's own, of ours.", 3),
    ("of its own", "Its own loop, of one owner; ours.", 0),
    ("where", "Where the disk is full, it stops; also where it is slow, and where there is none.", 2),
    ("where", "The folder where files are. It shows where: here.", 0),
    ("so many", "So many files, and so few.", 1),
])
def test_phrases(name, text, count):
    assert len(list(prose.phrases([(1, text)], name))) == count


def test_the_prose_of_python():
    text = '''\
"""A module."""
# A comment
# on two lines.
x = 1  # beside it
def f():
    """Does `where` it."""
    stop("cannot read", f"three words of {name!r} are there", "short one")
'''
    assert prose.of_python(text, with_messages=True) == [
        (1, "A module."),
        (6, "Does `…` it."),
        (2, "A comment on two lines."),
        (4, "beside it"),
        (7, "three words of … are there"),
    ]
    assert len(prose.of_python(text, with_messages=False)) == 4


def test_the_prose_of_rust():
    text = '''\
//! A module
//! on two lines.
let x = 'a'; // beside it
/// Documented.
fn f<'a>(x: &'a str) { stop("four words \\
    in a \\"message\\"", r"no // comment here", "short one") }
'''
    assert prose.of_rust(text, with_messages=True) == [
        (1, "A module on two lines."),
        (3, "beside it"),
        (4, "Documented."),
        (5, 'four words in a \\"message\\"'),
    ]


def test_the_prose_of_a_document():
    text = "# Title\n\nA [link](where/it/leads)\nto `where`.\n\n- one\n- two\n\n```sh\nwhere is it\n```\n"
    assert prose.of_document(text) == [(1, "# Title"), (3, "A [link] to `…`."), (6, "- one"), (7, "- two")]


def a_counter(limit, places, words=None):
    found = [Place("src/a.rs", line, "it") for line in range(1, places + 1)]
    return table.Counter("things", limit, 0, lambda: found, words)


@pytest.mark.parametrize(("counter", "code"), [
    (a_counter(2, 2), 0),
    (a_counter(1, 2), 1),
    (a_counter(0.1, 2, lambda: 20_000), 0),
    (a_counter(0.1, 2, lambda: 19_999), 1),
])
def test_a_count_above_its_limit_fails(counter, code, monkeypatch, capsys):
    monkeypatch.setattr(table, "COUNTERS", [counter])
    assert command.main(["--check"]) == code
    assert ("src/a.rs:2: it" in capsys.readouterr().out) == bool(code)
    assert command.main([]) == code
    assert ("ABOVE ITS LIMIT" in capsys.readouterr().out) == bool(code)


def test_a_limit_is_not_below_its_goal_and_each_name_is_there_once():
    assert all(counter.limit >= counter.goal for counter in table.COUNTERS)
    names = [counter.name for counter in table.COUNTERS]
    assert len(set(names)) == len(names)
    assert command.main(["--list", "no such name"]) == 64


def test_files_of_tests_are_left_out():
    names = set(map(source.name_of, source.rust()))
    assert "src/core/checkpoint/mod.rs" in names
    assert not {"src/core/checkpoint/tests.rs", "src/core/checkpoint/crash_fs.rs"} & names


def test_a_file_that_may_be_long_is_there_and_is_long():
    for name in table.LONG_FILES:
        assert source.text_of(source.ROOT / name).count("\n") > table.LONGEST_FILE
