"""Facts: each generation states all that its code asks for, and no other file finds out what a version has.

Nothing here needs a framework.
"""
import ast
import functools
import importlib
import inspect
import re
import sys
import types

import pytest
import support
from support import ROOT

from py_hooks.engine import version
from py_hooks.facts import keras, stated, tensorflow
from py_hooks.registry import GENERATIONS

HOOKS = ROOT / "py_hooks"
parse = functools.lru_cache(maxsize=None)(support.parse)
FILES = sorted(path for path in HOOKS.rglob("*.py") if "boot_site" not in path.parts)

CLASSES = (tensorflow.TensorFlowFacts, keras.Keras3Facts, keras.EagerFacts, keras.GraphFacts)

# The functions that return facts, and of which class they are. `facts` is the attribute of a generation, or that of `_Keras`.
ACCESSORS = {
    "tensorflow_facts": (tensorflow.TensorFlowFacts,),
    "keras_facts": (keras.KerasFacts,),
    "facts_of": (keras.KerasFacts,),
    "eager_facts": (keras.EagerFacts,),
    "graph_facts": (keras.GraphFacts,),
    "graph_facts_of": (keras.GraphFacts,),
    "facts": (keras.EagerFacts, keras.GraphFacts, keras.Keras3Facts),
}

FRAMEWORKS = {"flax", "jax", "jaxlib", "keras", "keras_preprocessing", "numpy", "tensorflow", "tf_keras", "torch"}

# Files that name versions, and why. None of them decides by one what to intercept.
NAME_VERSIONS = {
    "engine/version.py": "chooses the generation",
    "keras/models.py": "a checkpoint says with which version a model was trained",
    "recording/exactness.py": "a trial records with which versions it began",
    "tensorflow/served_graphs.py": "a checkpoint says with which version a model was trained",
    "torch/ranks.py": "a message says which version is too old",
    "torch/states.py": "a checkpoint says with which version a model was trained",
    "trial_classes/tensorpack.py": "a message says which version is not supported",
    "verbs/export.py": "an export may use a version of no generation",
    "verbs/report.py": "lists what is installed",
    "workers/transfer/definitions.py": "a module of the script may compute with a version",
}

# Files that handle an import that fails, and why.
FAILED_IMPORTS = {
    "boot/install.py": "a library is half installed",
    "engine/guard.py": "outside of a trial there is no extension module",
    "engine/patch.py": "a library does not have a target",
    "recording/step_callbacks.py": "a configuration names a module of the script",
    "trial_classes/definition.py": "a definition names a module of the user",
    "trial_classes/tensorpack.py": "tensorpack may not be installed",
}

# Files that look at signatures, and why.
SIGNATURES = {
    "keras/entry_points.py": "names the arguments of a call, and of all versions in the same way",
    "keras/plan.py": "finds the place of `epochs` among the arguments of a call",
    "tensorflow/data/pipelines.py": "names the arguments of a call, and of all versions in the same way",
    "workers/transfer/marks.py": "identifies code of the script",
}

# What modules of frameworks are asked for although it may be missing, and why.
OF_MODULES = {
    ("random_numbers/owned_generators.py", "Generator"): "NumPy has no generations",
    ("random_numbers/random_streams.py", None): "NumPy has no generations",
    ("tensorflow/random_ops/random_states.py", "_rng"): "a context has it once a seed is set",
    ("torch/ranks.py", "broadcast_object_list"): "torch has no generations",
    ("verbs/report.py", "__version__"): "what is installed may be no library",
}

# Attributes with an underscore that an object may not have, in the rooms of frameworks, and why.
OF_ROOMS = ("keras", "tensorflow", "tensorflow_keras", "tf_keras", "torch")
OF_OBJECTS = {
    "_begun": "a class of this project",
    "_dataset": "TensorFlow 1 wraps some data sets, and TensorFlow 2 those of `tf.compat.v1`",
    "_fields": "only named tuples have it",
    "_flat_metrics": "only the metrics with which a model was compiled have it",
    "_initializer": "a variable of Keras 3 has it until it is built",
    "_learning_rate": "an optimizer may be the script's",
    "_map_func": "a data set may have no function",
    "_primary": "only a variable of a strategy has parts",
    "_rng": "a context has it once a seed is set",
    "_value": "a variable of Keras 3 has it once it is built",
}

def short(path):
    return str(path.relative_to(HOOKS))


def generations(library=None):
    return [importlib.import_module("py_hooks." + row[3]).GENERATION for row in GENERATIONS if library in (None, row[0])]


def arguments(kind):
    return list(inspect.signature(kind).parameters)


# -- what generations state ----------------------------------------------------------------------------------------


def test_each_generation_that_intercepts_anything_states_its_facts():
    for generation in generations():
        kinds = (tensorflow.TensorFlowFacts,) if generation.distribution == "tensorflow" else CLASSES[1:]
        assert (type(generation.facts) in kinds) == bool(generation.patches), (generation.distribution, generation.first)


def test_the_kind_of_facts_is_that_of_the_code_that_asks():
    for generation in generations("keras") + generations("tensorflow.keras"):
        asks = {row.advice.__module__.split(".")[2] for row in generation.patches}
        of_rooms = {"keras3": keras.Keras3Facts, "keras2_eager": keras.EagerFacts, "keras2_graph": keras.GraphFacts}
        assert [type(generation.facts)] * bool(asks) == [of_rooms[room] for room in asks if room in of_rooms]


@pytest.mark.parametrize("kind", CLASSES)
def test_a_fact_has_a_description_and_no_default(kind):
    assert all(one.default is one.empty for one in inspect.signature(kind).parameters.values())
    described = re.findall(r"^ {4}(\w+): ", inspect.getdoc(kind), re.MULTILINE)
    assert described == arguments(kind)


def test_what_the_code_asks_for_is_a_fact_and_each_fact_is_asked_for():
    asked = set()
    for path in FILES:
        if path.parent.name == "facts":
            continue
        for name, kinds in _asked_in(parse(path)):
            known = {argument for kind in kinds for argument in arguments(kind)}
            assert name in known, f"{short(path)} asks for `{name}`"
            asked.add(name)
    assert asked == {name for kind in CLASSES for name in arguments(kind)}


def _asked_in(tree):
    """`(name of an attribute, classes of facts)` for each that is taken from facts, or from a name that is assigned facts."""
    named = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _accessor(node.value):
            named[node.targets[0].id] = ACCESSORS[_accessor(node.value)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in named:
                yield node.attr, named[node.value.id]
            elif _accessor(node.value):
                yield node.attr, ACCESSORS[_accessor(node.value)]


def _accessor(node):
    """The name in `ACCESSORS` by which an expression is facts; None for other expressions."""
    if isinstance(node, ast.Call):
        node = node.func
        name = getattr(node, "attr", getattr(node, "id", None))
        return name if name in ACCESSORS else None
    is_of_generation = isinstance(node, ast.Attribute) and node.attr == "facts" and getattr(node.value, "id", "") == "generation"
    return "facts" if is_of_generation else None


@pytest.mark.parametrize(("text", "module"), [
    ("1.12.0", "v1_13_1_to_v1_13_2"),
    ("1.15.5", "v1_15_0_to_v1_15_5"),
    ("2.12.1", "v2_8_0_to_v2_12_1"),
    ("2.13.0", "v2_13_0_to_v2_15_1"),
    ("2.16.2", "v2_13_0_to_v2_15_1"),
    ("2.18.0rc1", "v2_18_0_on"),
])
def test_a_version_that_is_let_in_has_the_facts_of_the_generation_before_it(monkeypatch, text, module):
    library = types.ModuleType("tensorflow")
    library.__version__ = text
    monkeypatch.setitem(sys.modules, "tensorflow", library)
    monkeypatch.setattr(stated, "_FOUND", {})
    generation = importlib.import_module("py_hooks.tensorflow.generations." + module).GENERATION
    assert version.nearest("tensorflow", text, GENERATIONS) == "tensorflow.generations." + module
    assert tensorflow.tensorflow_facts() is generation.facts


# -- no other file looks at versions -------------------------------------------------------------------------------


def test_files_that_name_versions_have_a_reason():
    words = ("__version__", "version_info")
    assert _files_with(lambda node: getattr(node, "attr", None) in words or _text(node) in words) == set(NAME_VERSIONS)


def test_files_that_handle_a_failed_import_have_a_reason():
    def handles(node):
        kinds = ast.walk(node.type) if isinstance(node, ast.ExceptHandler) and node.type else ()
        return any(getattr(kind, "id", None) in ("ImportError", "ModuleNotFoundError") for kind in kinds)

    assert _files_with(handles) == set(FAILED_IMPORTS)


def test_files_that_look_at_signatures_have_a_reason():
    def looks(node):
        # Definitions of functions in graphs have an attribute `signature`, too.
        is_of_inspect = getattr(getattr(node, "value", None), "id", None) == "inspect"
        return getattr(node, "attr", None) in ("getfullargspec", "co_varnames") or (
            is_of_inspect and node.attr in ("signature", "Signature")
        )

    assert _files_with(looks) == set(SIGNATURES)


def _files_with(wanted):
    return {short(path) for path in FILES if any(wanted(node) for node in ast.walk(parse(path)))}


def test_no_module_of_a_framework_is_asked_for_what_only_some_versions_have():
    found = {(short(path), name) for path in FILES for held, name in _maybe_missing(path) if _begins(held) in _imported(path)}
    assert found == set(OF_MODULES)


def test_no_object_is_asked_for_internals_that_only_some_versions_have():
    files = [path for path in FILES if short(path).split("/")[0] in OF_ROOMS]
    found = {name for path in files for _, name in _maybe_missing(path) if re.match("_(?!pedl|_)", name or "")}
    assert found == set(OF_OBJECTS)


def _maybe_missing(path):
    """`(object, name)` of each `hasattr`, and each `getattr` with a default; the name is None if it is no literal."""
    for node in ast.walk(parse(path)):
        asks = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
        if asks == "hasattr" or (asks == "getattr" and len(node.args) == 3):
            yield node.args[0], _text(node.args[1])


def _begins(node):
    """The name that an expression begins with, or `import_module`."""
    while node is not None and not isinstance(node, ast.Name):
        if getattr(node, "attr", None) == "import_module":
            return "import_module"
        node = getattr(node, "value", None) or getattr(node, "func", None)
    return getattr(node, "id", None)


@functools.lru_cache(maxsize=None)
def _imported(path):
    """The names that stand for modules of frameworks, or are imported from them, in a file."""
    names = {"import_module"}
    for node in ast.walk(parse(path)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                top = (getattr(node, "module", None) or alias.name).split(".")[0]
                names.update([(alias.asname or alias.name).split(".")[0]] if top in FRAMEWORKS else [])
    return names


def _text(node):
    """The text of a literal; None for other nodes."""
    value = ast.literal_eval(node) if type(node).__name__ in ("Constant", "Str") else None
    return value if isinstance(value, str) else None
