"""A plugin for pytest that writes what became of each test as one JSON object a line, as `run_file.py` does.

    python -m pytest -p conftest -c pytest.ini --results RESULTS [--only TEST]... --pyargs PACKAGE|FILE

It has this name because some tests of Keras import what they share from the `conftest` of its repository, which its
source distribution lacks.
"""
import contextlib
import json
import os

import pytest

with contextlib.suppress(ImportError):
    # Before TensorFlow, which its libraries do not stand.
    import torch  # noqa: F401


def pytest_addoption(parser):
    """The options of this plugin."""
    parser.addoption("--results", required=True, help="the file to which lines are added")
    parser.addoption("--only", action="append", default=[], help="the name of a test; others are left out")


def pytest_configure(config):
    """Starts to listen."""
    for marker in ("requires_trainable_backend", "multi_device"):
        config.addinivalue_line("markers", f"{marker}: of Keras's own tests")
    recorder = _Recorder(config.getoption("file_or_dir")[0], os.path.abspath(config.getoption("--results")))
    config.pluginmanager.register(recorder, "recorder")


def pytest_collection_modifyitems(config, items):
    """Leaves out what is not wanted."""
    wanted = set(config.getoption("--only"))
    if wanted:
        name = config.pluginmanager.get_plugin("recorder").name
        items[:] = [item for item in items if name(item.nodeid) in wanted]


def skip_if_backend(backend, reason):
    """For tests of Keras: not on this backend."""
    import keras

    return pytest.mark.skipif(keras.backend.backend() == backend, reason=reason)


class _Recorder:
    """Writes each test's outcome when it has ended; one that has begun and not ended took the process with it."""

    def __init__(self, asked, path):
        self._asked = asked
        self._path = path
        self._outcome = None
        self._text = ""

    def name(self, nodeid):
        """`keras.src.trainers.trainer_test.TestTrainer.test_fit`: wherever packages are installed."""
        path, *rest = nodeid.split("::")
        if self._asked.endswith(".py"):
            return ".".join([os.path.basename(self._asked)[:-3]] + rest)
        # From what was asked for, a package or the module itself.
        below = path.rpartition("site-packages/" + self._asked.replace(".", "/"))[2]
        parts = [part for part in below.replace(".py", "").split("/") if part and part != "."]
        return ".".join([self._asked] + parts + rest)

    def _write(self, **fields):
        with open(self._path, "a") as lines:
            lines.write(json.dumps(fields, sort_keys=True) + "\n")

    def pytest_collectreport(self, report):
        """A module that cannot be imported."""
        if report.failed:
            self._write(test=self.name(report.nodeid), outcome="error", text=report.longreprtext[-4000:])

    def pytest_runtest_logstart(self, nodeid):
        """Notes that it has begun."""
        self._outcome, self._text = "ok", ""
        self._write(test=self.name(nodeid), outcome="began")

    def pytest_runtest_logreport(self, report):
        """What became of its preparation, of itself, and of its end."""
        if report.failed:
            self._outcome = "failure" if report.when == "call" else "error"
            self._text += report.longreprtext
        elif report.skipped:
            self._outcome = "expected failure" if hasattr(report, "wasxfail") else "skipped"
            self._text += str(report.longrepr)

    def pytest_runtest_logfinish(self, nodeid):
        """Notes what became of it."""
        self._write(test=self.name(nodeid), outcome=self._outcome, text=self._text[-4000:])

    def pytest_sessionfinish(self):
        """The end of the file."""
        self._write(done=True)
