"""Kills trainings by the hundred, half of them in the middle of a write, and reports those that were lost or differ.

Started by `cargo dev kills` with the Python of a stack, for its part of all kills. A trial has a source of batches, with
or without a seed; these change from trial to trial:

1. One training runs undisturbed. The others are compared with it.
2. Another one is killed, and continued by the same command or by the supervisor, up to 20 times: half of the times at a
   random moment, half when a random number of further bytes was written below the trial directory (kill_at_byte.py).
   Targets and places are those of campaign.py. If it finishes earlier, one more training gets the remaining kills.
3. It then runs without further kills, and must end with the hashes of the first. No start may be refused, go back
   behind a checkpoint, or compute what it need not.

    python -m campaigns.kills --stack NAME --script SCRIPT --results FILE --kills 1000 --part 1/7 [--jobs 2]

A trial that is in the results file is not run again. If a trial has a problem, its directory is kept, and named.
"""

import argparse
import collections
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import support

from campaigns import campaign, everything

SEED = 3
EPOCHS = 6
KILLS_OF_TRIAL = 20

# A checkpoint every four batches, or at the next ones if the last is still being written.
OPTIONS = ["--exact", "--batches-per-step", "4", "--checkpoint-period", "1"]

COLUMNS = "{:<6} {:<18} {:<9} {:>6} {:>6} {:>11} {:>8} {:>5} {:>7} {:>5}  {}"

Trial = collections.namedtuple("Trial", "stack script source seed at_bytes at_times key")


def share(kills, part, parts):
    """The kills of one part, as (at bytes, at times). Parts are as equal as possible; the first ones have more."""
    at_bytes, at_times = [count // parts + (part <= count % parts) for count in (kills // 2, kills - kills // 2)]
    return at_bytes, at_times


def plan_trials(arguments, tags):
    """The trials of this stack: sources and seeds in turn, beginning at another source on every stack."""
    part, parts = map(int, arguments.part.split("/"))
    at_bytes, at_times = share(arguments.kills, part, parts)
    count = -(-(at_bytes + at_times) // KILLS_OF_TRIAL)
    sources = everything.sources_of(tags)
    random.Random(arguments.stack).shuffle(sources)
    for number in range(1, count + 1):
        key = (arguments.stack, arguments.kills, arguments.part, number)
        of_trial = [share(2 * kills, number, count)[0] for kills in (at_bytes, at_times)]
        seed = SEED if number % 2 else None
        yield Trial(arguments.stack, arguments.script, sources[number % len(sources)], seed, *of_trial, key)


def run(trial):
    """Runs one trial; returns its line of the results."""
    dice = random.Random(repr(trial))
    kills = campaign.plan_kills(trial.at_bytes, dice, campaign.AT_BYTE) + campaign.plan_kills(trial.at_times, dice)
    dice.shuffle(kills)
    directory = Path(tempfile.mkdtemp(prefix="pedl-kills-"))
    cell = everything.Cell(directory, support.SCRIPTS / trial.script, trial.source, trial.seed, EPOCHS, OPTIONS)
    result = campaign.Result()
    try:
        campaign.kill_again_and_again(cell, kills, cell.undisturbed(may_converge=True), dice, result)
    except Exception as error:  # noqa: BLE001  a trial that hangs does not end the others
        result.lost += 1
        result.problems.append(f"{error!r}")
    finally:
        cell.close()
    if result.problems:
        result.problems.append(f"kept: {directory}")
    else:
        shutil.rmtree(str(directory))
    return {
        "cell": trial.key,
        "source": trial.source,
        "seed": trial.seed,
        "at_bytes": result.moments[campaign.AT_BYTE],
        "at_times": result.moments[campaign.AT_TIME],
        "after_checkpoint": result.after_checkpoint,
        "trainings": result.ended,
        "lost": result.lost,
        "differing": result.differing,
        "hits": [list(hit) for hit in result.hits],
        "problems": result.problems,
    }


def row(line):
    """A trial as a line of the table."""
    return COLUMNS.format(
        line["cell"][-1],
        line["source"],
        "unseeded" if line["seed"] is None else "seeded",
        line["at_bytes"],
        line["at_times"],
        line["after_checkpoint"],
        line["trainings"],
        line["lost"],
        line["differing"],
        sum(0 < hit[1] < hit[2] for hit in line["hits"]),
        "; ".join(line["problems"]) or "equal",
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stack", required=True)
    parser.add_argument("--script", required=True)
    parser.add_argument("--results", required=True, type=Path)
    parser.add_argument("--kills", type=int, default=1000, help="of all parts")
    parser.add_argument("--part", default="1/1", help="which of how many parts this is")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time")
    arguments = parser.parse_args()

    done = everything.read_results(arguments.results)
    trials = list(plan_trials(arguments, os.environ.get("PEDL_STACK_TAGS", "").split()))
    numbers = ["bytes", "times", "after ckpt", "trained", "lost", "differ", "torn"]
    print(COLUMNS.format("trial", "source", "", *numbers, "hashes"))
    for trial in trials:
        if trial.key in done:
            print(row(done[trial.key]), flush=True)
    # Processes, not threads: when a thread ends, the processes that it started die (`support.die_with_parent`).
    with multiprocessing.Pool(arguments.jobs) as pool:
        for line in pool.imap_unordered(run, [trial for trial in trials if trial.key not in done]):
            everything.keep_result(arguments.results, line)
            done[tuple(line["cell"])] = line
            print(row(line), flush=True)
    return 1 if any(done[trial.key]["problems"] for trial in trials) else 0


if __name__ == "__main__":
    sys.exit(main())
