"""Trains scripts/everything_*.py undisturbed and killed, and checks that the two are the same training.

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
first start. It is then in the state of a trial that was killed before its first checkpoint.

An op inside the model reports what was really computed. In each training pass it appends a line to
the file `computed`: checksums of the bits of a kernel, and of a layer's outputs. A start that
continued after batch 700 must add the 701st record of the undisturbed run first, except for the
few passes that a replay makes again because they trace.
"""

import json
import random
import re
import shutil
import tempfile
from pathlib import Path

import support

from campaigns import kill_at_byte

# Shapes of a batch, times fits: each of them is traced once, and traced again in a replay. tf.keras 2 traces the first
# of each fit twice, because it makes the optimizer's variables.
MOST_TRACED = 6

# A checkpoint a second, or at the next batch if the last one is still being written.
OPTIONS = ["--exact", "--checkpoint-seconds", "1"]


# This stack has pipelines of TensorFlow and trains with another backend. It is used only for these.
ONLY_PIPELINES = "tf-data"

# Sources of batches, and the tags of the stacks that have them. An empty list means every stack.
SOURCES = {
    "arrays": [],
    "arrays-unshuffled": [],
    "sequence-0": [],
    "sequence-1": [],
    "sequence-3": [],
    "processes-2": [],
    "own-generators": [],
    "generator-0": ["keras2", "generation"],
    "generator-1": [],
    "images": [],
    "tf-data": ["tensorflow2", "tfkeras", "tf.keras", ONLY_PIPELINES],
    "train-on-batch": [],
}


def sources_of(tags):
    """The sources that a stack has, by its tags."""
    if ONLY_PIPELINES in tags:
        return [ONLY_PIPELINES]
    return [name for name, those in SOURCES.items() if not those or not set(those).isdisjoint(tags)]


# What `cargo dev matrix` tries in addition: these arguments make sources of items use no workers, threads or processes.
_PRODUCT = {
    "own-generators-0": [],
    "own-generators-3": [],
    "own-generators-processes-2": [],
    "images-0": [],
    "images-3": [],
    "images-processes-2": [],
    "generator-3": ["keras2", "generation", "tfkeras"],
    "generator-processes-2": ["keras2", "generation", "tfkeras"],
}


def product_of(tags):
    """Each source that a stack has, with each kind of workers, by its tags."""
    if ONLY_PIPELINES in tags:
        return sources_of(tags)
    return sources_of(tags) + [name for name, those in _PRODUCT.items() if not those or not set(those).isdisjoint(tags)]


# Single features of a model or of its training: the stacks that have them in `cargo dev matrix`, and their source.
_BOTH = ("keras2-tensorflow1", "keras3-jax")
FEATURES = {
    "recurrent dropout": (_BOTH, "arrays"),
    "batch normalization": (_BOTH, "arrays"),
    "RMSprop": (_BOTH, "arrays"),
    "Adadelta": (_BOTH, "arrays"),
    "learning rate schedule": (_BOTH, "arrays"),
    "augmentation with workers": (_BOTH, "images-3"),
    "stateful RNN": (_BOTH, "arrays-unshuffled"),
    "train_step override": (("keras3-tensorflow", "keras2.15-tensorflow2.15"), "arrays"),
}


def features_of(stack):
    """The features that are tried on a stack."""
    return [name for name, (stacks, _) in FEATURES.items() if stack in stacks]


def cell_of(name):
    """The source of batches, and further arguments of the script, for a source or a feature."""
    if name in FEATURES:
        return FEATURES[name][1], ["--feature", name]
    return name, []


# What scripts/everything_*.py draw without a seed, even if the script has one.
_UNSEEDED = "next of numpy.random.default_rng()"


class DidNotEnd(Exception):
    """A training did not end by itself with exit code 0.

    Args:
        ended: the `support.Ended`.
    """

    def __init__(self, ended):
        Exception.__init__(self, repr(ended))
        self.ended = ended


class Undisturbed:
    """A training that was not killed.

    Attributes:
        hashes: what it printed.
        records: what the op in the model saw in each batch; empty if the script runs `--unwatched`.
        first_fit: batches of the first fit.
        batches: of both fits.
        epochs: the number that each fit was asked for.
        first_epochs: the number that the first fit had.
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
        self.first_epochs = _number(ended, r"history of fit 1, (\d+) epochs: .*")
        assert len(records) in (0, self.batches), ended
        self.trial = trial
        self.seconds = ended.seconds
        self.startup_seconds = startup_seconds


class Cell:
    """One source of batches on the stack of this Python, with or without a seed.

    Args:
        directory: of its runs; it is made if needed.
        script: of scripts/everything_keras*.py.
        source: of the batches.
        seed: of the script, or None.
        epochs: of each fit; None for the default of the script.
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
            may_converge: the training is so long that a batch may leave the bits of the weights, or their sum, unchanged.
        """
        run = self._run("undisturbed")
        running = run.start()
        running.ends_before((run.directory / "computed").exists)
        startup_seconds = running.seconds
        ended = running.wait()
        if ended.code != 0:
            raise DidNotEnd(ended)
        undisturbed = Undisturbed(ended, run.trial, _records(run.directory), startup_seconds)
        problem = _unchanged(undisturbed.records)
        assert may_converge or not problem, problem
        return undisturbed

    def again(self, undisturbed):
        """Another training that is not killed, in another trial; returns how it differs from the first, a text, or None.

        A script without a seed gets that of the first trial. With a seed, values drawn without one are not compared.
        """
        run = self._run("again")
        is_seeded = "none" not in self._arguments
        if not is_seeded:
            self._take_seed(run, undisturbed)
        ended = run.start().wait()
        if ended.code != 0:
            raise DidNotEnd(ended)
        pairs = list(zip(undisturbed.hashes, ended.hashes))
        if is_seeded:
            pairs = [pair for pair in pairs if not pair[0].startswith(_UNSEEDED)]
        different = [f"{now}, not {then}" for then, now in pairs if now != then]
        return "; ".join(different) or None

    def _take_seed(self, run, undisturbed):
        run.trial.directory.mkdir(parents=True)
        shutil.copy(str(undisturbed.trial.directory / "trial.json"), str(run.trial.directory / "trial.json"))

    def killed(self, name, undisturbed, at_bytes=False, pace=0):
        """A training to be killed; nothing is started yet.

        Args:
            name: of its directory.
            undisturbed: the `Undisturbed` that it must equal.
            at_bytes: it will be killed at bytes too.
            pace: the seconds by which each of its batches is slower.
        """
        at_byte, environment = None, {"PACE": str(pace)}
        if at_bytes:
            trials = self.directory / name / ".pedl"
            at_byte = kill_at_byte.KillAtByte(self.directory / f"{name}.control", trials)
            environment.update(at_byte.environment)
        run = self._run(name, environment)
        self._take_seed(run, undisturbed)
        return Killed(run, undisturbed, at_byte)

    def _run(self, name, environment=None):
        directory = self.directory / name
        self._runs.append(support.ScriptRun(directory, self._script, self._arguments, self._options, environment))
        return self._runs[-1]

    def close(self):
        """Ends the processes that still run."""
        for run in self._runs:
            run.close()


class Killed:
    """A training that is killed and started again.

    Attributes:
        problems: how it differed from the undisturbed training; texts.
        is_lost: whether it did not finish, or went back behind a checkpoint.
        hits: the kills at bytes, each a `kill_at_byte.Hit`.
        traced: passes that replays made again, the most of any start.
        starts: how often the script began: by command, or by the supervisor.
        ended: the `Ended` of the last start; None before that.
    """

    def __init__(self, run, undisturbed, at_byte):
        self.problems = []
        self.is_lost = False
        self.hits = []
        self.traced = 0
        self.starts = 0
        self.ended = None
        self._run = run
        self._undisturbed = undisturbed
        self._at_byte = at_byte
        self._running = None
        self._records_before = 0
        self._resumes_before = 0
        self._checkpoint_before = None

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
        """Batches before the newest checkpoint; None if there is no checkpoint yet."""
        return self._run.trial.checkpoint

    def checkpoint_in_fit(self, number):
        """Whether the newest checkpoint was taken after a batch of the first or second fit."""
        batch, first = self.checkpoint, self._undisturbed.first_fit
        last = first if number == 1 else self._undisturbed.batches
        return batch is not None and (first if number == 2 else 0) < batch < last

    @property
    def computed(self):
        """Training passes of the current start."""
        return len(_records(self._run.directory)) - self._records_before

    @property
    def is_training(self):
        """Whether the current start computed batches beyond those that a replay repeats."""
        return self.computed > MOST_TRACED

    def kill(self, target):
        """SIGKILL to `everything`, or to the process that trains, the `trial`, which the supervisor may start again.

        Returns:
            Whether the command must be given again: the supervisor starts a training again if it made progress, and a kill
            may come too late.
        """
        if target == "everything":
            self._running.kill_everything()
            return self._is_over()
        self._running.ends_before(lambda: self._running.trial_pid is not None)
        return self._is_over(self._running.replace_trial())

    def kill_at_byte(self, count, target):
        """As `kill`, when `count` more bytes are written below the trial directory, the last of them in the middle of a call.

        Returns:
            As `kill`; None if the script ended before.
        """
        self._at_byte.arm(count, target)
        ended = self._running.ends_before(lambda: self._at_byte.killer is not None)
        self._at_byte.disarm()
        if self._at_byte.killer is None:
            return None
        self.hits.append(self._at_byte.hit)
        if target == "everything":
            return self.kill(target)
        return self._is_over(ended or self._running.when_replaced(self._at_byte.killer))

    def _is_over(self, ended=True):
        """A start of the script is over. If `ended` is None, the supervisor begins the next one."""
        self._check_start()
        if ended is None:
            self._begin()
        return ended is not None and not self._trial_is_over

    @property
    def _trial_is_over(self):
        """Whether it had finished before it was killed: the next one by this command would be a new trial."""
        events = self._run.trial.events
        return bool(events) and events[-1]["event"] == "trial_ended" and events[-1].get("exit_code") == 0

    def finish(self):
        """Waits for the end, and compares the training; returns the list of problems."""
        self.ended = self._running.wait()
        self._check_start()
        if self.ended.code != 0 and not self._trial_is_over:
            self._lose(f"it ended with {self.ended!r}")
        elif self._run.hashes != self._undisturbed.hashes:
            pairs = zip(self._undisturbed.hashes, self._run.hashes)
            differences = [f"{now}, not {then}" for then, now in pairs if now != then]
            self.problems.append("other hashes: {}".format("; ".join(differences) or self._run.hashes))
        return self.problems

    def _begin(self):
        """A start of the script begins: notes the state before it."""
        self.starts += 1
        self._records_before = len(_records(self._run.directory))
        self._resumes_before = self._run.trial.count("resumed")
        self._checkpoint_before = self.checkpoint

    def _check_start(self):
        """A start of the script is over: checks what it computed."""
        records = _records(self._run.directory)[self._records_before :]
        resumes = [event for event in self._run.trial.events if event["event"] == "resumed"][self._resumes_before :]
        before = self._checkpoint_before
        if len(resumes) > 1:
            self.problems.append(f"one start resumed {len(resumes)} times")
            return
        first = resumes[0]["batch"] if resumes else 0
        newest = self.checkpoint or 0
        if newest < (before or 0) or (resumes and first < (before or 0)):
            self._lose(f"after batch {before} it went back: to {first}, and the newest checkpoint is of {newest}")
        expected = self._undisturbed.records[first:]
        if before is not None and not resumes:
            # It was killed in its replay.
            expected = []
        for traced in range(min(len(records), 0 if before is None else MOST_TRACED) + 1):
            live = records[traced:]
            if live == expected[: len(live)]:
                break
        else:
            problem = _describe_difference(records, expected, first, self._undisturbed.records)
            if before is not None and not resumes:
                self._lose(problem)
            else:
                self.problems.append(problem)
            return
        self.traced = max(self.traced, traced)
        if self.ended is not None and self.ended.code == 0 and len(live) != len(expected):
            self.problems.append(f"{len(live)} batches were computed after batch {first}, not {len(expected)}")

    def _lose(self, problem):
        self.is_lost = True
        self.problems.append(problem)


def _number(ended, pattern):
    """The number in the line of the output that matches."""
    found = re.search("^" + pattern + "$", ended.stdout, re.MULTILINE)
    assert found, ended
    return int(found.group(1))


def _records(directory):
    """`(kernel, outputs)` of every training pass; a line that a kill has torn is left out."""
    path = directory / "computed"
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")
    return [tuple(line.split()) for line in whole.splitlines()]


def _unchanged(records):
    """Returns a text with the batches that did not change the weights; None if each batch changed them."""
    kernels = [kernel for kernel, _ in records]
    same = [number for number, pair in enumerate(zip(kernels, kernels[1:]), 1) if pair[0] == pair[1]]
    return f"batches {same} did not change the weights" if same else None


def _describe_difference(records, expected, first, all_records):
    known = {record: number for number, record in enumerate(all_records, 1)}
    computed = [known.get(record, "?") for record in records]
    text = "after batch {} it computed the batches {} ({} in all), not {} ..."
    return text.format(first, computed[:12], len(records), [known[record] for record in expected[:5]])


def read_results(path):
    """The lines of a results file, by cell; empty if there is no file yet."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {tuple(line["cell"]): line for line in lines}


def run_and_keep(key, results, cell_in, run, counts):
    """Runs a cell in a directory that is removed afterwards; keeps and returns its line of results.

    If a cell cannot be run, its outcome is `FAILED`, and the others still run.

    Args:
        key: of the cell; its random numbers follow from the key.
        results: the file.
        cell_in: makes the cell in a directory.
        run: `run(cell, dice)` returns its line, a dict with an `outcome`.
        counts: names of the other members of a line, which are 0 if the cell cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="pedl-cell-") as directory:
        cell = cell_in(Path(directory))
        try:
            line = run(cell, random.Random(repr(key)))
        except Exception as error:  # noqa: BLE001
            line = dict.fromkeys(counts, 0)
            line["outcome"] = f"FAILED: {error!r:.600}"
        finally:
            cell.close()
    line["cell"] = key
    keep_result(results, line)
    return line


def keep_result(path, line):
    """Adds the line of a cell to a results file, so that a command that is given again continues after it."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
