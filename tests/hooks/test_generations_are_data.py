"""The layers of `py_hooks`: generation files hold data only, the registry knows each of them, and who imports whom.

The file whose name is a range of versions shows which library is touched in which place. That holds as long as no such
file makes decisions, and as long as no other place knows versions. Nothing here needs a
framework: a generation file is imported before its library.
"""
import ast
import importlib
import importlib.util
import os
import re
import sys
import sysconfig

import pytest
from support import ROOT, parse

from py_hooks.engine import version
from py_hooks.registry import GENERATIONS
from py_hooks.verbs import report

HOOKS = ROOT / "py_hooks"
SHIMS = ROOT / "shims"

# The parts of a generation file: a docstring, imports, names for long strings, and tables. Anything else would decide.
DATA_NODES = {
    "Module", "Expr", "ImportFrom", "alias", "Assign", "Name", "Load", "Store", "Attribute", "Tuple", "Dict",
    "Call", "keyword", "BinOp", "Add", "Constant", "Str", "Num", "NameConstant",
}
MAX_LINES = 100

# The modules that every layer may use.
FOUNDATIONS = ("py_hooks.refusal", "py_hooks.own_account", "py_hooks.causes", "py_hooks.places", "py_hooks.border")

FRAMEWORKS = {"flax", "jax", "jaxlib", "keras", "numpy", "tensorflow", "tf_keras", "torch"}

GENERATION_FILES = sorted(HOOKS.glob("*/generations/v[0-9]*.py"))

# The rooms that know no library.
NEUTRAL = ("recording", "random_numbers", "script_io", "workers", "datasets", "ranks")
HOOK_FILES = sorted(HOOKS.rglob("*.py"))
SHIM_FILES = sorted(SHIMS.rglob("*.py"))


def short(path):
    return str(path.relative_to(ROOT))


def each(name, paths):
    return pytest.mark.parametrize(name, paths, ids=[short(path) for path in paths])


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def generation_of(path):
    return importlib.import_module(module_name(path)).GENERATION


def imported(nodes):
    """The absolute names that `import` statements among the nodes import, with the names taken from a module."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: an import relative to the file"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def run_on_import(tree):
    """The nodes of a module that run when it is imported: those outside of functions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def is_in_standard_library(name):
    top = name.split(".")[0]
    spec = importlib.util.find_spec(top)
    if top in sys.builtin_module_names or spec.origin == "frozen":
        return True
    path, library = os.path.realpath(spec.origin), os.path.realpath(sysconfig.get_paths()["stdlib"])
    return path.startswith(library + os.sep) and "site-packages" not in path


# -- generation files ----------------------------------------------------------------------------------------------


def test_there_are_generation_files():
    assert len(GENERATION_FILES) >= 4


@each("path", GENERATION_FILES)
def test_a_generation_file_decides_nothing(path):
    found = [node for node in ast.walk(parse(path)) if type(node).__name__ not in DATA_NODES]
    assert not found, "\n".join(
        "{}:{}: {} in a table".format(short(path), getattr(node, "lineno", "?"), type(node).__name__) for node in found
    )


@each("path", GENERATION_FILES)
def test_a_generation_file_calls_nothing_but_what_its_tables_are_made_of(path):
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    called = {getattr(node.func, "id", ast.dump(node.func)) for node in calls}
    # A second name for a library that is intercepted has no rows.
    assert {name for name in called if not name.endswith("Facts")} - {"Patch"} == {"Generation"}


@each("path", GENERATION_FILES)
def test_versions_stand_in_the_last_line_of_a_generation_file_only(path):
    tree = parse(path)
    last = tree.body[-1]
    assert isinstance(last, ast.Assign)
    assert last.targets[0].id == "GENERATION"
    strings = [
        (node.lineno, ast.literal_eval(node))
        for statement in tree.body[1:-1]
        for node in ast.walk(statement)
        if type(node).__name__ in ("Constant", "Str")
    ]
    assert [(line, text) for line, text in strings if isinstance(text, str) and re.match(r"\d+\.\d", text)] == []


@each("path", GENERATION_FILES)
def test_a_generation_file_says_what_it_is_for_and_stays_readable(path):
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(parse(path))
    generation = generation_of(path)
    assert generation.first.rpartition(".")[0] in docstring.splitlines()[0]
    assert "Call paths (read from " in docstring
    assert text.count("\n") <= MAX_LINES


@each("path", GENERATION_FILES)
def test_a_generation_file_imports_advice_only(path):
    for name in imported(ast.walk(parse(path))):
        assert name.startswith("py_hooks."), name
        if name in ("py_hooks.engine.patch.Generation", "py_hooks.engine.patch.Patch"):
            continue
        assert name.split(".")[1] not in ("engine", "registry", "boot"), name
        assert not re.search(r"\.v\d", name), f"{short(path)} imports another generation, `{name}`"


@each("path", sorted(HOOKS.glob("*/generations/*.py")))
def test_a_table_of_several_generations_is_complete_in_its_file(path):
    """So a generation names each table that it takes."""
    if path not in GENERATION_FILES:
        assert [name for name in imported(ast.walk(parse(path))) if ".generations." in name] == []


@each("path", GENERATION_FILES)
def test_the_name_of_a_generation_file_is_its_range(path):
    generation = generation_of(path)
    first, last = generation.first.replace(".", "_"), generation.last.replace(".", "_")
    assert path.stem == "v{}_{}".format(first, "on" if last == "on" else "to_v" + last)
    assert path.parent.parent.name == generation.distribution.replace(".", "_")


@each("path", GENERATION_FILES)
def test_every_row_of_a_generation_has_an_advice_and_a_reason(path):
    generation = generation_of(path)
    for backend in generation.backends or {None: ()}:
        patches = generation.patches + (generation.backends[backend] if backend else ())
        targets = [repr(patch) for patch in patches]
        assert sorted(set(targets)) == sorted(targets), "a target is there twice"
        for patch in patches:
            assert callable(patch.advice), patch
            assert (patch.advice.__doc__ or "").strip(), f"{patch}: its advice has no docstring"
            assert 0 < len(patch.why) <= 50, patch
            assert patch.module.split(".")[0] in FRAMEWORKS | {"keras_preprocessing"}, patch


@each("path", GENERATION_FILES)
def test_pedl_hooks_names_the_line_of_every_row(path):
    """Also for rows that several generations share, and if several modules have the same name."""
    module = module_name(path)[len("py_hooks."):]
    for line in report._lines(module, None):
        target, attribute, number, shared = re.match(r"  (\S+):(\S+) +row (\d+)(?: of (\S+))? +-> ", line).groups()
        file = HOOKS / shared if shared else path
        row = file.read_text(encoding="utf-8").splitlines()[int(number) - 1]
        assert attribute.rpartition(".")[2] + '"' in row, line
        named = re.match(r'\s*(?:Patch)?\("?([\w.]+)', row).group(1)
        assert vars(sys.modules[module_name(file)]).get(named, named) in target, line


# -- the registry --------------------------------------------------------------------------------------------------


def test_every_row_of_the_registry_has_its_file_and_every_file_its_row():
    files = {".".join(path.relative_to(HOOKS).with_suffix("").parts) for path in GENERATION_FILES}
    assert sorted(row[3] for row in GENERATIONS) == sorted(files)


@pytest.mark.parametrize("row", GENERATIONS, ids=[row[3] for row in GENERATIONS])
def test_a_row_of_the_registry_is_what_its_generation_says(row):
    generation = importlib.import_module("py_hooks." + row[3]).GENERATION
    assert row[:3] == (generation.distribution, generation.first, generation.last)


def test_ranges_of_the_registry_are_in_order_and_only_the_newest_is_open():
    for distribution in {row[0] for row in GENERATIONS}:
        rows = [row for row in GENERATIONS if row[0] == distribution]
        assert all(last != "on" for _, _, last, _ in rows[:-1])
        edges = [version.numbers(edge) for _, first, last, _ in rows for edge in (first, last) if edge != "on"]
        assert edges == sorted(edges)


def test_tensorflow_1_is_never_intercepted_without_the_keras_within_it():
    """With sessions alone, its training would not be recorded as training."""
    edges = [edge for library, *edges, _ in GENERATIONS if library == "tensorflow" for edge in edges if edge[:2] == "1."]
    assert edges
    for edge in edges:
        assert [part for part, _ in version.parts("tensorflow", edge, GENERATIONS)] == ["tensorflow.keras"], edge


def test_a_part_is_found_by_the_version_of_its_distribution():
    rows = (("a", "1.0", "2.0", "m"), ("a.b", "1.5", "1.7", "n"), ("ab", "1.0", "2.0", "o"))
    assert version.parts("a", "1.6.2", rows) == [("a.b", "n")]
    assert version.parts("a", "1.8", rows) == []


def test_the_registry_is_strings_and_imports_nothing():
    tree = parse(HOOKS / "registry.py")
    assert list(imported(ast.walk(tree))) == []
    (table,) = tree.body[1:]
    assert {type(value) for row in ast.literal_eval(table.value) for value in row} == {str}


# -- who imports whom ----------------------------------------------------------------------------------------------


@each("path", HOOK_FILES + SHIM_FILES)
def test_no_framework_is_imported_before_the_script_imports_it(path):
    names = {name.split(".")[0] for name in imported(run_on_import(parse(path)))}
    assert names & FRAMEWORKS == set()


@each("path", sorted((HOOKS / "engine").glob("*.py")))
def test_the_engine_imports_the_standard_library_only(path):
    for name in imported(ast.walk(parse(path))):
        is_ours = name.startswith((*FOUNDATIONS, "py_hooks.engine", "_pedl"))
        assert is_ours or is_in_standard_library(name), name


@each("path", SHIM_FILES)
def test_what_scripts_import_knows_nothing_of_the_hooks(path):
    for name in imported(ast.walk(parse(path))):
        assert name.split(".")[0] in ("pedl", "_pedl") or is_in_standard_library(name), name


@each("path", [path for room in NEUTRAL for path in sorted((HOOKS / room).rglob("*.py"))])
def test_neutral_advice_knows_no_library(path):
    rooms = tuple(f"py_hooks.{room}" for room in NEUTRAL)
    for name in imported(ast.walk(parse(path))):
        assert not name.startswith("py_hooks.") or name.startswith((*FOUNDATIONS, "py_hooks.engine", *rooms)), name


def test_the_extension_module_is_imported_in_two_places():
    names = {path: {name.split(".")[0] for name in imported(run_on_import(parse(path)))} for path in HOOK_FILES}
    found = {short(path) for path in HOOK_FILES if "_pedl" in names[path]}
    # The first module in a process makes what the others get; its words are in a file.
    assert found == {"py_hooks/boot/process.py", "py_hooks/border.py"}
