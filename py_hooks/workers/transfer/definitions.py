"""Finds out whether modules of the user only define: importing such a module again repeats nothing, and misses nothing.

Such a module imports others, and defines functions, classes and constants. While it is imported, it calls only functions that
return the same each time and change nothing (`_INERT`). Code under `if __name__ == "__main__"` is not examined.
"""
from __future__ import annotations

import ast
import contextlib
import importlib.util
import sys

from py_hooks import places
from py_hooks.own_account import on_own_account

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

    _Function = ast.FunctionDef | ast.AsyncFunctionDef

# Functions that may be called, or decorate, by the module that they belong to.
_INERT = {
    "builtins": (
        "abs", "bool", "bytes", "classmethod", "dict", "enumerate", "float", "frozenset", "getattr", "hasattr", "int",
        "isinstance", "issubclass", "len", "list", "max", "min", "property", "range", "repr", "round", "set", "slice",
        "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "zip",
    ),
    "collections": ("OrderedDict", "defaultdict", "namedtuple"),
    "contextlib": ("contextmanager",),
    "dataclasses": ("dataclass", "field"),
    "datetime": ("date", "timedelta"),
    "functools": ("lru_cache", "partial", "wraps"),
    "logging": ("getLogger",),
    "numpy": ("arange", "array", "asarray", "dtype", "float32", "float64", "int32", "int64", "ones", "zeros"),
    "os": ("fspath", "getenv"),
    "os.environ": ("get",),
    "os.path": ("abspath", "basename", "dirname", "expanduser", "join", "normpath", "realpath", "splitext"),
    "pathlib": ("Path", "PurePath"),
    "re": ("compile",),
    "typing": ("NamedTuple", "NewType", "TypeVar", "cast", "overload"),
}
# Methods that may be called of any value, as texts and dicts have them.
_INERT_METHODS = (
    "decode", "encode", "endswith", "format", "items", "join", "keys", "lower", "lstrip", "partition", "replace",
    "rpartition", "rsplit", "rstrip", "split", "startswith", "strip", "upper", "values",
)


# The decorators by which a class defines properties.
_OF_PROPERTIES = ("setter", "getter", "deleter")


# The methods that run code of a class when another one is derived from it, or when its objects are bound in a class.
_AT_DEFINITION = ("__init_subclass__", "__set_name__", "__class_getitem__", "__mro_entries__")
# The methods that run code of a metaclass when a class is defined.
_OF_METACLASSES = ("__new__", "__init__", "__prepare__", "__setattr__", "__call__")


class DoesMore(Exception):
    """A module does more than define; the text says which module, and where."""


def modules_of(names: Iterable[str]) -> tuple[set[str], set[str]]:
    """The names of these modules and of those that they import, within functions too, as far as they are imported.

    Args:
        names: names of modules that are imported.

    Returns:
        The names of the modules that are not the user's, and of the user's modules, which are examined.

    Raises:
        DoesMore: a module of the user does more than define what others use.
    """
    libraries: set[str]
    users: set[str]
    seen: set[str]
    libraries, users = set(), set()
    seen, waiting = set(), sorted(names, reverse=True)
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in seen or module is None:
            continue
        seen.add(name)
        parent = name.rpartition(".")[0]
        if parent:
            waiting.append(parent)
        file = places.file_of(module)
        if file is None or not places.is_user_file(file):
            libraries.add(name)
        else:
            users.add(name)
            package = name if "__path__" in places.names_of(module) else parent
            waiting.extend(reversed(_imports_of(name, package, file)))
    return libraries, users


@on_own_account
def _imports_of(name: str, package: str, file: str) -> list[str]:
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        raise DoesMore(f"its module `{name}` cannot be read") from None
    module = _Module(name, package)
    module.visit_all(tree.body)
    return module.imported


class _Module(ast.NodeVisitor):
    """Visits the statements that run when a module is imported.

    Attributes:
        imported: names of modules that the module imports, and maybe of other things in them.
    """

    def __init__(self, name: str, package: str) -> None:
        self.imported: list[str] = []
        self._name = name
        self._package = package
        # What the names that it has imported refer to; and the names that it has bound to something else, by scope.
        self._known: dict[str, str] = {}
        self._bound: list[set[str]] = [set()]
        # If Python has `annotationlib`, annotations are computed when they are requested.
        self._has_lazy_annotations = importlib.util.find_spec("annotationlib") is not None

    def generic_visit(self, node: Any) -> NoReturn:
        raise DoesMore(f"its module `{self._name}` does more than define, in line {node.lineno}")

    def visit_all(self, statements: Iterable[ast.stmt]) -> None:
        """Visits some statements."""
        for statement in statements:
            self.visit(statement)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imported.append(alias.name)
            top = alias.name.partition(".")[0]
            self._note_import(alias.asname or top, alias.name if alias.asname else top)

    def _note_import(self, name: str, what: str) -> None:
        self._known[name] = what
        self._bound[-1].discard(name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self._base_of(node)
        self.imported.append(base)
        if base == "__future__":
            self._has_lazy_annotations |= any(alias.name == "annotations" for alias in node.names)
        for alias in node.names:
            self.imported.append(f"{base}.{alias.name}")
            self._note_import(alias.asname or alias.name, f"{base}.{alias.name}")

    def _base_of(self, node: ast.ImportFrom) -> str:
        base = node.module
        if node.level:
            words = self._package.split(".")
            base = ".".join(words[: len(words) - node.level + 1] + ([node.module] if node.module else []))
        return base

    def visit_FunctionDef(self, node: _Function) -> None:
        defaults = node.args.defaults + node.args.kw_defaults
        self._check([default for default in defaults if default is not None])
        if not self._has_lazy_annotations:
            given = [part.annotation for part in ast.walk(node.args) if isinstance(part, ast.arg)]
            self._check([one for one in [*given, node.returns] if one is not None])
        self._check_decorators(node)
        if len(self._bound) > 1 and node.name in _AT_DEFINITION:
            self.generic_visit(node)
        self._bound[-1].add(node.name)
        self._visit_imports_within(node)

    def _visit_imports_within(self, function: _Function) -> None:
        for part in ast.walk(function):
            if isinstance(part, ast.Import):
                self.imported.extend(alias.name for alias in part.names)
            elif isinstance(part, ast.ImportFrom):
                base = self._base_of(part)
                self.imported.extend([base, *(f"{base}.{alias.name}" for alias in part.names)])
            elif getattr(part, "id", getattr(part, "attr", None)) in ("__import__", "import_module"):
                # What it imports is not known.
                self.generic_visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._check(node.bases + node.keywords)  # type: ignore[operator]  # a list of both
        self._check_decorators(node)
        self._bound.append(set())
        self.visit_all(node.body)
        defined = self._bound.pop()
        if "type" in map(_word, node.bases) and defined.intersection(_OF_METACLASSES):
            self.generic_visit(node)
        self._bound[-1].add(node.name)

    def visit_If(self, node: ast.If) -> None:
        if not _is_of_script(node.test):
            self._check([node.test])
            self.visit_all(node.body)
        self.visit_all(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        self.visit_all(node.body)
        for handler in node.handlers:
            self.visit_all(handler.body)
        self.visit_all(node.orelse + node.finalbody)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assign(node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not self._has_lazy_annotations:
            self._check([node.annotation])
        self._assign([node.target], node.value)

    def _assign(self, targets: Iterable[ast.expr], value: ast.expr | None) -> None:
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, (ast.Attribute, ast.Subscript)):
                    # Something else is changed.
                    self.generic_visit(part)
                if isinstance(part, ast.Name):
                    self._bound[-1].add(part.id)
        self._check([value] if value is not None else [])

    def visit_Expr(self, node: ast.Expr) -> None:
        # A text, or `...`.
        self._check([node.value])

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def _check(self, expressions: Iterable[ast.AST]) -> None:
        for expression in expressions:
            for part in ast.walk(expression):
                if isinstance(part, ast.Call) and not self._is_inert(part.func):
                    self.generic_visit(part)

    def _check_decorators(self, node: _Function | ast.ClassDef) -> None:
        self._check(node.decorator_list)
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call) and not self._is_inert(decorator):
                self.generic_visit(decorator)

    def _is_inert(self, function: ast.expr) -> bool:
        """Whether a function may be called."""
        words = []
        while isinstance(function, ast.Attribute):
            words.append(function.attr)
            function = function.value
        is_of_value = not isinstance(function, ast.Name) or function.id not in self._known or words[1:][:1] == ["__version__"]
        if words and is_of_value:
            # It is of a value, not of a module.
            return words[0] in _INERT_METHODS + _OF_PROPERTIES
        if not isinstance(function, ast.Name) or any(function.id in names for names in self._bound):
            return False
        first = self._known.get(function.id, function.id if words else f"builtins.{function.id}")
        module, _, called = ".".join([first, *reversed(words)]).rpartition(".")
        return called in _INERT.get(module, ())


def _is_of_script(test: ast.expr) -> bool:
    """Whether a test is `__name__ == "__main__"`."""
    parts = [test.left, *test.comparators] if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) else []
    return sorted(map(_word, parts)) == ["__main__", "__name__"]


def _word(node: ast.expr) -> str:
    """A name, or the text of a constant; an empty text for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    with contextlib.suppress(ValueError):
        return str(ast.literal_eval(node))
    return ""
