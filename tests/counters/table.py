"""THE table of counters. A limit is its goal, or the count of today if the source is not there yet: lower it with the count."""

import collections
import functools
import re

from support import parse

from counters import imports, prose, python_rules, rust_imports, rust_rules, source
from counters.source import Place

# `find` gives the places. A rate counts them in 1,000 words of `words()`.
Counter = collections.namedtuple("Counter", ["name", "limit", "goal", "find", "words"])

LONGEST_FILE = 600

# Files that may be longer, and why: only tables of data.
LONG_FILES = {
    "py_hooks/causes.py": "the table of causes",
}


def _in_python(rule, trees=("py_hooks", "shims"), outside=None):
    """The places of a rule about the syntax of Python, in all files that are not in one folder."""

    def find():
        for path in source.files(".py", trees):
            if outside is None or source.ROOT / outside not in path.parents:
                yield from _places(path, rule(source.tree_of(path)))

    return find


def _in_texts(rule, paths):
    def find():
        for path in paths():
            yield from _places(path, rule(source.text_of(path)))

    return find


def _places(path, found):
    return sorted(Place(source.name_of(path), line, what) for line, what in found)


def exit_codes():
    text = source.text_of(source.ROOT / "src" / "core" / "exit_codes.rs")
    return {int(code) for code in re.findall(r"^pub const \w+: i32 = (\d+);", text, re.MULTILINE)}


def _literal_exit_codes(tree):
    return python_rules.literal_exit_codes(tree, exit_codes())


def _circles_of(package):
    def find():
        folder = source.ROOT / package
        arrows = {path: {to for to, _ in imports.imports(parse(path), folder)} for path in source.files(".py", [package])}
        yield from map(_ring, imports.circles(arrows))

    return find


def _circles_in_rust():
    for crate in source.crates():
        modules = rust_imports.modules(crate, [path for path in source.rust() if crate in path.parents])
        arrows = rust_imports.graph({name: source.text_of(path) for name, path in modules.items()})
        yield from (_ring([modules[name] for name in ring]) for ring in imports.circles(arrows))


def _ring(paths):
    names = sorted(map(source.name_of, paths))
    return Place(names[0], 1, ", ".join(names))


def _long_files():
    for path in source.files(".py") + source.rust():
        count = source.text_of(path).count("\n")
        if count > LONGEST_FILE and source.name_of(path) not in LONG_FILES:
            yield Place(source.name_of(path), 1, f"{count} lines")


def _python():
    return source.files(".py")


def _all_rust():
    return source.files(".rs", source.RUNTIME + source.OTHERS)


@functools.lru_cache(maxsize=None)
def _prose_of_source():
    """`(path, paragraphs)` of each file of code, tests included; in tests strings are no messages."""
    found = []
    for ending, read in ((".py", prose.of_python), (".rs", prose.of_rust)):
        for path in source.files(ending, source.RUNTIME + source.OTHERS):
            is_runtime = source.name_of(path).split("/")[0] in source.RUNTIME
            found.append((path, read(source.text_of(path), is_runtime)))
    return found


@functools.lru_cache(maxsize=None)
def _prose_of_documents():
    return [(path, prose.of_document(source.text_of(path))) for path in source.documents()]


def _phrase(name, prose_of, title, limit, goal):
    def find():
        for path, paragraphs in prose_of():
            yield from _places(path, prose.phrases(paragraphs, name))

    def words():
        return sum(prose.words(paragraphs) for _, paragraphs in prose_of())

    return Counter(f"`{name}` in {title}", limit, goal, find, words)


_DOCUMENTS = (_prose_of_documents, "documents")
_SOURCE = (_prose_of_source, "comments and messages")

COUNTERS = [
    Counter("questions of replay outside recording", 8, 0,
            _in_python(python_rules.questions_of_replay, ["py_hooks"], "py_hooks/recording"), None),
    Counter("changes of the recorder's depth by others", 0, 0,
            _in_python(python_rules.changes_of_depth, ["py_hooks"], "py_hooks/recording"), None),
    Counter("import circles in py_hooks", 0, 0, _circles_of("py_hooks"), None),
    Counter("import circles in shims", 0, 0, _circles_of("shims/pedl"), None),
    Counter("import circles in Rust", 6, 0, _circles_in_rust, None),
    Counter("exit codes as literals in Python", 0, 0, _in_python(_literal_exit_codes), None),
    Counter("functions without annotation", 0, 0, _in_python(python_rules.unannotated_functions), None),
    Counter("files over 600 lines", 0, 0, _long_files, None),
    Counter("functions over 80 lines, Rust", 0, 0, _in_texts(rust_rules.long_functions, source.rust), None),
    Counter("functions over 80 lines, Python", 0, 0, _in_texts(python_rules.long_functions, _python), None),
    Counter("comments past column 100, Rust", 0, 0, _in_texts(rust_rules.long_comments, _all_rust), None),
    _phrase("is told", *_SOURCE, 0.12, 0.1),
    _phrase("goes on", *_SOURCE, 0.18, 0.1),
    _phrase("stands", *_SOURCE, 0.1, 0.1),
    _phrase("of its own", *_SOURCE, 0.48, 0.1),
    _phrase("where", *_SOURCE, 1, 1),
    _phrase("so many", *_SOURCE, 0.1, 0.1),
    _phrase("is told", *_DOCUMENTS, 0.1, 0.1),
    _phrase("goes on", *_DOCUMENTS, 0.1, 0.1),
    _phrase("stands", *_DOCUMENTS, 0.1, 0.1),
    _phrase("of its own", *_DOCUMENTS, 0.71, 0.1),
    _phrase("where", *_DOCUMENTS, 1, 1),
    _phrase("so many", *_DOCUMENTS, 0.21, 0.1),
]
