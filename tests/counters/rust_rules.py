"""Rules about code in Rust. Each takes the text of a file and yields `(line, what)`."""

import bisect
import re

WIDTH = 100
LONGEST_FUNCTION = 80

# What hides braces: comments, strings and characters. A lifetime is none of them.
_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>\bb?r(?P<fence>\#*)".*?"(?P=fence)|\b[bc]?"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*")
    |(?P<character>'(?:[^'\\\n]|\\(?:u\{\w+\}|x\w\w|.))')
    """,
    re.VERBOSE | re.DOTALL,
)
_FUNCTION = re.compile(r"\bfn\s+(\w+)")
_TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\n]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")
_ARGUED = re.compile(r"clippy::too_many_lines,\s*reason\s*=")


def tokens(text):
    """`(kind, start, text)` of each comment and each string."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "character":
            yield ("comment" if match.group("comment") else "string"), match.start(), match.group()


def bare(text):
    """The code, as long as before: comments are blanks, and strings and characters have no braces."""

    def cover(match):
        letter = " " if match.group("comment") else "s"
        return re.sub(r"[^\n]", letter, match.group())

    return _TOKEN.sub(cover, text)


def without_tests(code):
    """Bare code, as long as before, without modules of tests."""
    for match in _TESTS.finditer(code):
        start, end = match.start(), _end_of_block(code, match.end() - 1)
        code = code[:start] + re.sub(r"[^\n]", " ", code[start : end + 1]) + code[end + 1 :]
    return code


def _end_of_block(code, start):
    """The place of the bracket that closes the one at `start`."""
    depth = 0
    for place in range(start, len(code)):
        depth += (code[place] in "{([") - (code[place] in "})]")
        if not depth:
            return place
    return len(code)


def _body(code, start):
    """The place of the brace that begins the body of a function; None if it has no body."""
    place = start
    while place < len(code) and code[place] not in "{;":
        place = _end_of_block(code, place) + 1 if code[place] in "([" else place + 1
    return place if code[place : place + 1] == "{" else None


def long_comments(text):
    """Lines of comments that are longer than the lines of code may be."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH and line.lstrip().startswith("//"):
            yield number, f"{len(line)} columns"


def long_functions(text):
    """Functions with more lines of code than `clippy::too_many_lines` may see, if no reason is given for it."""
    code = without_tests(bare(text))
    lines = [match.start() for match in re.finditer(r"^", code, re.MULTILINE)]
    for match in _FUNCTION.finditer(code):
        begin = _body(code, match.end())
        if begin is None:
            continue
        inner = code[begin + 1 : _end_of_block(code, begin)].splitlines()
        count = sum(bool(line.strip()) for line in inner)
        before = max(code.rfind(sign, 0, match.start()) for sign in ";{}")
        if count > LONGEST_FUNCTION and not _ARGUED.search(text[before + 1 : match.start()]):
            yield bisect.bisect(lines, match.start()), f"`{match.group(1)}`, {count} lines"
