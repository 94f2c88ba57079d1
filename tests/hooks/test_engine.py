"""The engine: the import hook, patches that are installed all or not at all, and the choice of a generation.

It knows no framework, so small libraries that are made here take their place.
"""
import importlib
import inspect
import sys
import textwrap
import types

import pytest

from py_hooks.engine import import_hook, patch, version
from py_hooks.engine.patch import Generation, Patch


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A function that writes a module or package named `toy...`; all of them are removed after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(name, text="", package=False):
        path = tmp_path.joinpath(*name.split("."))
        path = path / "__init__.py" if package else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()

    yield write
    for name in [name for name in sys.modules if name.split(".")[0].startswith("toy")]:
        del sys.modules[name]


@pytest.fixture
def finder():
    installed = import_hook.install()
    yield installed
    sys.meta_path.remove(installed)


# -- the import hook -----------------------------------------------------------------------------------------------


def test_a_callback_runs_once_and_after_the_module_has_run(library, finder):
    library("toy", "value = 1\nlast = 2\n")
    seen = []
    finder.when_imported("toy", lambda module: seen.append((module, module.last)))
    assert seen == []
    module = importlib.import_module("toy")
    importlib.import_module("toy")
    importlib.reload(module)
    assert seen == [(module, 2)]


def test_all_callbacks_of_a_module_run_in_their_order(library, finder):
    library("toy")
    seen = []
    for number in range(3):
        finder.when_imported("toy", lambda module, number=number: seen.append(number))
    importlib.import_module("toy")
    assert seen == [0, 1, 2]


def test_a_module_that_is_there_gets_its_callback_at_once(library, finder):
    library("toy")
    module = importlib.import_module("toy")
    seen = []
    finder.when_imported("toy", seen.append)
    assert seen == [module]


def test_a_submodule_is_waited_for_by_its_full_name(library, finder):
    library("toy", package=True)
    library("toy.inner", package=True)
    library("toy.inner.leaf", "value = 3\n")
    seen = []
    for name in ("toy.inner.leaf", "toy"):
        finder.when_imported(name, lambda module: seen.append(module.__name__))
    leaf = importlib.import_module("toy.inner.leaf")
    assert seen == ["toy", "toy.inner.leaf"]
    assert (leaf.value, sys.modules["toy"].inner.leaf) == (3, leaf)


def test_a_callback_may_import_the_modules_of_its_library(library, finder):
    library("toy", "name = 'toy'\n", package=True)
    library("toy.late", "import toy\nname = toy.name + '.late'\n")
    seen = []
    finder.when_imported("toy", lambda module: seen.append(importlib.import_module("toy.late").name))
    importlib.import_module("toy")
    assert seen == ["toy.late"]


def test_a_library_that_its_own_submodule_imports_is_complete_for_its_callback(library, finder):
    library("toy", "import toy.first\nlast = True\n", package=True)
    library("toy.first", "import toy\n")
    seen = []
    finder.when_imported("toy", lambda module: seen.append(module.last))
    importlib.import_module("toy.first")
    assert seen == [True]


def test_a_module_looks_as_if_nobody_had_waited(library, finder):
    library("toy", "def double(value):\n    return 2 * value\n", package=True)
    plain = importlib.import_module("toy")
    kinds = type(plain.__loader__), sorted(vars(plain)), plain.__spec__.origin
    del sys.modules["toy"]
    finder.when_imported("toy", lambda module: None)
    module = importlib.import_module("toy")
    assert (type(module.__loader__), sorted(vars(module)), module.__spec__.origin) == kinds
    assert module.__loader__ is module.__spec__.loader
    assert inspect.getsource(module.double) == "def double(value):\n    return 2 * value\n"


def test_an_import_that_fails_is_the_librarys_own_failure_and_can_be_repeated(library, finder):
    library("toy", "import toy_switch\nif toy_switch.broken:\n    raise toy_switch.broken\n")
    switch = types.ModuleType("toy_switch")
    switch.broken = ValueError("the library's own")
    sys.modules["toy_switch"] = switch
    seen = []
    finder.when_imported("toy", seen.append)
    with pytest.raises(ValueError, match="the library's own") as raised:
        importlib.import_module("toy")
    assert raised.value is switch.broken
    assert seen == []
    assert "toy" not in sys.modules

    switch.broken = None
    module = importlib.import_module("toy")
    assert seen == [module]


def test_a_library_that_is_not_there_is_missing_as_ever(finder):
    before = []
    finder.before_import("toy_missing", before.append)
    finder.when_imported("toy_missing", lambda module: pytest.fail("nothing was imported"))
    with pytest.raises(ModuleNotFoundError, match="^No module named 'toy_missing'$") as raised:
        importlib.import_module("toy_missing")
    assert raised.value.name == "toy_missing"
    assert before == ["toy_missing"]


def test_something_can_be_done_before_the_library_runs_once(library, finder):
    library("toy", "import toy_switch\nfound = toy_switch.ready\n")
    switch = types.ModuleType("toy_switch")
    switch.ready = 0
    sys.modules["toy_switch"] = switch

    def prepare(name):
        assert name == "toy"
        switch.ready += 1

    finder.before_import("toy", prepare)
    assert importlib.import_module("toy").found == 1
    del sys.modules["toy"]
    assert importlib.import_module("toy").found == 1


def test_nothing_is_done_before_the_import_of_what_is_there(library, finder):
    library("toy")
    importlib.import_module("toy")
    finder.before_import("toy", lambda name: pytest.fail("it is too late"))
    del sys.modules["toy"]
    importlib.import_module("toy")


def test_other_modules_go_past_the_hook(library, finder):
    library("toy_other", "value = 5\n")
    finder.when_imported("toy", lambda module: pytest.fail("nothing of that name was imported"))
    assert importlib.import_module("toy_other").value == 5
    assert finder.find_spec("toy_other") is None


def test_an_exception_of_a_callback_is_seen_by_the_script(library, finder):
    library("toy")
    error = RuntimeError("of the callback")

    def fail(module):
        raise error

    finder.when_imported("toy", fail)
    with pytest.raises(RuntimeError) as raised:
        importlib.import_module("toy")
    assert raised.value is error
    assert "toy" not in sys.modules


# -- patches -------------------------------------------------------------------------------------------------------

TOY = """
class Base:
    def start(self, workers=1):
        '''Starts.'''
        return "started {}".format(workers)

    @property
    def value(self):
        return self._value

    @value.setter
    def value(self, value):
        self._value = value

    @staticmethod
    def add(left, right):
        return left + right

    @classmethod
    def name(cls, suffix=""):
        return cls.__name__ + suffix

class Ordered(Base):
    class Inner:
        def run(self):
            return "inner"

def train(model, *batches, epochs=1, **options):
    return model, batches, epochs, options
"""


@pytest.fixture
def toy(library):
    library("toy", TOY)
    return importlib.import_module("toy")


def generation(*rows, **settings):
    return Generation("toy", "1.0", "2.0", None, tuple(rows), **settings)


def row(attribute, advice, module="toy"):
    return Patch(module, attribute, advice, "see whether it is called")


def counting(seen):
    """An advice that notes its arguments, and calls the original."""

    def advice(original, *args, **kwargs):
        seen.append((original.__name__, args, kwargs))
        return original(*args, **kwargs)

    return advice


def contents(owner):
    return [(name, id(value)) for name, value in vars(owner).items()]


def test_a_patched_target_calls_its_advice_with_the_original_and_the_arguments(toy):
    seen = []
    patch.install(generation(row("train", counting(seen)), row("Base.start", counting(seen))))
    assert toy.train(1, 2, 3, epochs=4, rate=5) == (1, (2, 3), 4, {"rate": 5})
    base = toy.Base()
    assert base.start(workers=2) == "started 2"
    assert seen == [("train", (1, 2, 3), {"epochs": 4, "rate": 5}), ("start", (base,), {"workers": 2})]


def test_what_an_advice_returns_is_what_the_caller_gets(toy):
    patch.install(generation(row("Base.start", lambda original, self, *args, **kwargs: self)))
    base = toy.Base()
    assert base.start() is base


def test_a_patched_target_looks_like_the_original(toy):
    before = toy.Base.start, inspect.signature(toy.Base.start), inspect.signature(toy.train)
    patch.install(generation(row("Base.start", counting([])), row("train", counting([]))))
    after = toy.Base.start
    assert after is not before[0]
    assert (inspect.signature(after), inspect.signature(toy.train)) == before[1:]
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        assert getattr(after, attribute) == getattr(before[0], attribute)
    assert inspect.unwrap(after) is before[0]


def test_an_advice_may_be_bound_to_its_original_once(toy):
    bound, seen = [], []

    @patch.binding
    def advice(original):
        bound.append(original)

        def start(base, *args, **kwargs):
            seen.append(base)
            return original(base, *args, **kwargs)

        return start

    before = toy.Base.start
    uninstall = patch.install(generation(row("Base.start", advice)))
    bases = [toy.Base(), toy.Base()]
    assert [base.start() for base in bases] == ["started 1"] * 2
    assert ([each.__wrapped__ for each in bound], seen) == ([before], bases)
    assert inspect.signature(toy.Base.start) == inspect.signature(before)
    assert inspect.unwrap(toy.Base.start) is before
    uninstall()
    assert toy.Base.start is before


def test_properties_static_and_class_methods_stay_what_they_are(toy):
    seen = []
    rows = [row("Base." + name, counting(seen)) for name in ("value", "add", "name")]
    patch.install(generation(*rows))
    kinds = [type(vars(toy.Base)[name]) for name in ("value", "add", "name")]
    assert kinds == [property, staticmethod, classmethod]
    base = toy.Ordered()
    base.value = 7
    assert base.value == 7
    assert (base.add(1, 2), toy.Base.add(3, 4)) == (3, 7)
    assert (base.name("!"), toy.Base.name()) == ("Ordered!", "Base")
    assert [name for name, _, _ in seen] == ["value", "add", "add", "name", "name"]
    assert [args for _, args, _ in seen[3:]] == [(toy.Ordered, "!"), (toy.Base,)]


def test_an_inherited_target_is_patched_on_the_class_that_callers_use(toy):
    seen = []
    original = toy.Base.start
    uninstall = patch.install(generation(row("Ordered.start", counting(seen))))
    assert toy.Base().start() == "started 1"
    assert seen == []
    assert toy.Ordered().start() == "started 1"
    assert len(seen) == 1
    assert toy.Base.start is original
    uninstall()
    assert "start" not in vars(toy.Ordered)
    assert toy.Ordered.start is original


def test_a_target_may_lie_in_a_class_in_a_class(toy):
    seen = []
    patch.install(generation(row("Ordered.Inner.run", counting(seen))))
    assert toy.Ordered.Inner().run() == "inner"
    assert len(seen) == 1


def test_undo_puts_the_very_same_objects_back_where_they_were(toy):
    owners = toy, toy.Base, toy.Ordered
    before = [contents(owner) for owner in owners]
    names = ("train", "Base.start", "Base.value", "Base.add", "Base.name", "Ordered.start", "Ordered.value")
    uninstall = patch.install(generation(*[row(name, counting([])) for name in names]))
    assert [contents(owner) for owner in owners] != before
    uninstall()
    assert [contents(owner) for owner in owners] == before


def test_what_another_generation_has_put_there_already_is_not_put_there_again(toy):
    seen = []
    advice = counting(seen)
    first = patch.install(generation(row("Base.start", advice)))
    second = patch.install(generation(row("Base.start", advice), row("train", advice)))
    toy.Ordered().start()
    assert len(seen) == 1
    # The patch belongs to the first one.
    second()
    toy.Ordered().start()
    assert len(seen) == 2
    first()
    toy.Ordered().start()
    assert len(seen) == 2


def test_undo_takes_two_generations_back_in_reverse(toy):
    before = contents(toy.Base)
    seen = []
    first = patch.install(generation(row("Base.start", counting(seen))))
    second = patch.install(generation(row("Base.start", counting(seen))))
    toy.Base().start()
    assert len(seen) == 2
    second()
    first()
    assert contents(toy.Base) == before


def test_of_several_backends_the_chosen_ones_rows_are_installed(toy):
    seen = []
    backends = {"one": (row("Base.add", counting(seen)),), "two": (row("Base.name", counting(seen)),)}
    patch.install(generation(row("train", counting(seen)), backends=backends), "two")
    toy.Base.add(1, 2), toy.Base.name(), toy.train(None)
    assert [name for name, _, _ in seen] == ["name", "train"]


@pytest.mark.parametrize(
    ("missing", "because"),
    [
        (row("Base.stop", None), "cannot patch `toy:Base.stop`: 'Base' has no attribute 'stop'"),
        (row("Model.fit", None), "cannot patch `toy:Model.fit`: module 'toy' has no attribute 'Model'"),
        (row("fit", None), "cannot patch `toy:fit`: 'toy' has no attribute 'fit'"),
        (
            row("Base.start", None, module="toy_missing.engine"),
            "cannot patch `toy_missing.engine:Base.start`: No module named 'toy_missing'",
        ),
    ],
    ids=["method", "class", "function", "module"],
)
def test_where_one_target_is_missing_nothing_is_patched(toy, missing, because):
    before = contents(toy), contents(toy.Base)
    with pytest.raises(patch.PatchTargetMissing) as raised:
        patch.install(generation(row("train", counting([])), row("Base.start", counting([])), missing))
    assert (contents(toy), contents(toy.Base)) == before
    assert raised.value.exit_code == 69
    assert str(raised.value) == (
        because + "\n"
        "  a row of generation toy 1.0 - 2.0; needed to see whether it is called\n"
        "  nothing was patched; the script was stopped before it trained"
    )
    assert raised.value.hint == "is toy half installed, or modified? reinstall it, or pass `--no-hooks toy`"


def test_an_exception_of_the_target_passes_through_as_the_same_object(toy):
    error = KeyError("of the user")

    class Broken(toy.Base):
        @property
        def workers(self):
            raise error

    def advice(original, self):
        return original(self, workers=self.workers)

    patch.install(generation(row("Base.start", advice)))
    with pytest.raises(KeyError) as raised:
        Broken().start()
    assert raised.value is error
    assert (error.__cause__, error.__context__) == (None, None)


def test_a_function_that_others_have_bound_by_name_is_not_reached(toy):
    seen = []
    bound = toy.train
    patch.install(generation(row("train", counting(seen))))
    bound(None)
    assert seen == []


# -- the choice of a generation ------------------------------------------------------------------------------------

ROWS = (
    ("toy", "2.2.5", "2.3.1", "toy.v2_2_5_to_v2_3_1"),
    ("toy", "3.13.0", "on", "toy.v3_13_0_on"),
    ("other", "1.0.0", "on", "other.v1_0_0_on"),
)


def choose(text):
    return version.choose("toy", text, ROWS, "/opt/toy")


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("2.2.5", "toy.v2_2_5_to_v2_3_1"),
        ("2.3.0", "toy.v2_2_5_to_v2_3_1"),
        ("2.3.1", "toy.v2_2_5_to_v2_3_1"),
        ("2.3.1+cpu", "toy.v2_2_5_to_v2_3_1"),
        ("2.3.1.post2", "toy.v2_2_5_to_v2_3_1"),
        ("3.13", "toy.v3_13_0_on"),
        ("3.13.0", "toy.v3_13_0_on"),
        ("3.13.10", "toy.v3_13_0_on"),
        ("3.99.0", "toy.v3_13_0_on"),
    ],
)
def test_a_range_holds_both_its_ends(text, module):
    assert choose(text) == module


@pytest.mark.parametrize(
    "text",
    ["2.2.4", "2.2.10rc1", "2.3.2", "2.3.1.1", "2.4.0", "3.0.0", "3.9.9", "3.12.9", "3.12.10", "1.0.0", "2", "", "git"],
)
def test_a_version_in_no_range_is_refused(text):
    with pytest.raises(version.UnsupportedVersion):
        choose(text)


@pytest.mark.parametrize("text", ["2.3.1rc0", "2.3.0b2", "3.13.0.dev2026", "3.14.0a1", "99-dev", "3.13.0rc1+local"])
def test_a_prerelease_is_refused_also_inside_a_range(text):
    with pytest.raises(version.UnsupportedVersion):
        choose(text)


def test_a_refusal_says_what_was_found_where_and_what_would_do():
    with pytest.raises(version.UnsupportedVersion) as raised:
        choose("2.4.0")
    assert raised.value.exit_code == 69
    assert str(raised.value) == (
        "toy `2.4.0` is not a version pedl-run can intercept\n"
        "  found at: /opt/toy\n"
        "  known: 2.2.5 - 2.3.1, 3.13.0 and later\n"
        "  the script was stopped before it trained"
    )
    assert raised.value.hint == (
        "install a listed version, or pass `--no-hooks toy` to train without checkpoints and resume"
    )
