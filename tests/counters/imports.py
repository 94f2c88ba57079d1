"""Which file of a Python package imports which, and circles of such imports."""

import ast

from counters import source


def imports(tree, package):
    """`(file, is_late)` of each file of a package that a module imports; late means inside of a function.

    Args:
        tree: the module.
        package: the path of the package.
    """
    waiting = [(tree, False)]
    while waiting:
        node, is_late = waiting.pop()
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == package.name:
            for alias in node.names:
                yield _file_of(package, node.module, alias.name), is_late
        elif isinstance(node, ast.Import):
            used = [alias.name for alias in node.names if alias.name.split(".")[0] == package.name]
            assert not used, f"write `from {package.name}... import`"
        inside = is_late or isinstance(node, (ast.FunctionDef, ast.Lambda))
        waiting.extend((child, inside) for child in ast.iter_child_nodes(node))


def _file_of(package, module, name):
    """The file of a name that is imported from a module: the name may be a module, a package, or something in the module."""
    place = package.parent.joinpath(*module.split("."))
    candidates = [place / f"{name}.py", place / name / "__init__.py", place.with_suffix(".py"), place / "__init__.py"]
    return next(path for path in candidates if path.is_file())


def graph(files, package):
    """The files of a package that each file imports."""
    return {path: {found for found, _ in imports(source.tree_of(path), package)} for path in files}


def circles(arrows):
    """Sets of nodes of which each leads to each other one; `arrows` has the nodes that each leads to."""
    reached = {node: _reached(arrows, node) for node in arrows}
    found = []
    for node in arrows:
        ring = {other for other in reached[node] if node in reached.get(other, ())}
        if ring and ring not in found:
            found.append(ring)
    return found


def _reached(arrows, start):
    found, waiting = set(), [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found
