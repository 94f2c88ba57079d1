"""Trains a model with each public name of a Keras: under python, under pedl-run, and killed once within each cell.

Started by `cargo dev gallery` with the Python of a stack. Cells (layers, optimizers, losses, metrics, callbacks, initializers,
constraints, regularizers) are found by scripts/gallery.py. Several cells share a process, because imports take most of the
time; each has its own line. If a group fails, its halves are run, and so on.

    python -m campaigns.gallery --stack NAME --script SCRIPT --results FILE [--cell KIND:NAME]... [--kind KIND]...

A cell that is in the results file is not run again. The outcomes:

    exact                  the killed run has learned and reported the same as the undisturbed run
    cause: ...             `--exact` refuses it, for this cause
    does not run: ...      it fails under python too, with the arguments that the gallery has; pedl-run ends alike
    FAILED: ...            anything else
"""

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import support

from campaigns import everything

GROUP = 8

OPTIONS = ["--exact", "--batches-per-step", "2", "--checkpoint-period", "1"]
REFUSED = 77
_LINE = re.compile(r"^cell (\S+) (.*)$", re.MULTILINE)
_FOUND = re.compile(r"^found ((\S+)=\S+)$", re.MULTILINE)
_CAUSE = re.compile(r"this run cannot be resumed exactly: (.*)")
_AGAIN = "it is started again from the newest checkpoint"
_LIMIT = 600


class Cells:
    """A process of the gallery: undisturbed under python and pedl-run, and killed."""

    def __init__(self, directory, script, names):
        self._directory = Path(directory)
        self._script = script
        self._names = self._arguments = names

    def run(self):
        """The outcome of each name; None if the outcome cannot be assigned to single names."""
        python = self._run("python").python(_LIMIT)
        expected = dict(_LINE.findall(python.stdout))
        if python.code != 0 or len(expected) != len(self._names):
            return self._alone(f"FAILED: python ended with {python.code}: {python.stderr[-200:]!r}")
        shapes = {name: whole for whole, name in _FOUND.findall(python.stdout)}
        self._arguments = [shapes.get(name, name) for name in self._names]
        undisturbed = self._run("undisturbed").run(_LIMIT)
        if undisturbed.code == REFUSED:
            cause = _CAUSE.search(undisturbed.stderr)
            return self._alone("cause: " + (cause.group(1) if cause else undisturbed.stderr[-200:]))
        found = dict(_LINE.findall(undisturbed.stdout))
        if undisturbed.code != 0 or "Traceback" in undisturbed.stderr or "a bug of pedl" in undisturbed.stderr:
            return self._alone(f"FAILED: pedl-run ended with {undisturbed.code}: {undisturbed.stderr[-300:]!r}")
        killed = self._run("killed", {"DIES": "1"}).run(_LIMIT)
        again = dict(_LINE.findall(killed.stdout))
        kills = killed.stderr.count(_AGAIN)
        trained = sum(not said.startswith("does not run") for said in expected.values())
        if killed.code != 0 or kills < trained:
            return self._alone(f"FAILED: killed {kills} times, it ended with {killed.code}: {killed.stderr[-300:]!r}")
        return {name: _outcome(expected[name], found.get(name), again.get(name)) for name in self._names}

    def _alone(self, outcome):
        return {self._names[0]: outcome} if len(self._names) == 1 else None

    def _run(self, name, environment=None):
        return support.ScriptRun(self._directory / name, self._script, self._arguments, OPTIONS, environment)


def _outcome(by_python, undisturbed, killed):
    if undisturbed != killed:
        return f"FAILED: undisturbed {undisturbed}, killed {killed}"
    if by_python.startswith("does not run"):
        return by_python if undisturbed == by_python else f"FAILED: python says {by_python}, pedl-run {undisturbed}"
    if undisturbed.startswith("does not run"):
        return f"FAILED: it runs under python, and not under pedl-run: {undisturbed}"
    return "exact"


def run(script, names):
    """The outcome of each name: of all together, and of each half if that assigns none."""
    with tempfile.TemporaryDirectory(prefix="pedl-gallery-") as directory:
        found = Cells(directory, script, names).run()
    if found is None:
        middle = len(names) // 2
        found = {**run(script, names[:middle]), **run(script, names[middle:])}
    return found


def all_names(script):
    listed = subprocess.run([sys.executable, str(script), "--list"], stdout=subprocess.PIPE, check=True)
    return listed.stdout.decode().split()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--cell", action="append", help="KIND:NAME; all of them without")
    parser.add_argument("--kind", action="append", help="layers, optimizers, ...; all of them without")
    arguments = parser.parse_args()

    script = support.SCRIPTS / arguments.script
    names = arguments.cell or [
        name for name in all_names(script) if not arguments.kind or name.partition(":")[0] in arguments.kind
    ]
    done = {
        key[1]: line["outcome"]
        for key, line in everything.read_results(arguments.results).items()
        if key[0] == arguments.stack
    }
    waiting = [name for name in names if name not in done]
    for first in range(0, len(waiting), GROUP):
        for name, outcome in run(script, waiting[first:first + GROUP]).items():
            done[name] = outcome
            everything.keep_result(arguments.results, {"cell": (arguments.stack, name, None), "outcome": outcome})
            print(f"{name:<44} {outcome}", flush=True)
    counts = collections.Counter(done[name].partition(":")[0] for name in names)
    print(f"\n{arguments.stack}: {len(names)} cells", json.dumps(counts), flush=True)
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
