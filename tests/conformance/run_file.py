"""Runs one file of CPython's tests, and writes the outcome of each test as one JSON object a line.

    python run_file.py RESULTS EXECUTABLE FILE [TEST...]

EXECUTABLE is what the tests start as Python; FILE is a name such as `test_signal`; with TESTs only these are run. Every
Python that pedl-run supports runs it, with and without pedl-run, so it uses no feature of a single version.
"""
import importlib
import json
import os
import sys
import tempfile
import traceback
import unittest

import test

HERE = os.path.dirname(os.path.abspath(__file__))

# Some installations lack a few files, which are three lines long. Children that multiprocessing spawns import this file
# before the content of those files.
test.__path__.append(os.path.join(HERE, "missing"))

# The resources that a test may use: not the network, sound, a screen, or gigabytes.
RESOURCES = ["cpu", "decimal", "subprocess", "walltime"]


class Recorder(unittest.TestResult):
    """Writes each test's outcome when the test has ended. A test that began and did not end has ended the process."""

    def __init__(self, path):
        unittest.TestResult.__init__(self)
        self._path = path
        self._outcome = None
        self._text = ""

    def write(self, **fields):
        """Adds a line."""
        with open(self._path, "a") as lines:
            lines.write(json.dumps(fields, sort_keys=True) + "\n")

    def startTest(self, test):  # noqa: N802  unittest's name
        """Notes that the test has begun."""
        self._outcome, self._text = "ok", ""
        self.write(test=test.id(), outcome="began")

    def stopTest(self, test):  # noqa: N802
        """Notes the outcome of the test."""
        self.write(test=test.id(), outcome=self._outcome, text=self._text[-4000:])
        self._outcome = None

    def _failed(self, outcome, error):
        self._outcome = outcome
        self._text += "".join(traceback.format_exception(*error))

    def addError(self, test, err):  # noqa: N802
        """An exception; also of `setUpClass` and `setUpModule`, which are not tests."""
        if self._outcome is None:
            text = "".join(traceback.format_exception(*err))
            self.write(test=test.id(), outcome="error", text=text[-4000:])
            return
        self._failed("error", err)

    def addFailure(self, test, err):  # noqa: N802
        """A failed assertion."""
        self._failed("failure", err)

    def addSkip(self, test, reason):  # noqa: N802
        """Left out."""
        self._outcome, self._text = "skipped", reason

    def addExpectedFailure(self, test, err):  # noqa: N802
        """Known to fail."""
        self._outcome = "expected failure"

    def addUnexpectedSuccess(self, test):  # noqa: N802
        """Known to fail, and did not."""
        self._outcome = "unexpected success"

    def addSubTest(self, test, subtest, err):  # noqa: N802
        """A part of a test."""
        if err is not None:
            self._failed("failure" if issubclass(err[0], test.failureException) else "error", err)


def tests_of(name):
    """The module of a file of tests."""
    return importlib.import_module("test." + name)


def selected(suite, wanted):
    """The tests of a suite that were selected by name."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from selected(part, wanted)
        elif part.id() in wanted:
            yield part


def main():
    """Runs the file."""
    results, sys.executable, name = sys.argv[1:4]
    wanted = set(sys.argv[4:])
    results = os.path.abspath(results)
    # The tests are part of the standard library, not of this folder.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    sys.argv[:] = ["python -m test"]
    from test import support

    support.verbose = 1
    support.use_resources = RESOURCES
    recorder = Recorder(results)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        suite = unittest.defaultTestLoader.loadTestsFromModule(tests_of(name))
        if wanted:
            suite = unittest.TestSuite(selected(suite, wanted))
        suite.run(recorder)
        os.chdir(HERE)
    recorder.write(done=True)


if __name__ == "__main__":
    main()
