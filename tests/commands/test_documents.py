"""The documents: their commands run, and their links work. `cargo dev check` counts phrases in them (`tests/counters`).

The first line of a block of commands says whether it is run here:

    ```sh runs                    on `plain`, in a directory of its page
    ```sh runs=keras3-jax         on that stack
    ```sh runs=... may-fail       its exit code is not checked (a command that is killed)
    ```sh not-run=REASON          not

A block `python file=train.py`, of whatever language, is written to that file first.
"""
import json
import os
import re
import subprocess
import sys

import pytest
import support

BOOK = support.ROOT / "docs"
AT_THE_TOP = [support.ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = AT_THE_TOP + sorted(BOOK.rglob("*.md"))

_BLOCK = re.compile(r"^ *```(\S+)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:src|py_hooks|shims|tests|docs|examples)/[\w./-]+)`")
_EVENT = re.compile(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_SHELLS = ("sh", "bash", "console", "shell")

_README_WORDS, _README_LINES = 1300, (100, 250)


def name_of(page):
    return str(page.relative_to(support.ROOT))


def blocks_of(page):
    """`(language, attributes, text)` of each block. Attributes are words, or `name=value`."""
    found = []
    for language, rest, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        attributes = dict(word.partition("=")[::2] for word in rest.split())
        lines = text.splitlines(True)
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        found.append((language, attributes, "".join(line[indent:] or "\n" for line in lines)))
    return found


def stacks_of(page):
    """The stacks on which blocks of a page are run."""
    return {attributes["runs"] or "plain" for _, attributes, _ in blocks_of(page) if "runs" in attributes}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_commands_says_whether_it_is_run(page):
    for language, attributes, text in blocks_of(page):
        assert language not in _SHELLS or {"runs", "not-run"} & set(attributes), text
        assert attributes.get("not-run", "a reason"), text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_and_every_path_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in _LINK.findall(text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    named = [path for path in _PATH.findall(text) if not (support.ROOT / path).exists()]
    assert not missing + named


def test_the_summary_lists_every_page():
    listed = set(_LINK.findall((BOOK / "SUMMARY.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(BOOK)) for page in BOOK.rglob("*.md")} - {"SUMMARY.md"}
    assert listed == pages


def test_the_readme_is_short():
    text = (support.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= _README_WORDS
    assert _README_LINES[0] <= len(text.splitlines()) <= _README_LINES[1]


def run_blocks(page, stack, directory):
    """Runs the blocks of a page for a stack, one after the other, in one directory."""
    bin_directory = directory / "bin"
    bin_directory.mkdir()
    for name in ("pedl-run", "pedl"):
        (bin_directory / name).symlink_to(support.executable())
    environment = dict(os.environ, PEDL_PYTHON=sys.executable)
    environment["PATH"] = f"{bin_directory}{os.pathsep}{environment['PATH']}"
    work = directory / "work"
    work.mkdir()
    ran = 0
    for language, attributes, text in blocks_of(page):
        if "file" in attributes:
            path = work / attributes["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if language not in _SHELLS or (attributes.get("runs", "not here") or "plain") != stack:
            continue
        ended = subprocess.run(
            ["/bin/sh", "-e", "-c", text],
            check=False,
            cwd=str(work),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=support.TIMEOUT,
        )
        assert "may-fail" in attributes or ended.returncode == 0, f"{text}\n{ended.stdout.decode()}"
        yield ended.stdout.decode()
        ran += 1
    assert ran


@pytest.mark.parametrize("page", [page for page in PAGES if "plain" in stacks_of(page)], ids=name_of)
def test_the_commands_of_a_page_run(page, tmp_path):
    for output in run_blocks(page, "plain", tmp_path):
        assert "Traceback" not in output


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize("page", [page for page in PAGES if "keras3-jax" in stacks_of(page)], ids=name_of)
def test_the_commands_of_a_tutorial_run(page, tmp_path):
    hashes = []
    for output in run_blocks(page, "keras3-jax", tmp_path):
        assert "Traceback" not in output
        hashes += re.findall(r"^sha256 of the weights: (\S+)$", output, re.MULTILINE)
    # A run that was killed before its end has printed none.
    assert len(set(hashes)) <= 1
    if page.name == "first-exact-resume.md":
        assert len(hashes) >= 2
        check_events(tmp_path / "work" / "killed" / "events.jsonl")


def check_events(journal):
    """Every event of a trial, and every member of it, is in the reference."""
    page = (BOOK / "reference" / "events.md").read_text(encoding="utf-8")
    known = {name: set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) for name, text in _EVENT.findall(page)}
    events = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    assert {"trial_begun", "exactness", "step", "trial_ended"} <= {event["event"] for event in events}
    for event in events:
        assert set(event) - {"schema", "time", "event"} <= known[event["event"]], event
