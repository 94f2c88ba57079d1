"""Trains scripts/everything_*.py undisturbed and killed, and tells whether the two are the same training.

    cell = Cell(directory, "arrays", seed=3, epochs=10)
    undisturbed = cell.undisturbed()
    killed = cell.killed("killed", undisturbed)
    killed.start()
    killed.wait_until(lambda: killed.checkpoint_in_fit(2))
    killed.kill("everything")
    killed.start()
    killed.finish()
    assert killed.problems == []

A trial that is to be compared gets the random seed of the undisturbed one: its trial.json, before its
first start. So it stands where a trial stands that was killed before its first checkpoint.

What was really computed is told by an op inside the model. In each training pass it appends a line to
the file `computed`: checksums of the bits of a kernel, and of a layer's outputs. So a start that
continued after batch 700 has to add the 701st record of the undisturbed run first of all, but for the
few passes that a replay makes again because they trace.
"""

import re
import shutil

import support

# Shapes of a batch, times fits: each of them is traced once, and traced again in a replay.
MOST_TRACED = 4

# A checkpoint a second, or at the next batch where the last one is still being written.
OPTIONS = ["--exact", "--checkpoint-seconds", "1"]


class Undisturbed:
    """A training that nobody killed.

    Attributes:
        hashes: what it printed.
        records: what the op in the model saw in each batch; empty where the script runs `--unwatched`.
        first_fit: batches of the first fit.
        batches: of both fits.
        epochs: that each fit was asked for.
        trial: the `support.Trial`.
        seconds: from start to end.
        startup_seconds: from start to the first batch.
    """

    def __init__(self, ended, trial, records, startup_seconds):
        self.hashes = ended.hashes
        self.records = records
        self.first_fit = _number(ended, r"batches before the second fit: (\d+)")
        self.batches = _number(ended, r"loss of each of (\d+) batches: .*")
        self.epochs = _number(ended, r"epochs of each fit: (\d+)")
        assert len(records) in (0, self.batches), ended
        self.trial = trial
        self.seconds = ended.seconds
        self.startup_seconds = startup_seconds


class Cell:
    """One source of batches on the stack of this Python, with a seed or none.

    Args:
        directory: where its runs lie; made if need be.
        script: of scripts/everything_keras*.py.
        source: where the batches come from.
        seed: of the script, or None.
        epochs: of each fit; None for what the script takes for right.
        options: of pedl-run.
        arguments: further ones of the script.
    """

    def __init__(self, directory, script, source, seed=None, epochs=None, options=tuple(OPTIONS), arguments=()):
        self.directory = directory
        self._script = script
        self._arguments = ["--source", source, "--seed", "none" if seed is None else str(seed)]
        if epochs is not None:
            self._arguments += ["--epochs", str(epochs)]
        self._arguments += arguments
        self._options = list(options)
        self._runs = []

    def undisturbed(self, may_converge=False):
        """Trains to the end; returns an `Undisturbed`.

        Args:
            may_converge: it is so long that a batch may leave the bits of the weights, or their sum, as they were.
        """
        run = self._run("undisturbed")
        running = run.start()
        running.ends_before((run.directory / "computed").exists)
        startup_seconds = running.seconds
        ended = running.wait().check()
        undisturbed = Undisturbed(ended, run.trial, _records(run.directory), startup_seconds)
        problem = _unchanged(undisturbed.records)
        assert may_converge or not problem, problem
        return undisturbed

    def killed(self, name, undisturbed):
        """A training to be killed; nothing is started yet."""
        run = self._run(name)
        run.trial.directory.mkdir(parents=True)
        shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))
        return Killed(run, undisturbed)

    def _run(self, name):
        self._runs.append(support.ScriptRun(self.directory / name, self._script, self._arguments, self._options))
        return self._runs[-1]

    def close(self):
        """Ends what is still running."""
        for run in self._runs:
            run.close()


class Killed:
    """A training that is killed and started again.

    Attributes:
        problems: in what it was not the undisturbed training; texts.
        traced: passes that replays made again, the most of any start.
        starts: how often the script began: by command, or by the supervisor.
        ended: the `Ended` of the last start; None while there is none.
    """

    def __init__(self, run, undisturbed):
        self.problems = []
        self.traced = 0
        self.starts = 0
        self.ended = None
        self._run = run
        self._undisturbed = undisturbed
        self._running = None
        self._records_before = 0
        self._resumes_before = 0
        self._had_checkpoint = False

    def start(self):
        """Gives the command."""
        self._begin()
        self._running = self._run.start()

    def wait_until(self, condition):
        """Waits until `condition()` is true; returns False if the script ended before."""
        return self._running.ends_before(condition) is None

    def ends_within(self, seconds):
        """Waits this long at most; returns whether the script ended."""
        return self._running.ends_within(seconds) is not None

    @property
    def seconds(self):
        """Since the command was given."""
        return self._running.seconds

    @property
    def checkpoint(self):
        """Batches before the newest checkpoint; None while there is none."""
        return self._run.trial.checkpoint

    def checkpoint_in_fit(self, number):
        """Whether the newest checkpoint was taken after a batch of the first, or of the second fit."""
        batch, first = self.checkpoint, self._undisturbed.first_fit
        last = first if number == 1 else self._undisturbed.batches
        return batch is not None and (first if number == 2 else 0) < batch < last

    @property
    def computed(self):
        """Training passes of the running start."""
        return len(_records(self._run.directory)) - self._records_before

    @property
    def is_training(self):
        """Whether the running start computed batches beyond those that a replay repeats."""
        return self.computed > MOST_TRACED

    def kill(self, target):
        """SIGKILL to `everything`, or to the process that trains, the `trial`, which the supervisor may start again.

        Returns:
            Whether the command has to be given again: the supervisor starts again what made progress.
        """
        if target == "everything":
            self._running.kill_everything()
            self._check_start()
            return True
        self._running.ends_before(lambda: self._running.trial_pid is not None)
        ended = self._running.replace_trial()
        self._check_start()
        if ended is None:
            self._begin()
            return False
        return True

    def finish(self):
        """Waits for the end, and compares it; returns the list of problems."""
        self.ended = self._running.wait()
        self._check_start()
        if self.ended.code != 0:
            self.problems.append(f"it ended with {self.ended!r}")
        elif self._run.hashes != self._undisturbed.hashes:
            pairs = zip(self._undisturbed.hashes, self._run.hashes)
            differences = [f"{now}, not {then}" for then, now in pairs if now != then]
            self.problems.append("other hashes: {}".format("; ".join(differences) or self._run.hashes))
        return self.problems

    def _begin(self):
        """A start of the script begins: notes what there is before it."""
        self.starts += 1
        self._records_before = len(_records(self._run.directory))
        self._resumes_before = self._run.trial.count("resumed")
        self._had_checkpoint = self.checkpoint is not None

    def _check_start(self):
        """A start of the script is over: checks what it computed."""
        records = _records(self._run.directory)[self._records_before :]
        resumes = [event for event in self._run.trial.events if event["event"] == "resumed"][self._resumes_before :]
        if len(resumes) > 1:
            self.problems.append(f"one start resumed {len(resumes)} times")
            return
        first = resumes[0]["batch"] if resumes else 0
        expected = self._undisturbed.records[first:]
        if self._had_checkpoint and not resumes:
            # It was killed in its replay.
            expected = []
        for traced in range(min(len(records), MOST_TRACED if self._had_checkpoint else 0) + 1):
            live = records[traced:]
            if live == expected[: len(live)]:
                break
        else:
            self.problems.append(_describe_difference(records, expected, first, self._undisturbed.records))
            return
        self.traced = max(self.traced, traced)
        if self.ended is not None and self.ended.code == 0 and len(live) != len(expected):
            self.problems.append(f"{len(live)} batches were computed after batch {first}, not {len(expected)}")


def _number(ended, pattern):
    """The number in the line of the output that matches."""
    found = re.search("^" + pattern + "$", ended.stdout, re.MULTILINE)
    assert found, ended
    return int(found.group(1))


def _records(directory):
    """`(kernel, outputs)` of every training pass; a line that a kill has torn is none."""
    path = directory / "computed"
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [tuple(line.split()) for line in whole.splitlines()]


def _unchanged(records):
    """Says after which batches the weights were those before it; None where each batch changed them."""
    kernels = [kernel for kernel, _ in records]
    same = [number for number, pair in enumerate(zip(kernels, kernels[1:]), 1) if pair[0] == pair[1]]
    return f"batches {same} did not change the weights" if same else None


def _describe_difference(records, expected, first, all_records):
    known = {record: number for number, record in enumerate(all_records, 1)}
    computed = [known.get(record, "?") for record in records]
    text = "after batch {} it computed the batches {} ({} in all), not {} ..."
    return text.format(first, computed[:12], len(records), [known[record] for record in expected[:5]])
