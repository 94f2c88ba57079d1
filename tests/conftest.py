"""Which tests run on which stack, and the fixtures that all of them share.

`cargo dev test` runs these tests once for each stack of `matrix.toml`, with the Python of that
stack, and names the stack in the environment:

    PEDL_STACK, PEDL_STACK_TAGS   its name, and its other names
    PEDL_RUN                      the executable under test
    PEDL_GATE                     with `--gate`: the stacks that are run, `{name: tags}` in JSON (`gate.is_left`)

If several processes share the tests (`workers` in `matrix.toml`), all tests of a file run in the same process, except
tests that share nothing: each of those runs in any process that is free.

A test without a mark needs no framework and runs on `plain`. If pytest is started by hand (`python -m pytest`),
with none of these variables set, it runs just those tests.
"""

import importlib.abc
import importlib.util
import json
import os
import random
import subprocess
import sys

import gate
import pytest
import support

# The key of the number of tests that `--gate` has left out.
LEFT_OUT = "left to --all"

# CPython's tests are for `cargo dev conformance`.
collect_ignore = ["conformance"]


def pytest_addoption(parser):
    parser.addoption("--renew", action="store_true", help="write the files of tests/messages/snapshots anew, and compare nothing")
    parser.addoption("--gate", action="store_true", help="leave out what tests/gate.py names for this stack")


def pytest_report_header(config):
    """Where the tests are that `--gate` leaves out."""
    return "gate: without what tests/gate.py leaves to `cargo dev test --all`" if config.getoption("--gate") else None


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests of other stacks. They are not reported as skipped, because nobody asked for them here.

    With `--gate`, the tests that other stacks have too are left out as well, and their number is printed.
    """
    here = {os.environ.get("PEDL_STACK", "plain")} | set(os.environ.get("PEDL_STACK_TAGS", "").split())
    chosen, others = [], []
    for item in items:
        (chosen if here.intersection(_wanted(item)) else others).append(item)
    if config.getoption("--gate"):
        stacks = json.loads(os.environ["PEDL_GATE"])
        repeated = [item for item in chosen if _is_left(item, stacks)]
        chosen = [item for item in chosen if not _is_left(item, stacks)]
        others += repeated
        # With pytest-xdist, the processes that run the tests collect them, and tell the one that prints.
        getattr(config, "workeroutput", config.stash)[LEFT_OUT] = len(repeated)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if _stays_with_its_file(item):
                item.add_marker(pytest.mark.xdist_group(item.location[0]))


def _wanted(item):
    """The names and tags of the stacks that a test is for."""
    mark = item.get_closest_marker("stack")
    return mark.args if mark else ("plain",)


def _is_left(item, stacks):
    """Whether this stack leaves a test to another one of the gate."""
    return gate.is_left(os.environ["PEDL_STACK"], item.location[0][len("tests/") :], _wanted(item), stacks)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A process of pytest-xdist has ended: notes how many tests it has left out."""
    left = getattr(node, "workeroutput", {}).get(LEFT_OUT)
    if left is not None:
        node.config.stash[LEFT_OUT] = left


def pytest_terminal_summary(terminalreporter, config):
    """Prints how many tests `--gate` has left out."""
    left = config.stash.get(LEFT_OUT, None)
    if left is not None:
        terminalreporter.write_line(f"gate: {left} tests are left to `cargo dev test --all`")


def _stays_with_its_file(item):
    """Whether a test shares something with others in its file: the process, or a fixture that is made once."""
    is_of_scripts = item.location[0].split("/")[1] not in ("hooks", "native", "release")
    definitions = item._fixtureinfo.name2fixturedefs.values()
    return not is_of_scripts or any(one.scope in ("module", "class", "package") for all in definitions for one in all)


class _Unpacked(importlib.abc.MetaPathFinder):
    """Finds `_pedl`, which the modules of `py_hooks` import: the module that pedl-run has unpacked."""

    def find_spec(self, name, path=None, target=None):
        if name != "_pedl":
            return None
        command = [support.executable(), "--python", sys.executable, "-c", "import _pedl; print(_pedl.__file__)"]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        return importlib.util.spec_from_file_location("_pedl", found)


sys.meta_path.append(_Unpacked())


@pytest.fixture(scope="session")
def native():
    """The module that pedl-run has unpacked, loaded into this process."""
    return importlib.import_module("_pedl")


@pytest.fixture
def script_run(tmp_path):
    """A function that makes a `support.ScriptRun` in a new directory; its processes end with the test."""
    made = []

    def make(script, *arguments, **settings):
        directory = tmp_path / f"run-{len(made) + 1}"
        made.append(support.ScriptRun(directory, script, arguments, **settings))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def dice(request):
    """Random numbers that are the same in every run of this test."""
    return random.Random(request.node.nodeid)
