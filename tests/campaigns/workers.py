"""Worker processes of one training over a long time: killed again and again, and without kills.

    PEDL_RUN=... python workers.py --directory DIR [--kills N] [--epochs N]

The first part runs `scripts/worker_faults.py` once undisturbed and once with N workers killed by SIGKILL, one at a time
and at random moments, and compares the hashes of the weights. It prints how long the training stops for a kill:
the time from the kill to the end of the next batch, and the longest time between two batches around it. Of the stops above
100 ms it prints in how many Python ran a full garbage collection, for which a training without kills stops too: the longest
time between two batches of that one is printed as well. It fails if a hash differs, if a kill was not noticed, or if half
of the training's stops are longer than 100 ms.

The second part runs it for N epochs and measures the memory and the file descriptors of the process that trains, of its
workers, and of the memory that they share. It fails if anything grows by more than `MOST_GROWTH_MIB` between a tenth of
the time and its end, if there are more file descriptors, or if a worker was replaced.

The last line of each part is for programs.
"""

import argparse
import bisect
import contextlib
import json
import os
import random
import re
import shutil
import sys
import time
from pathlib import Path

import support

BATCHES = 12

# Epochs of 12 items of 5 ms, by two workers, for each kill: enough that no item loses three workers by chance.
EPOCHS_PER_KILL = 3

MOST_S = 0.1

MOST_GROWTH_MIB = 8

# Seconds in which a part ends, on any machine, however busy.
LIMIT_S = 7200


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=2000)
    arguments = parser.parse_args()
    parts = [killed(arguments.kills, arguments.directory)] if arguments.kills else []
    parts += [left_alone(arguments.epochs, arguments.directory)] if arguments.epochs else []
    return 0 if all(parts) else 1


def make_run(directory, name, epochs):
    """A new training of this many epochs."""
    run_directory = directory / name
    shutil.rmtree(str(run_directory), ignore_errors=True)
    run_directory.mkdir(parents=True)
    file = run_directory / "seeds.yaml"
    file.write_text(support.seeded_configuration(BATCHES, epochs))
    options = ["--config", file, "--exact", "--fresh"]
    words, environment = [2, "none"], {"EPOCHS": str(epochs)}
    return support.ScriptRun(run_directory, support.SCRIPTS / "worker_faults.py", words, options, environment)


def say(words):
    """Prints a line for programs."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def killed(kills, directory):
    """Whether a training whose workers are killed equals an undisturbed one, and its stops are short."""
    epochs = kills * EPOCHS_PER_KILL
    undisturbed_run = make_run(directory, "undisturbed", epochs)
    undisturbed = undisturbed_run.run(LIMIT_S).check()
    run = make_run(directory, "killed", epochs)
    running = run.start()
    moments = kill_workers(run, running, kills)
    ended = running.wait(LIMIT_S).check()
    words = dict(report(run, ended, moments), undisturbed_longest_gap_s=max(gaps(moments_in(undisturbed_run, "ends"))))
    is_equal = undisturbed.hashes == ended.hashes
    say(dict(words, equal=is_equal, hash=ended.hashes[0][-12:]))
    return is_equal and words["kills"] == kills and words["told"] == kills and words["median_stop_s"] <= MOST_S


def left_alone(epochs, directory):
    """Whether nothing grows."""
    running = make_run(directory, "epochs", epochs).start()
    samples = []
    while running.ends_within(0.5) is None:
        trainer = running.trial_pid
        workers = running.workers
        if len(workers) == 2:
            with contextlib.suppress(OSError):
                samples.append(sample(trainer, sorted(workers)))
    running.wait(LIMIT_S).check()
    tenth = max(1, len(samples) // 10)
    parts = samples[tenth : 2 * tenth], samples[-tenth:]
    words = {"epochs": epochs, "samples": len(samples)}
    grown = []
    for name in samples[0]:
        if name != "pids":
            before, after = (sorted(one[name] for one in part)[len(part) // 2] for part in parts)
            words[name] = [round(before, 1), round(after, 1)]
            most = 0 if name.endswith("descriptors") else MOST_GROWTH_MIB
            grown += [name] if after - before > most else []
    words["workers_are_the_same"] = parts[0][0]["pids"] == parts[1][-1]["pids"]
    say(dict(words, grown=grown))
    return not grown and words["workers_are_the_same"]


def sample(trainer, workers):
    """MiB of memory and numbers of file descriptors of a training at this moment."""
    return {
        "pids": workers,
        "trainer_mib": field_kib(trainer, "RssAnon") / 1024,
        "workers_mib": sum(field_kib(worker, "RssAnon") for worker in workers) / 1024,
        "shared_mib": shared_bytes(trainer) / 2**20,
        "trainer_descriptors": len(os.listdir(f"/proc/{trainer}/fd")),
        "worker_descriptors": sum(len(os.listdir(f"/proc/{worker}/fd")) for worker in workers),
    }


def field_kib(pid, name):
    """A number of `/proc/PID/status`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise OSError(f"process {pid} ends")


def shared_bytes(pid):
    """Bytes of the pools of a process that are in memory."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        if "pedl-pool" in os.readlink(path):
            total += os.stat(path).st_blocks * 512
    return total


def kill_workers(run, running, kills):
    """Kills this many workers, once the framework has compiled the model; returns the moments in ns."""
    dice, moments = random.Random(kills), []
    running.wait_until(lambda: len(moments_in(run, "ends")) > 2 * BATCHES)
    while len(moments) < kills:
        assert running.ends_within(dice.uniform(0.04, 0.1)) is None, "it ended too early"
        workers = running.workers
        if len(workers) == 2:
            support._kill(dice.choice(workers))
            moments.append(int(time.monotonic() * 1e9))
    return moments


def moments_in(run, name):
    """The times that the script has noted, in ns: when batches ended (`ends`), or full collections (`collections`)."""
    file = run.directory / f"{name}.txt"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def gaps(ends):
    """Seconds between batches."""
    return [(later - sooner) / 1e9 for sooner, later in zip(ends, ends[1:])]


def report(run, ended, moments):
    """The effects of the kills."""
    ends, collections = moments_in(run, "ends"), moments_in(run, "collections")
    stops, next_ends, collected = [], [], 0
    for moment in moments:
        after = bisect.bisect(ends, moment)
        if 0 < after < len(ends) - 4:
            next_ends.append((ends[after] - moment) / 1e9)
            around = ends[after - 1:after + 5]
            stop, end = max((later - sooner, later) for sooner, later in zip(around, around[1:]))
            stops.append(stop / 1e9)
            is_collected = bisect.bisect(collections, end) > bisect.bisect(collections, end - stop)
            collected += is_collected and stops[-1] > MOST_S
    stops.sort()
    next_ends.sort()
    told = len(re.findall("of the data set was ended by SIGKILL", ended.stderr))
    return {
        "kills": len(moments),
        "told": told,
        "batches": len(ends),
        "median_next_end_s": next_ends[len(next_ends) // 2],
        "median_stop_s": stops[len(stops) // 2],
        "stop_of_95_of_100_s": stops[len(stops) * 95 // 100],
        "longest_stop_s": stops[-1],
        "median_gap_s": sorted(gaps(ends))[len(ends) // 2],
        "stops_above_100_ms": sum(stop > MOST_S for stop in stops),
        "of_them_with_a_full_collection": collected,
    }


if __name__ == "__main__":
    sys.exit(main())
