"""Kills every kind of training five times, three of them within one epoch, and checks that it remained the same training.

Started by `cargo dev matrix` with the Python of a stack. A cell is a source of batches, or a single feature of a model,
with or without a seed, under `--exact`:

1. One training runs undisturbed. The others are compared with it. If `--exact` refuses it, the table has the cause.
2. Another trial runs undisturbed, on processors that are also busy with other work: it must end with the same hashes. If
   the script sets a seed, this trial has another seed.
3. Another one is killed: every process at once, three times within one epoch, each time after a checkpoint of that
   epoch; then only the process that trains, in the second fit, after which the supervisor continues by itself; then every
   process again, at a random moment. It must end with the hashes of the first, and may compute only what it must.

    python -m campaigns.matrix --stack NAME --script SCRIPT --results FILE [--cell NAME]...

A cell that is in the results file is not run again.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import support

from campaigns import everything

SEED = 3
EPOCHS = 6
IN_ONE_EPOCH = 3

# A checkpoint every four batches, or at the next ones if the last is still being written.
OPTIONS = ["--exact", "--batches-per-step", "4", "--checkpoint-period", "1"]

# The seconds by which a batch of a killed training is slower, so that an epoch is long enough for three kills.
PACE = 0.015

REFUSED = 77
_CAUSE = re.compile(r"this run cannot be resumed exactly: (.*)")

COLUMNS = "{:<24} {:<9} {:>7} {:>8} {:>8}  {}"


class Refused(Exception):
    """`--exact` refuses the training; the cause is its text."""


def undisturbed_in(cell):
    """The training that is not killed; raises `Refused`."""
    try:
        return cell.undisturbed(may_converge=True)
    except everything.DidNotEnd as error:
        if error.ended.code != REFUSED:
            raise
        raise Refused(_CAUSE.search(error.ended.stderr).group(1)) from None


@contextlib.contextmanager
def busy():
    """Keeps each processor busy with other work meanwhile."""
    commands = [[sys.executable, "-c", "while True: pass"]] * (os.cpu_count() or 1)
    # The same as support.py does for its processes.
    others = [subprocess.Popen(command, preexec_fn=support.die_with_parent) for command in commands]  # noqa: PLW1509
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def kill_in_one_epoch(training, batches_per_epoch, epochs):
    """Kills everything again and again, until three kills came after checkpoints of one epoch.

    Returns:
        How many kills there were, and how many of them fell into one epoch.
    """
    kills, epoch, found, last = 0, 1, 0, 0
    while found < IN_ONE_EPOCH and epoch < epochs:
        training.start()
        first = epoch * batches_per_epoch
        if not training.wait_until(lambda: (training.checkpoint or 0) > max(first, last)):  # noqa: B023
            break
        training.kill("everything")
        kills, last = kills + 1, training.checkpoint
        if last < first + batches_per_epoch:
            found += 1
        else:
            epoch, found = last // batches_per_epoch + 1, 0
    return kills, found


def kill_in_second_fit(training, undisturbed, dice):
    """Kills the process that trains in the second fit, and everything some time later. Returns the number of kills."""
    training.start()
    if not training.wait_until(lambda: training.checkpoint_in_fit(2) and training.is_training):
        return 0
    if training.kill("trial"):
        training.start()
    if training.ends_within(dice.uniform(0, 0.5 * undisturbed.seconds)):
        return 1
    training.kill("everything")
    training.start()
    return 2


def run_cell(cell, dice):
    """Runs one cell; returns its outcome, and the numbers for its line."""
    try:
        undisturbed = undisturbed_in(cell)
    except Refused as refused:
        return {"outcome": f"cause: {refused}", "kills": 0, "in_one_epoch": 0, "batches": 0}
    with busy():
        different = cell.again(undisturbed)
    if different:
        outcome = f"FAILED: two trials that nobody disturbed differ: {different}"
        return {"outcome": outcome, "kills": 0, "in_one_epoch": 0, "batches": undisturbed.batches}
    per_epoch = undisturbed.first_fit // undisturbed.first_epochs
    training = cell.killed("killed", undisturbed, pace=PACE)
    kills, found = kill_in_one_epoch(training, per_epoch, undisturbed.first_epochs)
    kills += kill_in_second_fit(training, undisturbed, dice)
    problems = training.finish()
    if found < IN_ONE_EPOCH:
        problems = [*problems, f"only {found} kills fell into one epoch"]
    if kills < IN_ONE_EPOCH + 1:
        problems = [*problems, f"only {kills} kills"]
    outcome = "exact" if not problems else "FAILED: " + "; ".join(problems)
    return {"outcome": outcome, "kills": kills, "in_one_epoch": found, "batches": undisturbed.batches}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--cell", action="append", help="source or feature; all of them without")
    arguments = parser.parse_args()

    tags = os.environ.get("PEDL_STACK_TAGS", "").split()
    names = arguments.cell or everything.product_of(tags) + everything.features_of(arguments.stack)
    done = everything.read_results(arguments.results)
    print(COLUMNS.format("cell", "", "kills", "in one", "batches", "outcome"))
    for name in names:
        for seed in (SEED, None):
            key = (arguments.stack, name, seed)
            if key not in done:
                done[key] = _run_and_keep(key, arguments)
            line = done[key]
            numbers = line["kills"], line["in_one_epoch"], line["batches"]
            print(COLUMNS.format(name, "seeded" if seed else "unseeded", *numbers, line["outcome"]), flush=True)
    lines = [line for key, line in done.items() if key[0] == arguments.stack and key[1] in names]
    return 1 if any(line["outcome"].startswith("FAILED") for line in lines) else 0


def _run_and_keep(key, arguments):
    _, name, seed = key
    source, settings = everything.cell_of(name)
    script = support.SCRIPTS / arguments.script
    return everything.run_and_keep(
        key,
        arguments.results,
        lambda directory: everything.Cell(directory, script, source, seed, EPOCHS, OPTIONS, settings),
        run_cell,
        ("kills", "in_one_epoch", "batches"),
    )


if __name__ == "__main__":
    sys.exit(main())
