"""Kills every kind of training loop over TensorFlow sessions five times, and gives others 60 % of their time at each start.

Started by `cargo dev sessions` with the Python of a stack. A cell is a kind of loop of scripts/session_loops.py
or scripts/unordered.py:

1. One training runs undisturbed. The others are compared with it. If `--exact` refuses it, the table has the cause, and
   the rest runs without it and without a comparison: it must only finish. A kind of scripts/unordered.py, in which
   ops race, runs undisturbed twice more, once beside processes that take all of the CPUs; it has no part 3.
2. Another one is killed at calls that are drawn at random, every process at once, and started again.
3. Another one has at each start 60 % of the time that the first took, including the start of Python and the imports;
   then it is killed. It must finish nevertheless.

    python -m campaigns.sessions --stack NAME --script SCRIPT --results FILE [--kind NAME]... [--kills 5]

A cell that is in the results file is not run again.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import support

from campaigns import everything

KINDS = ["softmax", "convnet", "lstm", "gan", "monitored", "iterator", "queue", "saver", "assign", "two"]
KINDS += ["randomized", "imported"]
# Those of the other script, and those that only Keras 2 on TensorFlow 1 has.
RACES = ["average", "spectral", "centre", "target", "counter"]
RACES_OF_KERAS = ["layer", "centres"]

CALLS = 400
# Rows and columns of a matrix that each call squares, so that the calls take longer than the imports; and about how many
# seconds one call takes.
WORK = 1000
CALL_SECONDS = 0.025
CALLS_PER_STEP = 5
# A checkpoint at each step, or at the next one if the last is still being written.
OPTIONS = ["--checkpoint-period", "1"]

SHARE = 0.6
# A training that makes no progress would be started again for ever.
MOST_STARTS = 25

REFUSED = 77
_CAUSE = re.compile(r"this run cannot be resumed exactly: (.*)")

COLUMNS = "{:<10} {:>6} {:>6} {:>7} {:>7}  {}"


class Cell:
    """One kind of loop."""

    def __init__(self, directory, script, kind):
        self.races = kind in RACES + RACES_OF_KERAS
        self._directory = directory
        self._script = support.SCRIPTS / "unordered.py" if self.races else script
        self._kind = kind
        self._runs = []

    def run(self, name, is_exact):
        """A run of it with the same seeds as all others; nothing is started yet."""
        file = self._directory / "seeds.yaml"
        file.write_text(support.seeded_configuration(CALLS_PER_STEP, CALLS // CALLS_PER_STEP))
        options = ["--config", file, *OPTIONS, *(["--exact"] if is_exact else [])]
        environment = {"WORK": str(WORK)}
        if self.races:
            environment = {"PAUSE": str(CALL_SECONDS)}
        self._runs.append(
            support.ScriptRun(self._directory / name, self._script, [self._kind, CALLS], options, environment)
        )
        return self._runs[-1]

    def close(self):
        """Ends the processes that still run."""
        for run in self._runs:
            run.close()


@contextlib.contextmanager
def busy_machine():
    """Runs processes that take all of the CPUs meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [
        subprocess.Popen(command, preexec_fn=support.die_with_parent)  # noqa: PLW1509 - there is no other thread
        for _ in range(2 * os.cpu_count())
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def left_in_peace_again(cell, expected):
    """How a training in which ops race differs the second time, or on a busy machine."""
    again = cell.run("again", is_exact=True)
    problems = problems_of("again", again, again.run(), expected)
    busy = cell.run("busy", is_exact=True)
    with busy_machine():
        return problems + problems_of("busy", busy, busy.run(), expected)


def kill_at_calls(run, calls, dice):
    """Kills a training at these calls, then lets it finish. Returns the number of kills, and the `Ended`."""
    kills = 0
    for call in calls:
        running = run.start()
        # A start that is killed before it has resumed has done nothing.
        at_work = lambda: run.trial.count("resumed") >= kills and (run.trial.checkpoint or 0) >= call  # noqa: B023, E731
        if running.ends_before(at_work) is not None:
            break
        time.sleep(dice.uniform(0, CALLS_PER_STEP * CALL_SECONDS))
        running.kill_everything()
        kills += 1
    return kills, run.run()


def run_in_parts(run, seconds):
    """Gives a training this many seconds at each start. Returns the number of starts, and the `Ended`."""
    for number in range(1, MOST_STARTS + 1):
        running = run.start()
        ended = running.ends_within(seconds)
        if ended is not None:
            return number, ended
        running.kill_everything()
    return MOST_STARTS, None


def problems_of(name, run, ended, expected):
    """How a training that was killed differs from the undisturbed one."""
    if ended is None:
        return [f"{name}: it did not come to its end in {MOST_STARTS} starts"]
    if ended.code != 0:
        return [f"{name}: it ended with {ended!r:.600}"]
    if expected is not None and run.hashes != expected:
        return [f"{name}: another hash"]
    return []


def run_cell(cell, kills_wanted, dice):
    """Runs one cell; returns its outcome, and the numbers for its line."""
    undisturbed = cell.run("undisturbed", is_exact=True).run()
    cause, expected = None, undisturbed.hashes
    if undisturbed.code == REFUSED:
        cause, expected = _CAUSE.search(undisturbed.stderr).group(1), None
        undisturbed = cell.run("without", is_exact=False).run()
    undisturbed.check()
    calls = sorted(dice.randrange(CALLS_PER_STEP, CALLS - 4 * CALLS_PER_STEP) for _ in range(kills_wanted))
    killed = cell.run("killed", is_exact=cause is None)
    kills, ended = kill_at_calls(killed, calls, dice)
    problems = problems_of("killed", killed, ended, expected)
    if cell.races and cause is None:
        problems.extend(left_in_peace_again(cell, expected))
    if kills != kills_wanted or killed.trial.count("resumed") != kills:
        problems.append(f"{kills} kills, and it resumed {killed.trial.count('resumed')} times")
    starts = 0
    if not cell.races:
        # The starts are most of the time of the others.
        parts = cell.run("parts", is_exact=cause is None)
        starts, ended = run_in_parts(parts, SHARE * undisturbed.seconds)
        problems.extend(problems_of(f"{SHARE:.0%} of the time", parts, ended, expected))
        if starts == 1:
            problems.append("it ended within 60 % of the time")
    outcome = f"cause: {cause}" if cause else "exact"
    if problems:
        outcome = "FAILED: " + "; ".join(problems)
    return {"outcome": outcome, "kills": kills, "starts": starts, "seconds": round(undisturbed.seconds, 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--kind", action="append", choices=KINDS + RACES + RACES_OF_KERAS, help="all without Keras")
    parser.add_argument("--kills", type=int, default=5)
    arguments = parser.parse_args()

    done = everything.read_results(arguments.results)
    print(COLUMNS.format("kind", "calls", "kills", "starts", "seconds", "outcome"))
    is_good = True
    for kind in arguments.kind or KINDS + RACES:
        key = (arguments.stack, kind, arguments.kills)
        if key not in done:
            done[key] = _run_and_keep(key, arguments)
        line = done[key]
        print(COLUMNS.format(kind, CALLS, line["kills"], line["starts"], line["seconds"], line["outcome"]), flush=True)
        is_good &= not line["outcome"].startswith("FAILED")
    return 0 if is_good else 1


def _run_and_keep(key, arguments):
    _, kind, kills = key
    script = support.SCRIPTS / arguments.script
    return everything.run_and_keep(
        key,
        arguments.results,
        lambda directory: Cell(directory, script, kind),
        lambda cell, dice: run_cell(cell, kills, dice),
        ("kills", "starts", "seconds"),
    )


if __name__ == "__main__":
    raise SystemExit(main())
