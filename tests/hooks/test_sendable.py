"""Which data sets are sent to another process, and when they arrive there unchanged."""

import importlib
import itertools
import os
import re
import socket
import subprocess
import sys
import textwrap
import types
import warnings

import _pedl
import pytest

from py_hooks import places
from py_hooks.random_numbers import random_streams
from py_hooks.recording import entries
from py_hooks.script_io import given_warnings
from py_hooks.workers.transfer import definitions, sendable, settings
from py_hooks.workers.transfer.marks import Unnamed, portable

numpy = pytest.importorskip("numpy", reason="only stacks with a framework have numpy")

pytestmark = pytest.mark.stack("keras")

NAMES = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A function that makes a module of the user, and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(places, "KNOWN", {})

    def make(text, name=None):
        name = name or f"sendable_{next(NAMES)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        (tmp_path / "sendable_settings.py").write_text("LEVEL = 1.0\n")
        importlib.invalidate_caches()
        sys.modules.pop("sendable_settings", None)
        return importlib.import_module(name)

    return make


DEFINES = [
    "'''A text.'''",
    "import os, numpy as np\nfrom collections import namedtuple",
    "import os\nSIZE = 2 * 3\nNAMES = ('a', 'b')\nHERE = os.path.dirname(__file__)",
    "import logging\nLOG = logging.getLogger(__name__)",
    "class A:\n    width: int = 3\n    def f(self):\n        print('later')\n    @property\n    def g(self):\n        return 1",
    "import numpy\nIS_NEW = numpy.__version__.startswith('2')",
    "try:\n    import absent_library\nexcept ImportError:\n    absent_library = None",
    "if __name__ == '__main__':\n    print('only then')",
    "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef f(): return 1",
    "TABLE = {name: len(name) for name in ('a', 'b')}\nPAIR, OTHER = 1, 2",
]

DEFINES += [
    "from pathlib import Path as P\nHERE = P(__file__).parent / 'data'",
    "import numpy as n\nMEAN = n.array([1.0, 2.0]).astype" ,
    "class A:\n    @property\n    def x(self): return 1\n    @x.setter\n    def x(self, value): pass",
]

DOES_MORE = {
    "from numpy import loadtxt as array\nX = array('x') if False else 1": 2,
    "print('hello')": 1,
    "import os\nos.environ['A'] = 'b'": 2,
    "import os\nX = os.listdir('.')": 2,
    "for number in range(3):\n    pass": 1,
    "if __name__ != '__main__':\n    print('hello')": 2,
    "import os\nX = os.replace('a', 'b') if False else None": 2,
    "class A:\n    X = print('now')": 2,
    "def register(f): return f\n@register\ndef g(): pass": 2,
    "def f(x=print()): pass": 1,
    "import sys\nif sys.argv:\n    print('hello')": 3,
    "try:\n    print('hello')\nfinally:\n    pass": 2,
    "COUNT = [1]\nCOUNT[0] += 1": 2,
    "def len(x): print(x)\nSIZE = len('x')": 2,
    "from numpy import array\narray = print\nX = array(1)": 3,
    "class A:\n    def __init_subclass__(cls): print('now')": 2,
    "class M(type):\n    def __init__(cls, *rest): print('now')\nclass A(metaclass=M): pass": 1,
    "def f():\n    import importlib\n    return importlib.import_module('x')": 3,
}


@pytest.mark.parametrize("text", DEFINES)
def test_a_module_that_defines_may_be_imported_again(module, text):
    definitions.modules_of([module(text).__name__])


@pytest.mark.parametrize("text", sorted(DOES_MORE))
def test_a_module_that_does_more_may_not(module, text):
    name = module(text).__name__
    with pytest.raises(definitions.DoesMore, match=f"its module `{name}` does more than define, in line {DOES_MORE[text]}$"):
        definitions.modules_of([name])


def test_what_a_module_imports_is_looked_at_too(module):
    busy = module("print('hello')").__name__
    above = module(f"import numpy\nfrom {busy} import *").__name__
    with pytest.raises(definitions.DoesMore, match=f"`{busy}`"):
        definitions.modules_of([above])
    assert "numpy" in definitions.modules_of([module("import numpy").__name__])[0]


ROWS = """
    import logging, numpy, os, xml
    import sendable_settings as settings
    LEVEL = 1.0
    LOG = logging.getLogger(__name__)
    def identity(values):
        return values
    class Configuration:
        scale = 1.0
    def scaled(values):
        LOG.info("scaled")
        return numpy.square(values) * LEVEL * Configuration.scale * settings.LEVEL
    class Rows:
        width = 3
        def __init__(self):
            self.values, self.names, self.me = numpy.arange(10), {"a": [1, 2.5, None]}, self
            self.rng, self.function, self.pair = numpy.random.RandomState(1), scaled, None
        def __getitem__(self, index):
            return scaled(self.values[index])
"""

SHOW = """
import pickle, sys
sys.path[:0] = {path!r}
from py_hooks.workers.transfer.marks import portable
marks, _ = portable(pickle.loads(bytes.fromhex({text!r})))
print(sorted((name, mark.hex()) for name, mark in marks.items()))
"""


def marks_elsewhere(dataset, tmp_path):
    """The result of `marks.portable` in another process."""
    text, _ = sendable.pickled(dataset)
    path = [str(tmp_path), *sys.path, os.path.dirname(_pedl.__file__)]
    program = SHOW.format(path=path, text=text.hex())
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.strip()


def test_marks_are_the_same_in_another_process(module, tmp_path):
    rows = module(ROWS).Rows()

    def here():
        return str(sorted((name, mark.hex()) for name, mark in portable(rows)[0].items()))

    before = marks_elsewhere(rows, tmp_path)
    assert here() == before
    rows.values[3] = 7
    assert here() == marks_elsewhere(rows, tmp_path) != before
    of_module = sys.modules[type(rows).__module__]
    changes = [
        (of_module, "LEVEL", 2.0),
        (type(rows), "__getitem__", lambda self, index: index),
        (of_module.Configuration, "scale", 2.0),
        (of_module.settings, "LEVEL", 2.0),
        (numpy, "square", of_module.identity),
    ]
    for place, name, value in changes:
        before = getattr(place, name)
        setattr(place, name, value)
        assert here() != marks_elsewhere(rows, tmp_path), name
        setattr(place, name, before)
    assert here() == marks_elsewhere(rows, tmp_path)


def test_code_that_was_edited_is_seen(module, tmp_path):
    text = "TABLE = {}\n" + textwrap.dedent(ROWS)
    rows = module(text).Rows()
    before = marks_elsewhere(rows, tmp_path)
    name = type(rows).__module__
    old = "numpy.square(values)"
    for new in ["sum(v for v in (values, 1))", "(values, (0.1, 0.2))[0]", "(values, (0.1, 0.3))[0]"]:
        (tmp_path / f"{name}.py").write_text(text.replace(old, new))
        before, after = marks_elsewhere(rows, tmp_path), before
        assert before != after


def test_what_has_no_name_elsewhere_has_no_marks(module):
    import threading

    rows = module(ROWS + "    lock = None\n").Rows()
    sys.modules[type(rows).__module__].LEVEL = threading.Lock()
    with pytest.raises(Unnamed):
        portable(rows)


def test_what_cannot_be_pickled_is_named(module):
    rows = module(ROWS).Rows()
    rows.stream = open(__file__)  # noqa: SIM115 - it is closed below
    with rows.stream, pytest.raises(sendable.NotSendable, match="its attribute `stream` cannot be pickled"):
        sendable.pickled(rows)


def test_an_array_that_is_not_contiguous_is_not_pickled(module):
    rows = module(ROWS).Rows()
    rows.values = numpy.zeros((4, 6))[:, ::2]
    with pytest.raises(sendable.NotSendable, match="`values` cannot be pickled .an array that is not contiguous"):
        sendable.pickled(rows)


def test_what_is_large_is_not_pickled(module):
    rows = module(ROWS).Rows()
    rows.values = numpy.zeros(65 << 20, "uint8")
    with pytest.raises(sendable.NotSendable, match="`values` cannot be pickled .it has more than 64 MiB"):
        sendable.pickled(rows)


USES = {
    "a function of a context": (
        "from contextlib import contextmanager\n@contextmanager\ndef level():\n    yield LEVEL\n"
        "class Rows:\n    def __getitem__(self, i):\n        with level() as found: return found\n"
    ),
    "the factory of a dictionary": (
        "import collections\ndef level(): return LEVEL\nclass Rows:\n"
        "    def __init__(self): self.held = collections.defaultdict(level)\n"
    ),
    "functions in a queue": (
        "import collections\ndef level(): return LEVEL\nclass Rows:\n"
        "    def __init__(self): self.held = collections.deque([level])\n"
    ),
    "an object with slots": (
        "class A:\n    __slots__ = ('by',)\n    def __call__(self, x): return x * LEVEL\n"
        "class Rows:\n    def __init__(self): self.held = A()\n"
    ),
    "a name that is asked for": (
        "import sys\nclass Rows:\n"
        "    def __getitem__(self, i): return getattr(sys.modules[__name__], 'LE' + 'VEL')\n"
    ),
    "a method of a dictionary": "TABLE = {}\nfind = TABLE.get\nclass Rows:\n    def __getitem__(self, i): return find(i)\n",
    "an attribute of a function": "def f(): return f.by\nclass Rows:\n    def __getitem__(self, i): return f()\n",
    "a default by name": "def f(*, by=1): return by\nclass Rows:\n    def __getitem__(self, i): return f()\n",
    "the setter of a property": (
        "class Rows:\n    @property\n    def x(self): return 1\n"
        "    @x.setter\n    def x(self, value): self.y = value * LEVEL\n"
    ),
    "an array of a class of its own": (
        "import numpy\nclass A(numpy.ndarray):\n    def f(self): return LEVEL\n"
        "class Rows:\n    def __init__(self): self.held = numpy.ones(3).view(A).copy()\n"
    ),
    "the class of a class": (
        "class M(type):\n    @property\n    def level(cls): return LEVEL\nclass A(metaclass=M): pass\n"
        "class Rows:\n    def __getitem__(self, i): return A.level\n"
    ),
}


@pytest.mark.parametrize("use", sorted(USES))
@pytest.mark.parametrize("looks_at_names", [True, False], ids=["all names", "names that are reached"])
def test_whatever_uses_a_global_shows_it(module, use, looks_at_names):
    of_user = module("LEVEL = 1.0\n" + USES[use])
    dataset = of_user.Rows()
    modules = [of_user.__name__] if looks_at_names else []
    before = portable(dataset, modules)[0]
    assert portable(dataset, modules)[0] == before
    of_user.LEVEL = 2.0
    if use == "a method of a dictionary":
        of_user.TABLE[1] = 1
    elif use == "an attribute of a function":
        of_user.f.by = 2
    elif use == "a default by name":
        of_user.f.__kwdefaults__["by"] = 2
    assert (portable(dataset, modules)[0] != before) == (looks_at_names or use != "a name that is asked for")


def test_modules_that_functions_import_are_looked_at(module):
    helper = module("LEVEL = 1.0").__name__
    rows = module(f"class Rows:\n    def __getitem__(self, i):\n        from {helper} import LEVEL\n        return LEVEL\n")
    assert helper in definitions.modules_of([rows.__name__])[1]


BUFFERS = {
    "a part of a buffer": "self.buffer = numpy.zeros((4, 3)); self.inputs = self.buffer[:2]",
    "what the module holds": "self.buffer = BUFFER",
    "a part of what the module holds": "self.buffer = BUFFER[1:]",
    "an object of the module": "self.empty = EMPTY",
    "the global generator": "self.rng = numpy.random.mtrand._rand",
    "memory of a file": "self.rows = numpy.memmap(__file__, mode='r')",
}


@pytest.mark.parametrize("text", BUFFERS.values(), ids=BUFFERS.keys())
def test_what_is_one_thing_with_another_is_not_sent(module, text):
    start = "import numpy\nBUFFER, EMPTY = numpy.zeros(3), {}\nclass Rows:\n    def __init__(self):\n        "
    of_user = module(start + text + "\n")

    def send():
        dataset = of_user.Rows()
        _, pickler = sendable.pickled(dataset)
        libraries, modules = definitions.modules_of(pickler.modules)
        sendable.refuse_shared(pickler.held, portable(dataset, modules)[1], libraries)

    with pytest.raises(sendable.NotSendable):
        send()


@pytest.mark.parametrize(
    "text",
    [
        "def __getattr__(name): return {}[name]\n",
        "import dataclasses, enum, typing\n@dataclasses.dataclass\nclass A:\n    x: typing.Optional[int] = 1\n"
        "class E(enum.Enum):\n    A = 1\n",
    ],
)
def test_modules_with_odd_names_are_looked_at(module, text):
    of_user = module(text + "class Rows:\n    pass\n")
    marks, _ = portable(of_user.Rows(), [of_user.__name__])
    assert marks == portable(of_user.Rows(), [of_user.__name__])[0]
    definitions.modules_of([of_user.__name__])


def test_an_object_that_answers_nothing_has_no_marks(module):
    text = "class Odd:\n    def __getattr__(self, name): raise RuntimeError('not connected')\nODD = Odd()\nclass Rows: pass\n"
    of_user = module(text)
    with pytest.raises(Unnamed):
        portable(of_user.Rows(), [of_user.__name__])


def test_a_class_of_a_package_is_looked_into(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "packaged"
    package.mkdir(parents=True)
    text = "class Level:\n    by = 1\nclass Rows:\n    def __getitem__(self, i): return Level.by\n"
    (package / "__init__.py").write_text(text)
    monkeypatch.syspath_prepend(str(package.parent))
    packaged = importlib.import_module("packaged")
    before = portable(packaged.Rows())[0]
    packaged.Level.by = 2
    assert portable(packaged.Rows())[0] != before


FLAGGED = """
    import collections, configparser, contextvars, functools, logging, numpy, re, threading, types
    LOAD_TRUNCATED = False
    MODE = "slow"
    _cache = {}
    STEPS = [1, (2, "x")]
    class Part:
        rate = width = 1
        def resize(self): return 1
    class Configuration:
        rate = 1
        def __init__(self): self.parts, self.me = [Part()], self
    class Slotted:
        __slots__ = ("rate",)
    def load(): return 1
    def save(*, quality=1): pass
    CONFIGURATION, SLOTTED, HALF = Configuration(), Slotted(), functools.partial(save, quality=2)
    MEAN, ORDERED, LARGE = numpy.zeros(2), collections.OrderedDict([("a", 1), ("b", load)]), list(range(2000))
    def closed(rate):
        def set_rate(value):
            nonlocal rate
            rate = value
        return set_rate, lambda values: values * rate
    set_rate, rated = closed(1)
    PARSER, LOCAL, VARIABLE = configparser.ConfigParser(), threading.local(), contextvars.ContextVar("rate")
    PARSER.add_section("data")
    LOCAL.rate, SPACE = 1, types.SimpleNamespace(rate=1)
    LOG, PATTERN = logging.getLogger("flagged"), re.compile("x")
"""

AWKWARD = """
LEVEL = 1
class Proxy:
    @property
    def __class__(self): raise RuntimeError("not connected")
    def __getattr__(self, name): raise RuntimeError("not connected")
    def __eq__(self, other): raise RuntimeError("not connected")
    __hash__ = None
class Texts(dict):
    def __iter__(self): raise RuntimeError("not connected")
    def __repr__(self): raise RuntimeError("not connected")
PROXY, TEXTS, ITSELF = Proxy(), Texts(a=1), []
ITSELF.append(ITSELF)
ANY = {"a": {1, "x", None}, 2: {(1, 2), (3, 4)}, None: {len, Proxy, dict}}
"""


def test_a_flag_of_a_library_that_the_script_sets_shows(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "flagged"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(FLAGGED))
    monkeypatch.syspath_prepend(str(package.parent))
    flagged = importlib.import_module("flagged")
    before = settings.of_packages(["flagged"])
    # A cache looks like a table of settings. If it differs, workers are forked, which is right.
    changes = [
        lambda: flagged._cache.update(x=1),
        lambda: setattr(flagged, "MODE", "fast"),
        lambda: flagged.STEPS.append(3),
        lambda: setattr(flagged, "LOAD_TRUNCATED", True),
        lambda: setattr(flagged.CONFIGURATION, "rate", 2),
        lambda: setattr(flagged.CONFIGURATION.parts[0], "rate", 2),
        lambda: setattr(flagged.SLOTTED, "rate", 2),
        lambda: setattr(flagged.Part, "width", 2),
        lambda: setattr(flagged.Part, "resize", lambda self: 2),
        lambda: setattr(flagged, "load", lambda: 2),
        lambda: flagged.HALF.keywords.update(by=3),
        lambda: flagged.save.__kwdefaults__.update(quality=3),
        lambda: setattr(flagged.save, "quality", 3),
        lambda: flagged.MEAN.__setitem__(0, 3),
        lambda: flagged.ORDERED.move_to_end("a"),
        lambda: flagged.LOG.setLevel("ERROR"),
        lambda: setattr(flagged, "PATTERN", re.compile("y")),
        lambda: flagged.LARGE.__setitem__(1500, -1),
        lambda: flagged.set_rate(2),
        lambda: flagged.PARSER.set("data", "rate", "2"),
        lambda: setattr(flagged.LOCAL, "rate", 2),
        lambda: flagged.VARIABLE.set(2),
        lambda: setattr(flagged.SPACE, "rate", 2),
    ]
    for number, change in enumerate(changes):
        assert settings.of_packages(["flagged"]) == before
        change()
        after = settings.of_packages(["flagged"])
        assert after != before, number
        before = after


def test_what_cannot_be_looked_at_ends_nothing(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "awkward"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(AWKWARD)
    monkeypatch.syspath_prepend(str(package.parent))
    awkward = importlib.import_module("awkward")
    before = settings.of_packages(["awkward"])
    assert settings.of_packages(["awkward"]) == before
    awkward.LEVEL = 2
    assert settings.of_packages(["awkward"]) != before
    awkward.MANY = [[] for _ in range(settings._MAX_OBJECTS)]
    with pytest.raises(settings.TooMuch, match="`awkward`"):
        settings.of_packages(["awkward"])


def test_modules_that_load_on_demand_are_not_loaded(monkeypatch):
    class OnDemand(types.ModuleType):
        def __getattr__(self, name):
            raise AssertionError(f"asked for {name}")

    module = OnDemand("on_demand")
    module.__file__ = "/site-packages/on_demand.py"
    monkeypatch.setitem(sys.modules, "on_demand", module)
    assert "on_demand" in settings.of_packages(["on_demand"])
    settings._of_python()
    entries.describe_sources()
    given = given_warnings.GivenWarnings()
    monkeypatch.setattr(warnings, "_showwarnmsg", warnings._showwarnmsg)
    given.restore([], [["text", "builtins:UserWarning", "script.py", 1]])
    random_streams._rebind({})


def test_the_time_zone_that_a_script_sets_shows(monkeypatch):
    import time

    before = settings.of_process()
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        after = settings.of_process()
    time.tzset()
    assert [name for name in before if before[name] != after[name]] == ["time.tzset"]


def test_what_a_script_sets_in_its_process_shows():
    import decimal

    before = settings.of_process()
    assert settings.of_process() == before
    old = numpy.seterr(divide="ignore"), decimal.getcontext().prec, sys.getrecursionlimit()
    decimal.getcontext().prec = 5
    sys.setrecursionlimit(old[2] + 1)
    after = settings.of_process()
    numpy.seterr(**old[0])
    decimal.getcontext().prec = old[1]
    sys.setrecursionlimit(old[2])
    different = [name for name in before if before[name] != after[name]]
    assert different == ["numpy.seterr", "sys.setrecursionlimit", "decimal"]


NOT_ASKED = [
    FileNotFoundError("removed"), OSError(24, "Too many open files"), TypeError("no pickle"), ValueError("a number too long"),
    RuntimeError("not connected"),
]


@pytest.mark.parametrize("error", NOT_ASKED, ids=repr)
def test_what_the_server_cannot_be_asked_is_forked(module, monkeypatch, error):
    from py_hooks.workers import served_workers

    class Pool:
        memory = 0, ()

    class Items:
        dataset = module("class Rows: pass").Rows()
        key, workers = ("items", 1), 2

    def fail(*arguments):
        raise error

    monkeypatch.setattr(served_workers, "_server", fail)
    with pytest.raises(served_workers.ServerFailed, match="cannot be asked"):
        served_workers.ServedPool(Items, Pool, 0)


def test_a_run_that_waits_for_a_clean_process_says_so(monkeypatch):
    from py_hooks.workers import served_workers

    said, answers = [], [socket.timeout(), socket.timeout(), ("read", [])]

    class Silent:
        def receive(self):
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def close(self):
            pass

    trial = types.SimpleNamespace(log=said.append)
    monkeypatch.setattr(served_workers.recorder, "CALLS", types.SimpleNamespace(trial=trial))
    pool = served_workers.ServedPool.__new__(served_workers.ServedPool)
    pool._connection = Silent()
    assert pool._ask() == "read"
    assert [text.partition(" that")[0] for text in said] == ["waits for the clean process"] * 2
    answers.append(socket.timeout())
    monkeypatch.setattr(served_workers, "_IMPORT_SECONDS", 0)
    with pytest.raises(served_workers.ServerFailed, match="is gone"):
        pool._ask()


def test_a_filter_of_warnings_may_have_several_categories():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (UserWarning, FutureWarning))
        assert ("ignore", "None", "UserWarning, FutureWarning") in settings.of_process()["warnings"]
