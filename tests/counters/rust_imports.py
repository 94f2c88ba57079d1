"""Which module of a crate uses which. A module is a file, and its name a tuple of words; that of the crate is empty."""

import re

from counters import rust_rules

_USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
_PATH = re.compile(r"(?<![:\w])[a-z_]\w*(?:::\w+)+")
_TREE = re.compile(r"(.*?)\{(.*)\}", re.DOTALL)


def modules(folder, paths):
    """The module of each of these files of a crate, `name -> path`."""
    found = {}
    for path in paths:
        name = path.relative_to(folder).with_suffix("").parts
        found[name[:-1] if name[-1] in ("mod", "lib", "main") else name] = path
    return found


def graph(texts):
    """The modules that each module uses, from the texts of all modules of a crate. What tests use does not count.

    A module that only gives a name on (`pub use`) does not use it, and a module may use what those that contain it have.
    """
    return {name: {used for used in _used(name, text, texts) if used != name[: len(used)]} for name, text in texts.items()}


def _used(name, text, known):
    code = rust_rules.without_tests(rust_rules.bare(text))
    paths = [path for is_public, tree in _USE.findall(code) if not is_public for path in _expanded(tree)]
    paths += [path.split("::") for path in _PATH.findall(_USE.sub("", code))]
    for path in paths:
        found = _resolved(name, path, known)
        if found is not None:
            yield found


def _expanded(tree):
    """The paths of a `use`: `a::{b, c::d}` has two."""
    match = _TREE.match(tree.strip())
    if not match:
        return [[word.strip() for word in tree.split(" as ")[0].split("::")]]
    before = [word.strip() for word in match.group(1).split("::") if word.strip()]
    return [before + path for part in _parts(match.group(2)) for path in _expanded(part)]


def _parts(text):
    """What is between the commas of a list, in which there may be other lists."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


def _resolved(name, path, known):
    """The module that a path leads into; None if it is none of the crate, or a name of the module itself."""
    words = list(path)
    place = name
    is_of_crate = words[0] in ("crate", "self", "super")
    if words[0] == "crate":
        words, place = words[1:], ()
    while words and words[0] in ("self", "super"):
        place = place[:-1] if words[0] == "super" else place
        words = words[1:]
    start = place
    while words and (*place, words[0]) in known:
        place = (*place, words[0])
        words = words[1:]
    return place if is_of_crate or place != start else None
