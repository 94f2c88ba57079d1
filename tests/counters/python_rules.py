"""Rules about code in Python. Each takes the text of a file, or what is parsed from it, and yields `(line, what)`."""

import ast
import io
import re
import tokenize

LONGEST_FUNCTION = 80

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# "Is there a replay?"
_REPLAY = re.compile(r"_?(?:replaying|(?:is|was|in)_(?:a_)?replay(?:ing|ed)?)")
_CLASS_NAME = re.compile(r"_*[A-Z][a-z]\w*")

# Exit codes that are other numbers as well count only as what a name or a call says is an exit code.
_COMMON_NUMBERS = (0, 1, 2, 64)
_ENDING = re.compile(r"_*(?:exit|stop|end|error|abort|SystemExit)")
_OF_AN_ENDING = re.compile(r"exit|code|usage", re.IGNORECASE)

# The comment above a function that may be long.
_ARGUED = re.compile(r"# More than \d+ lines: \S+ \S+")


def _last_name(node):
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def questions_of_replay(tree):
    """Reads of an attribute that says whether there is a replay."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _REPLAY.fullmatch(node.attr):
            yield node.lineno, f"`.{node.attr}`"


def changes_of_depth(tree):
    """Changes of the attribute `depth` of an object of another class: `self.depth` and `_Class.depth` are no others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "depth" and not isinstance(node.ctx, ast.Load):
            owner = _last_name(node.value)
            if owner != "self" and not _CLASS_NAME.fullmatch(owner):
                yield node.lineno, f"`{owner}.depth`"
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("setattr", "delattr") and _names(node, "depth"):
            yield node.lineno, "`setattr`"


def _names(call, attribute):
    """Whether a string among the arguments of a call is the name of an attribute."""
    return any(isinstance(value, ast.Constant) and value.value == attribute for value in call.args)


def literal_exit_codes(tree, codes):
    """Integers that are exit codes of the table."""
    for node, context in _with_context(tree):
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Constant) or type(value) is not int or value not in codes:
            continue
        if value not in _COMMON_NUMBERS or any(_OF_AN_ENDING.search(name) or _ENDING.fullmatch(name) for name in context):
            yield node.lineno, str(value)


def _with_context(tree, context=()):
    """Each node, with the names of what it is assigned to, compared with or an argument of."""
    for node in ast.iter_child_nodes(tree):
        yield node, context
        inner = context
        if isinstance(node, ast.stmt):
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            inner = tuple(_last_name(name) for target in targets for name in getattr(target, "elts", [target]))
        elif isinstance(node, ast.Call):
            inner = (_last_name(node.func),)
        elif isinstance(node, ast.keyword):
            inner = (node.arg or "",)
        elif isinstance(node, ast.Compare):
            inner = tuple(_last_name(one) for one in (node.left, *node.comparators))
        yield from _with_context(node, inner)


def unannotated_functions(tree):
    """Functions without the annotation of an argument or of what they return."""
    for node, is_method in _functions(tree):
        first = [*getattr(node.args, "posonlyargs", []), *node.args.args]
        is_static = any(_last_name(one) == "staticmethod" for one in node.decorator_list)
        arguments = [*first[is_method and not is_static :], *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        missing = [one.arg for one in arguments if one is not None and one.annotation is None]
        # As mypy has it: `__init__` returns nothing, but has to say so if nothing else makes it a typed function.
        is_typed = node.name == "__init__" and any(arguments) and not missing
        if node.returns is None and not is_typed:
            missing.append("what it returns")
        if missing:
            yield node.lineno, f"`{node.name}`: {', '.join(missing)}"


def _functions(tree, is_in_class=False):
    """Each function, and whether it is a method."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            yield node, is_in_class
        # A method may be below an `if` of a class.
        keeps = is_in_class and not isinstance(node, (*_FUNCTIONS, ast.Lambda))
        yield from _functions(node, isinstance(node, ast.ClassDef) or keeps)


def long_functions(text):
    """Functions with too many lines of code, if no comment above them argues it."""
    lines = text.splitlines()
    tree = ast.parse(text)
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            code.update(range(token.start[0], token.end[0] + 1))
    for docstring in docstrings(tree):
        code.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    for node, _ in _functions(tree):
        count = len(code.intersection(range(node.body[0].lineno, node.end_lineno + 1)))
        if count > LONGEST_FUNCTION and not _is_argued(lines, node):
            yield node.lineno, f"`{node.name}`, {count} lines"


def _is_argued(lines, function):
    above = min([function.lineno, *(one.lineno for one in function.decorator_list)]) - 1
    while above and lines[above - 1].lstrip().startswith("#"):
        above -= 1
        if _ARGUED.match(lines[above].lstrip()):
            return True
    return False


def docstrings(tree):
    """The node of each docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                yield first.value
