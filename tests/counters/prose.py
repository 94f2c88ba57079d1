"""Rules 2 to 5 of `docs/contributing/writing.md`: phrases in comments, docstrings, messages and documents.

A text is a list of paragraphs, `(line, words)`. Lines that follow each other are one paragraph, so a phrase may be on two lines.
"""

import ast
import io
import re
import tokenize

from counters import python_rules, rust_rules

# The verb `is told` has no object; nothing stands or goes on; nothing is of its own; *if* begins a condition.
PHRASES = {
    "is told": r"\b(?:is|are|was|were|be|been|being) told\b",
    "goes on": r"\b(?:go|goes|going|gone|went) on\b",
    "stands": r"\bstands?\b(?!-| (?:in )?for\b)",
    "of its own": r"\bof (?:[\w']+ )?(?:\w+'s|its|their|our|your|my|his|her) own\b|\bof (?:ours|theirs|yours)\b",
    "where": r"(?:^|[,;:.(–]|\b(?:and|or|but|only|also|even|except|than|that))\s*where\b(?! (?:it|they|we|you|this|that)\b)",
    "so many": r"\bso many\b",
}

_MESSAGE = re.compile(r"[A-Za-z`]+,? [A-Za-z`]+,? [A-Za-z`]+")
_CODE = re.compile(r"``.*?``|`[^`\n]*`", re.DOTALL)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_COMMENT_SIGN = re.compile(r"^\s*(?:///?!?|//!|\*|#+)\s?")


def of_python(text, with_messages):
    """The prose of a file of Python."""
    tree = ast.parse(text)
    docstrings = list(python_rules.docstrings(tree))
    found = [(node.lineno, node.value) for node in docstrings]
    own_line = [
        (token.start[0], token.string, token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    found += _joined(own_line)
    if with_messages:
        known = set(map(id, docstrings))
        found += [(line, value) for line, value in _strings(tree, known) if _MESSAGE.search(value)]
    return _cleaned(found)


def _strings(node, known):
    """Each string; that of an f-string is one, with an ellipsis for each value."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in child.values]
            yield child.lineno, "".join(parts)
        elif isinstance(child, ast.Constant):
            if isinstance(child.value, str) and id(child) not in known:
                yield child.lineno, child.value
        else:
            yield from _strings(child, known)


def of_rust(text, with_messages):
    """The prose of a file of Rust."""
    comments, messages = [], []
    for kind, start, token in rust_rules.tokens(text):
        line = text.count("\n", 0, start) + 1
        if kind == "comment":
            is_alone = not text[text.rfind("\n", 0, start) + 1 : start].strip()
            comments.append((line, token, is_alone))
        elif with_messages:
            inner = token[token.index('"') + 1 : token.rindex('"')]
            # A backslash at the end of a line joins it with the next.
            said = " ".join(re.sub(r"\\\n|\\n", " ", inner).split())
            messages += [(line, said)] if _MESSAGE.search(said) else []
    return _cleaned(_joined(comments) + messages)


def of_document(text):
    """The prose of a page: without blocks of code, and without the targets of links."""
    text = _FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    paragraphs = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and paragraphs and paragraphs[-1] and not line.lstrip().startswith(("|", "#", "-", "*")):
            paragraphs[-1].append(line)
        else:
            paragraphs.append([number, line] if line.strip() else [])
    return _cleaned([(first[0], " ".join(first[1:])) for first in paragraphs if first])


def _joined(comments):
    """Comments `(line, text, is_alone)`, of which those on lines of their own that follow each other are one."""
    found = []
    end = None
    for line, text, is_alone in comments:
        words = " ".join(_COMMENT_SIGN.sub("", part) for part in text.splitlines())
        if is_alone and found and end == line - 1:
            found[-1] = (found[-1][0], f"{found[-1][1]} {words}")
        else:
            found.append((line, words))
        end = line + text.count("\n") if is_alone else None
    return found


def _cleaned(paragraphs):
    return [(line, " ".join(_CODE.sub("`…`", text).split())) for line, text in paragraphs]


def words(paragraphs):
    return sum(len(text.split()) for _, text in paragraphs)


def phrases(paragraphs, name):
    """`(line, what)` of each use of a phrase."""
    for line, text in paragraphs:
        for match in re.finditer(PHRASES[name], text, re.IGNORECASE):
            yield line, "…" + text[max(0, match.start() - 30) : match.end() + 30] + "…"
