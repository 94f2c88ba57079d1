"""The rooms of `py_hooks`: which may import which, so that a reader knows what a room depends on, and nothing goes round."""

import ast
import collections

import pytest
from counters import imports
from support import ROOT, parse

HOOKS = ROOT / "py_hooks"

# A room is a folder. Each may import from those named beside it, and every room from the files at the top of `py_hooks`, which
# import from no room. No room is named above its own line, so there are no circles.
ROOMS = {
    "engine": [],
    "facts": ["engine"],
    "recording": ["engine"],
    "options": ["engine"],
    "random_numbers": ["recording"],
    "ranks": ["recording"],
    "script_io": ["random_numbers", "recording"],
    "workers/transfer": ["random_numbers", "recording"],
    "workers": ["recording", "workers/transfer"],
    "datasets": ["random_numbers", "recording", "workers", "workers/transfer"],
    "torch": ["datasets", "random_numbers", "ranks", "recording", "workers"],
    "tf_keras": ["recording"],
    "trial_classes": [],
    "tensorflow/files": ["facts", "recording"],
    "tensorflow/graphs": ["engine", "facts", "recording"],
    "tensorflow/random_ops": ["random_numbers", "recording", "tensorflow/graphs"],
    "tensorflow/sessions": ["engine", "facts", "recording", "tensorflow/files", "tensorflow/graphs"],
    "tensorflow/variables": ["engine", "recording", "tensorflow/files", "tensorflow/random_ops", "tensorflow/sessions"],
    "tensorflow/data": [
        "datasets", "facts", "random_numbers", "recording", "tensorflow/graphs", "tensorflow/random_ops", "tensorflow/variables",
    ],
    "tensorflow": ["engine", "ranks", "recording", "tensorflow/graphs", "tensorflow/sessions"],
    "tensorflow/generations": [
        "engine", "facts", "tensorflow", "tensorflow/data", "tensorflow/files", "tensorflow/graphs", "tensorflow/random_ops",
        "tensorflow/sessions", "tensorflow/variables",
    ],
    "keras": ["datasets", "engine", "facts", "random_numbers", "recording", "tensorflow", "workers"],
    "keras/keras3": [
        "datasets", "engine", "keras", "random_numbers", "recording", "tensorflow/data", "tensorflow/variables", "torch",
        "workers",
    ],
    "keras/keras2_eager": [
        "datasets", "engine", "facts", "keras", "keras/keras3", "recording", "tensorflow/data", "tensorflow/variables", "workers",
    ],
    "keras/keras2_graph": [
        "datasets", "engine", "keras", "recording", "tensorflow/graphs", "tensorflow/sessions", "tensorflow/variables", "workers",
    ],
    "keras/generations": ["engine", "facts", "keras", "keras/keras2_eager", "keras/keras2_graph", "keras/keras3", "tensorflow"],
    "tensorflow_keras": [],
    "tensorflow_keras/generations": [
        "engine", "facts", "keras", "keras/generations", "keras/keras2_eager", "keras/keras2_graph", "tensorflow",
        "tensorflow/sessions",
    ],
    "verbs": ["engine", "facts", "tensorflow", "torch"],
    "boot": [
        "datasets", "engine", "options", "random_numbers", "recording", "script_io", "tensorflow", "tensorflow/data",
        "tensorflow/graphs", "tensorflow/sessions", "tf_keras", "torch", "trial_classes", "workers", "workers/transfer",
    ],
}

# The one room that imports `pedl` when it is imported itself: it runs in place of a script.
IMPORTS_PEDL = "trial_classes"

# Files that import from `py_hooks` inside of functions, and why.
LATE = {
    "boot/host.py": "reports a failed import of the next line as one error",
    "boot/install.py": "what watches commands and files is needed once a library trains",
    "boot/process.py": "a script that trains nothing must not pay for what it does not use: each import takes time at the start",
    "boot/trial_host.py": "the parts of a framework are needed by its trial classes only",
    "boot/worker_server.py": "the server imports as little as possible before it forks, so that workers start clean",
    "keras/keras3/passes.py": "pipelines are needed on TensorFlow only",
    "recording/forks.py": "is imported at the start of each script, before there is a recorder",
    "script_io/commands.py": "is imported at the start of each script, before there is a recorder",
    "script_io/files.py": "is imported at the start of each script, before there is a ledger or an input",
    "script_io/kept.py": "is imported at the start of each script, before there is a recorder",
    "script_io/noted_changes.py": "is imported at the start of each script, before there is a recorder or a ledger",
    "script_io/seen_files.py": "inputs are needed once a file was changed",
    "trial_classes/program.py": "the loop of tensorpack is needed by its trial classes only",
    "verbs/export.py": "an export needs the codec of its framework only",
    "verbs/report.py": "exports are needed by one verb only",
}

FILES = sorted(path for path in HOOKS.rglob("*.py") if "boot_site" not in path.parts)


def short(path):
    return str(path.relative_to(HOOKS))


def room_of(path):
    """The folder of a file; empty for the files at the top."""
    folder = str(path.parent.relative_to(HOOKS))
    return "" if folder == "." else folder


def imports_of(path):
    """`(file, is_late)` of each file of `py_hooks` that a file imports; late means inside of a function."""
    return imports.imports(parse(path), HOOKS)


def test_each_room_is_in_the_table_and_each_line_is_a_room():
    assert sorted(ROOMS) == sorted({room_of(path) for path in FILES} - {""})


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_rooms_above_it_in_the_table_only(room):
    above = list(ROOMS)[: list(ROOMS).index(room)]
    assert set(ROOMS[room]) <= set(above)


@pytest.mark.parametrize("path", FILES, ids=short)
def test_a_file_imports_from_the_rooms_that_its_room_may_use(path):
    used = {room_of(found) for found, _ in imports_of(path)} - {"", room_of(path)}
    assert used <= set(ROOMS.get(room_of(path), []))


def test_no_room_may_use_more_than_it_does():
    used = collections.defaultdict(set)
    for path in FILES:
        used[room_of(path)].update(room_of(found) for found, _ in imports_of(path))
    assert {room: sorted(used[room] - {"", room}) for room in ROOMS} == {room: sorted(given) for room, given in ROOMS.items()}


def test_no_file_imports_itself_by_others():
    arrows = {path: {found for found, _ in imports_of(path)} for path in FILES}
    assert [sorted(map(short, ring)) for ring in imports.circles(arrows)] == []


@pytest.mark.parametrize("path", FILES, ids=short)
def test_an_import_inside_of_a_function_has_a_reason(path):
    late = any(is_late for _, is_late in imports_of(path))
    assert late == (short(path) in LATE), LATE.get(short(path), "it is not in the list `LATE`")


@pytest.mark.parametrize("path", FILES, ids=short)
def test_pedl_is_imported_by_the_script_first(path):
    """A script that does not import `pedl` may have another module of this name."""
    waiting, found = [parse(path)], False
    while waiting:
        node = waiting.pop()
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        found |= any(name.split(".")[0] == "pedl" for name in names)
        is_for_types = isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING"
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)) and not is_for_types:
            waiting.extend(ast.iter_child_nodes(node))
    assert not found or room_of(path) == IMPORTS_PEDL
