"""Trains for very many batches, under plain Python and pedl-run, and reports what grows with them: on disk, and in memory.

    PEDL_RUN=PATH python -m campaigns.endurance --directory DIR [--batches N] [--way NAME]...

`scripts/endurance.py` trains in each of its ways: under plain Python; under pedl-run with its defaults; and under a
pedl-run that is killed, all of its processes at once, at 40 and at 80 % of the batches, and started again. At each
hundredth of the batches the script waits until the memory of its process that is in no file was measured. With fewer
batches, checkpoints are more frequent by the same factor. It prints

- the contents of the trial directory at the end, and how many bytes they have per batch;
- the memory of each process at 20 and 100 % of the batches, and how much it grew beyond the growth under plain Python;
- how long the replays took, and how much memory grew in them.

It fails if `calls.log` has more than `MOST_LOG` bytes a batch, if memory has grown by more than `MOST_GROWTH` (for any
number of batches), or if the training learned something else than under plain Python.
"""
import argparse
import datetime
import os
import select
import shutil
import sys
from pathlib import Path

import support

SCRIPT = support.SCRIPTS / "endurance.py"

# The ways of the script, and its part of the batches in each: to begin a fit takes as long as many batches.
WAYS = {"fit": 1, "train_on_batch": 1, "fits": 0.1, "folds": 0.1}

# All batches, and the seconds between checkpoints for that number, which are the default.
BATCHES, CHECKPOINT_SECONDS = 1_000_000, 60.0

# At which parts of the batches it is killed, and from which part on its memory must not grow.
KILLS, WARM = (0.4, 0.8), 0.2

# The limits: bytes of `calls.log` a batch, and MiB of memory for all batches together, beyond the growth under plain
# Python. Allocators and buffers need some.
MOST_LOG, MOST_GROWTH = 64, 8.0

# Seconds in which a script gets from one hundredth to the next, on any machine, however busy.
LIMIT = 1200

MIB = 1 << 20


def memory(pid):
    """Bytes of memory that belong to a process alone, and that are in no file."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"/proc/{pid}/status tells nothing of memory")


class Watch:
    """What the script reports, and the memory of its processes at that time.

    Attributes:
        script, supervisor: of the last start, bytes of memory by batch.
    """

    def __init__(self, directory):
        paths = {name: str(directory / name) for name in ("ENDURANCE_SAY", "ENDURANCE_GO")}
        for path in paths.values():
            os.mkfifo(path)
        self.environment = paths
        # Open for reading and writing, so that opening does not block and reading has no end of file.
        self._say, self._go = (os.open(path, os.O_RDWR) for path in paths.values())
        self.script, self.supervisor = {}, {}
        self._samples = directory / "memory"

    def follow(self, running, last=None):
        """Follows a start to its end, or until it is killed at the batch `last`; returns the `support.Ended`."""
        self.script, self.supervisor = {}, {}
        while True:
            ended = running.ends_before(lambda: select.select([self._say], [], [], 0)[0], LIMIT)
            if ended is not None:
                return ended
            reached = int(os.read(self._say, 100))
            self.script[reached] = memory(running.trial_pid or running.pid)
            self.supervisor[reached] = memory(running.pid)
            with self._samples.open("a") as file:
                file.write(f"{reached} {self.script[reached]} {self.supervisor[reached]}\n")
            if last is not None and reached >= last:
                return running.kill_everything()
            os.write(self._go, b".")


def run_of(directory, way, batches):
    """A `support.ScriptRun` in a new directory, and its `Watch`."""
    directory.mkdir(parents=True)
    watch = Watch(directory)
    seconds = CHECKPOINT_SECONDS * min(1, batches / BATCHES)
    options = [] if seconds == CHECKPOINT_SECONDS else ["--checkpoint-seconds", f"{seconds:g}"]
    settings = {"options": options, "environment": watch.environment}
    return support.ScriptRun(directory / "run", SCRIPT, [way, batches], **settings), watch


def sizes(trial):
    """Bytes of each part of a trial directory. A folder is one part."""
    found = {}
    for path in sorted(trial.rglob("*")):
        if path.is_file() and not path.is_symlink():
            part = path.relative_to(trial).parts[0]
            found[part] = found.get(part, 0) + path.stat().st_size
    return found


def growth(of, batches):
    """MiB that memory has grown by, from the batch at which the process was warm to the last batch."""
    return (of[batches] - of[warm(batches)]) / MIB


def warm(batches):
    return batches // 100 * int(100 * WARM)


def replays(events):
    """The batch of each resume, and the seconds since the first intercepted call of its start."""
    begun, found = None, []
    for event in events:
        time = datetime.datetime.strptime(event["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
        if event["event"] == "trial_begun":
            begun = time
        elif event["event"] == "resumed":
            found.append((event["batch"], (time - begun).total_seconds()))
    return found


def grown_in_replay(ours, plain, batch, batches):
    """MiB that the script has grown by in a replay, beyond plain Python: from its first hundredth to its last."""
    first, last = batches // 100, batch // (batches // 100) * (batches // 100)
    return (ours[last] - ours[first] - plain[last] + plain[first]) / MIB


def print_sizes(parts, batches):
    for part, size in sorted(parts.items(), key=lambda item: -item[1]):
        print(f"  {part:<24}{size:>12} bytes{size / batches:>10.3f} a batch")


def print_memory(name, of, batches):
    print(f"  {name:<24}{of[warm(batches)] / MIB:>8.1f} MiB {of[batches] / MIB:>8.1f} MiB{growth(of, batches):>8.1f}")


def try_way(way, batches, directory):
    """Trains in one way and prints what grew; returns the problems."""
    print(f"\n{way}, {batches} batches")
    run, watch = run_of(directory / "python", way, batches)
    plain, memory_of_plain = watch.follow(run.start_python()).check(), watch.script
    run, watch = run_of(directory / "undisturbed", way, batches)
    ours = watch.follow(run.start()).check()
    print(f"  {plain.seconds:.0f} s by python, {ours.seconds:.0f} s by pedl-run")
    parts = sizes(run.trial.directory)
    print_sizes(parts, batches)
    print(f"  {'memory':<24}{f'at {WARM:.0%}':>12} {'at 100%':>12}{'grown':>8}")
    print_memory("python", memory_of_plain, batches)
    print_memory("pedl-run, the script", watch.script, batches)
    print_memory("pedl-run, above it", watch.supervisor, batches)
    grown = {
        "the script": growth(watch.script, batches) - max(0, growth(memory_of_plain, batches)),
        "the process above it": growth(watch.supervisor, batches),
    }

    run, watch = run_of(directory / "killed", way, batches)
    for part in KILLS:
        watch.follow(run.start(), part * batches)
    killed = watch.follow(run.start()).check()
    found = replays(run.trial.events)
    for batch, seconds in found:
        print(f"  replay of {batch} batches: {seconds:.1f} s, {seconds / batch * 1e6:.0f} µs a batch")
    if found:
        grown["a replay"] = grown_in_replay(watch.script, memory_of_plain, found[-1][0], batches)
        print(f"  the last one has grown by {grown['a replay']:.1f} MiB beyond python")

    problems = [f"{name} has grown by {more:.1f} MiB" for name, more in grown.items() if more > MOST_GROWTH]
    for name, parts_of in (("undisturbed", parts), ("killed", sizes(run.trial.directory))):
        if parts_of["calls.log"] > MOST_LOG * batches:
            problems.append(f"{name}: calls.log has {parts_of['calls.log'] / batches:.1f} bytes a batch")
    if not plain.hashes == ours.hashes == killed.hashes:
        problems.append(f"learned {plain.hashes}, {ours.hashes}, {killed.hashes}")
    if len(found) != len(KILLS):
        problems.append(f"{len(found)} of {len(KILLS)} starts resumed")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--way", action="append", choices=list(WAYS))
    arguments = parser.parse_args()

    problems = []
    for way in arguments.way or WAYS:
        directory = arguments.directory / way
        if directory.exists():
            shutil.rmtree(str(directory))
        # A hundredth must be a whole number of epochs.
        batches = max(10_000, int(arguments.batches * WAYS[way]) // 10_000 * 10_000)
        problems += [f"{way}: {problem}" for problem in try_way(way, batches, directory)]
    for problem in problems:
        print(f"\nWRONG: {problem}")
    if not problems:
        print(f"\nThe bounds hold: at most {MOST_LOG} bytes a batch in calls.log, and {MOST_GROWTH:.0f} MiB of memory.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
