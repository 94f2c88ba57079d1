"""The files that are counted."""

import ast
import collections
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# What users run; then what tests and measures it.
RUNTIME = ("src", "py_hooks", "shims")
OTHERS = ("tests", "examples")

DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")

# Folders that contain what programs have made.
_MADE = ("target", "__pycache__")

# A place in a file: its path below the root, its line, and what was found there.
Place = collections.namedtuple("Place", ["file", "line", "what"])


def name_of(path):
    return str(path.relative_to(ROOT))


@functools.lru_cache(maxsize=None)
def text_of(path):
    return path.read_text(encoding="utf-8")


@functools.lru_cache(maxsize=None)
def tree_of(path):
    return ast.parse(text_of(path))


def files(ending, trees=RUNTIME):
    """All files below some folders whose name has this ending."""
    found = [path for tree in trees for path in (ROOT / tree).rglob("*" + ending)]
    return sorted(path for path in found if path.is_file() and not set(path.parts) & set(_MADE))


def documents():
    """The pages at the top and in `docs`, except the rules of writing, which quote what they forbid."""
    pages = [ROOT / name for name in DOCUMENTS] + sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in pages if page.name != "writing.md"]


_TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+);")


@functools.lru_cache(maxsize=None)
def rust_tests():
    """The files of Rust that are built for tests only: `#[cfg(test)] mod name;`."""
    found = set()
    for path in files(".rs"):
        folder = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
        for name in _TEST_MODULE.findall(text_of(path)):
            found |= {folder / f"{name}.rs", *(folder / name).rglob("*.rs")}
    return found


def rust():
    """The files of Rust that are no tests."""
    return [path for path in files(".rs") if path not in rust_tests()]


def crates():
    """The folders of the crates."""
    return sorted({path.parent for path in files(".toml", ["src"]) if path.name == "Cargo.toml"} | {ROOT / "src" / "host"})
