"""Kills the worker processes of one training again and again: a campaign, run by hand.

    PEDL_RUN=... python worker_kills.py KILLS DIRECTORY

Runs `scripts/worker_faults.py` once undisturbed and once with KILLS workers killed by SIGKILL, one at a time and at
random moments, and compares the hashes of the weights. Prints how long the training stood still for a kill: the time
from the kill to the end of the next batch, and the longest time between two batches around it. The last line is for
programs. Fails if a hash differs, if a kill was not noticed, or if half of the training's stops are longer than 100 ms.
"""

import bisect
import json
import random
import re
import sys
import time
from pathlib import Path

import support

BATCHES = 12

CONFIGURATION = """
batches_per_step: {}
searcher: {{name: single, metric: loss, max_steps: {}}}
reproducibility: {{experiment_seed: 7}}
max_restarts: 0
"""

# Epochs of 12 items of 5 ms, by two workers, for each kill: enough that no item loses three workers by chance.
EPOCHS_PER_KILL = 3

MOST_S = 0.1


def main(kills, directory):
    """Returns the exit code."""
    epochs = kills * EPOCHS_PER_KILL
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "seeds.yaml"
    file.write_text(CONFIGURATION.format(BATCHES, epochs))
    hashes, words = [], None
    for name in ("undisturbed", "killed"):
        options = ["--config", file, "--exact", "--fresh"]
        environment = {"EPOCHS": str(epochs)}
        run = support.ScriptRun(directory / name, support.SCRIPTS / "worker_faults.py", [2, "none"], options, environment)
        for left in ("built.txt", "ends.txt"):
            (run.directory / left).unlink() if (run.directory / left).exists() else None
        running = run.start()
        moments = kill_workers(running, kills) if name == "killed" else []
        ended = running.wait(7200).check()
        hashes.append(ended.hashes)
        if name == "killed":
            words = report(run, ended, moments, kills)
    sys.stdout.write(json.dumps(dict(words, equal=hashes[0] == hashes[1], hash=hashes[0][0][-12:])) + "\n")
    good = hashes[0] == hashes[1] and words["kills"] == kills and words["median_stop_s"] <= MOST_S
    return 0 if good else 1


def kill_workers(running, kills):
    """Kills so many; returns the moments in ns."""
    dice, moments = random.Random(kills), []
    while len(moments) < kills:
        assert running.ends_within(dice.uniform(0.04, 0.1)) is None, "it ended too early"
        trainer = running.trial_pid
        workers = support._children(trainer) if trainer else []
        if len(workers) == 2:
            support._kill(dice.choice(workers))
            moments.append(int(time.monotonic() * 1e9))
    return moments


def report(run, ended, moments, kills):
    """What the kills did."""
    ends = [int(line) for line in (run.directory / "ends.txt").read_text().split()]
    stops, next_ends = [], []
    for moment in moments:
        after = bisect.bisect(ends, moment)
        if 0 < after < len(ends) - 4:
            next_ends.append((ends[after] - moment) / 1e9)
            around = ends[after - 1:after + 5]
            stops.append(max(later - sooner for sooner, later in zip(around, around[1:])) / 1e9)
    gaps = sorted((later - sooner) / 1e9 for sooner, later in zip(ends, ends[1:]))
    stops.sort()
    told = len(re.findall("of the data set was ended by SIGKILL", ended.stderr))
    return {
        "kills": len(moments),
        "told": told,
        "batches": len(ends),
        "median_stop_s": stops[len(stops) // 2],
        "stop_of_95_of_100_s": stops[len(stops) * 95 // 100],
        "longest_stop_s": stops[-1],
        "median_gap_s": gaps[len(gaps) // 2],
        "stops_above_100_ms": sum(stop > MOST_S for stop in stops),
    }


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
