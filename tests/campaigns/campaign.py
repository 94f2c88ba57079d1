"""Kills trainings at random moments, cell by cell, and compares each with a training that was not killed.

Started by `cargo dev campaign` with the Python of a stack. A cell is a source of batches, with or without
a seed. In each cell:

1. One training of scripts/everything_*.py runs undisturbed. The others are compared with it.
2. Others are killed, ten times in all: five times every process at once, and the command is given again;
   five times only the process that trains. The moments are random, from seeds; but at least six of them
   are after a checkpoint that was taken inside a fit, and at least two after one inside the second fit.
3. One training gets only 60 % of the undisturbed time at each start (three times what that start took until
   its first batch, if that is longer), and must finish by itself. It has more epochs than the others, enough
   that 60 % of its time is the longer of the two. It is compared with an undisturbed training of that length.

Each training that finishes must print the hashes of the first. Every start may compute only batches
that were not computed before the checkpoint (everything.py explains how that is known).

    python -m campaigns.campaign --stack NAME --script SCRIPT --results FILE [--source NAME] [--kills 10]

A cell that is in the results file is not run again.
"""

import argparse
import collections
import os
import random
import sys
import tempfile
from pathlib import Path

import support

from campaigns import everything

SEED = 3

# The part of the undisturbed time that each start gets, if a training must finish by itself.
SHARE = 0.6
LEAST_STARTUPS = 3

# The time until the first batch varies from start to start.
MARGIN = 1.3

# A training that is not finished after this many starts makes no progress.
MOST_STARTS = 12

# The places of the kills. In each ten, four are anywhere, four after a checkpoint inside a fit, and two after one
# inside the second fit.
ANYWHERE, IN_A_FIT, IN_THE_SECOND_FIT = "anywhere", "in a fit", "in the second fit"

# `moment`: at a time, or at a byte. Both are random.
AT_TIME, AT_BYTE = "at a time", "at a byte"

Kill = collections.namedtuple("Kill", "target place moment")

# The most bytes that are still written before a kill at a byte, which is a few checkpoints. As many kills come within
# the first ten bytes as between ten and a hundred, and so on: small writes are hit as often as large ones.
MOST_BYTES = 200000

COLUMNS = "{:<18} {:<8} {:>11} {:>11} {:>9} {:>7} {:>8} {:>7} {:>17}  {}"


def plan_kills(count, dice, moment=AT_TIME):
    """Draws the targets and places of the kills, in random order. Each target gets half of them."""
    targets = ["everything", "trial"] * ((count + 1) // 2)
    places = [IN_THE_SECOND_FIT] * -(-count * 2 // 10) + [IN_A_FIT] * -(-count * 4 // 10)
    places += [ANYWHERE] * (count - len(places))
    targets = targets[:count]
    dice.shuffle(targets)
    dice.shuffle(places)
    return [Kill(target, place, moment) for target, place in zip(targets, places)]


def is_after_checkpoint(training, place):
    """Whether a training has reached the place of a kill."""
    if place == IN_THE_SECOND_FIT:
        return training.checkpoint_in_fit(2) and training.is_training
    return training.is_training and (training.checkpoint_in_fit(1) or training.checkpoint_in_fit(2))


def wait_for_moment(training, kill, undisturbed, dice):
    """Waits for the moment of a kill, or until its bytes count; returns False if the training ended before."""
    of_training = undisturbed.seconds - undisturbed.startup_seconds
    if kill.place == ANYWHERE:
        longest = undisturbed.startup_seconds + 0.5 * of_training
        return kill.moment == AT_BYTE or not training.ends_within(dice.uniform(0, longest))
    if not training.wait_until(lambda: is_after_checkpoint(training, kill.place)):
        return False
    return not training.ends_within(dice.uniform(0, 0.2 * of_training))


def kill_now(training, kill, dice):
    """Kills; returns the same as `Killed.kill_at_byte`."""
    if kill.moment == AT_TIME:
        return training.kill(kill.target)
    return training.kill_at_byte(int(MOST_BYTES ** dice.random()), kill.target)


class Result:
    """The result of one cell, as it is kept and printed."""

    def __init__(self):
        self.kills = {"everything": 0, "trial": 0}
        self.moments = {AT_TIME: 0, AT_BYTE: 0}
        self.hits = []
        self.after_checkpoint = 0
        self.in_second_fit = 0
        self.ended = 0
        self.lost = 0
        self.differing = 0
        self.traced = 0
        self.problems = []
        self.undisturbed = None
        self.given_seconds = 0
        self.long_seconds = 0
        self.starts = 0

    def row(self, source, seeded):
        """The cell as a line of the table."""
        kills = "{} + {}".format(self.kills["everything"], self.kills["trial"])
        given = f"{self.starts} x {self.given_seconds:.0f} of {self.long_seconds:.0f} s"
        return COLUMNS.format(
            source,
            "seeded" if seeded else "unseeded",
            kills,
            self.after_checkpoint,
            self.in_second_fit,
            self.ended,
            self.undisturbed.batches,
            self.traced,
            given,
            "; ".join(self.problems) or "equal",
        )


def run_cell(make_cell, epochs, kills, dice):
    """Runs one cell; returns a `Result`. `make_cell(epochs)` makes its trainings."""
    result = Result()
    cell = make_cell(epochs)
    undisturbed = result.undisturbed = cell.undisturbed()
    kill_again_and_again(cell, plan_kills(kills, dice), undisturbed, dice, result)
    while SHARE * undisturbed.seconds < LEAST_STARTUPS * undisturbed.startup_seconds * MARGIN:
        of_training = undisturbed.seconds - undisturbed.startup_seconds
        wanted = LEAST_STARTUPS * undisturbed.startup_seconds * MARGIN / SHARE - undisturbed.startup_seconds
        epochs = 1 + int(undisturbed.epochs * max(1.2, wanted / of_training))
        cell = make_cell(epochs)
        undisturbed = cell.undisturbed(may_converge=True)
    result.long_seconds = undisturbed.seconds
    _give_little_time(cell, undisturbed, result)
    if result.starts < 2:
        result.problems.append("the training with little time was not short of it")
    if result.after_checkpoint < kills * 6 // 10 or result.in_second_fit < kills * 2 // 10:
        result.problems.append("too few kills fell after a checkpoint")
    return result


def kill_again_and_again(cell, kills, undisturbed, dice, result):
    """Runs trainings one after the other, each to its end, until all kills are done or one training is lost."""
    kills = collections.deque(kills)
    at_bytes = any(kill.moment == AT_BYTE for kill in kills)
    while kills and not result.lost:
        training = cell.killed(f"killed-{result.ended + 1}", undisturbed, at_bytes)
        training.start()
        while kills and wait_for_moment(training, kills[0], undisturbed, dice):
            in_a_fit, in_second = [is_after_checkpoint(training, place) for place in (IN_A_FIT, IN_THE_SECOND_FIT)]
            over = kill_now(training, kills[0], dice)
            if over is None:
                break
            kill = kills.popleft()
            result.kills[kill.target] += 1
            result.moments[kill.moment] += 1
            result.after_checkpoint += in_a_fit
            result.in_second_fit += in_second
            if over:
                training.start()
        _finish(training, result)


def _give_little_time(cell, undisturbed, result):
    """Runs one training that is killed after a part of the undisturbed time, at every start."""
    training = cell.killed("little-time", undisturbed)
    training.start()
    while not _ends_in_little_time(training, undisturbed, result):
        training.kill("everything")
        if training.starts == MOST_STARTS:
            result.starts = training.starts
            result.problems.append(f"no end after {MOST_STARTS} starts")
            return
        training.start()
    result.starts = training.starts
    _finish(training, result)


def _ends_in_little_time(training, undisturbed, result):
    if not training.wait_until(lambda: training.computed):
        return True
    seconds = max(SHARE * undisturbed.seconds, LEAST_STARTUPS * training.seconds)
    result.given_seconds = max(result.given_seconds, seconds)
    return training.ends_within(seconds - training.seconds)


def _finish(training, result):
    problems = training.finish()
    result.problems += problems
    result.lost += training.is_lost
    result.differing += bool(problems) and not training.is_lost
    result.hits += training.hits
    result.traced = max(result.traced, training.traced)
    result.ended += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--source", action="append", choices=everything.SOURCES)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--epochs", type=int)
    arguments = parser.parse_args()

    done = everything.read_results(arguments.results)
    print(
        COLUMNS.format(
            "source", "", "all + trial", "after ckpt", "in fit 2", "ended", "batches", "traced", "60 % runs", "hashes"
        )
    )
    failed = False
    tags = os.environ.get("PEDL_STACK_TAGS", "").split()
    for source in arguments.source or everything.sources_of(tags):
        for seed in (SEED, None):
            name = (arguments.stack, source, seed, arguments.kills, arguments.epochs)
            if name not in done:
                done[name] = _run_and_keep(name, arguments)
            print(done[name]["row"], flush=True)
            failed |= not done[name]["good"]
    return 1 if failed else 0


def _run_and_keep(name, arguments):
    stack, source, seed, kills, epochs = name
    dice = random.Random(repr(name))
    cells = []
    with tempfile.TemporaryDirectory(prefix="pedl-campaign-") as directory:

        def make_cell(epochs):
            place = Path(directory) / str(epochs)
            cells.append(everything.Cell(place, support.SCRIPTS / arguments.script, source, seed, epochs))
            return cells[-1]

        try:
            result = run_cell(make_cell, epochs, kills, dice)
        finally:
            for cell in cells:
                cell.close()
    line = {"cell": name, "row": result.row(source, seed is not None), "good": not result.problems}
    everything.keep_result(arguments.results, line)
    return line


if __name__ == "__main__":
    sys.exit(main())
