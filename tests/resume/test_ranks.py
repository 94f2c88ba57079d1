"""Several processes that train one model: of PyTorch, as `torchrun` starts them, and of `tf.keras` under `TF_CONFIG`.

The rules are D4, K5 and K17.
"""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import support

pytestmark = pytest.mark.stack("keras3-torch", "torch-of-debian")
TENSORFLOW = pytest.mark.stack("keras2.15-tensorflow2.15")

DEFINITIONS = support.ROOT / "tests" / "definitions"

CONFIGURATION = """
entrypoint: ":RanksTrial"
hyperparameters: {hyperparameters}
batches_per_step: 5
min_validation_period: 2
searcher: {{name: single, metric: {metric}, max_steps: 4}}
{seed}
max_restarts: 0
"""

# 52 rows in batches of 8 rows, which both ranks share: 6, and one of 4 rows.
GLOBAL_BATCH_SIZE = 8


class Ranks:
    """A trial of some ranks of PyTorch, started any number of times."""

    definition_name, metric = "pytorch_ranks", "error"

    def __init__(self, script_run, base, size, options, seed, hyperparameters):
        self._script_run = script_run
        self._options = options
        self.size = size
        self.base = base
        base.mkdir()
        self.definition = base / "definition"
        source = str(DEFINITIONS / self.definition_name)
        shutil.copytree(source, str(self.definition), ignore=shutil.ignore_patterns("__pycache__"))
        self.notes_file = base / "notes"
        self.notes_file.write_text("")
        given = {"noise": True, "global_batch_size": GLOBAL_BATCH_SIZE, **hyperparameters}
        text = CONFIGURATION.format(hyperparameters=json.dumps(given), seed=seed, metric=self.metric)
        (base / "configuration.yaml").write_text(text)
        names = [base / "trial", *(base / f"trial-rank-{rank}" for rank in range(1, size))]
        self.trials = [support.Trial(name) for name in names]

    def notes(self):
        return self.notes_file.read_text().splitlines()

    def told(self, rank, ports):
        """The variables from which a rank learns of the others."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ports[0]}
        return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.size, **meeting}

    def common(self):
        """The variables that are the same for all ranks."""
        trials = os.pathsep.join(str(trial.directory) for trial in self.trials)
        return {"NOTES": str(self.notes_file), "TRIALS": trials, "XDG_CACHE_HOME": str(self.base / "cache")}

    def environment(self, rank, ports, **changes):
        of_rank = self.told(rank, ports) if self.size > 1 else {}
        return {name: str(value) for name, value in {**self.common(), "OMP_NUM_THREADS": 1, **of_rank, **changes}.items()}

    def options(self):
        return ["--config", self.base / "configuration.yaml", "--trial-dir", self.base / "trial", "--exact", *self._options]

    def start(self, **changes):
        """Starts all ranks."""
        ports = free_ports(self.size)
        runs = [
            self._script_run(self.definition, options=self.options(), environment=self.environment(rank, ports, **changes))
            for rank in range(self.size)
        ]
        return [run.start() for run in runs]

    def run(self, **changes):
        """Starts all ranks, and waits until they end."""
        return [running.wait(120) for running in self.start(**changes)]

    def check(self, **changes):
        """As `run`, and all must end with 0. Returns the hash that all of them print."""
        hashes = {tuple(ended.check().hashes) for ended in self.run(**changes)}
        assert len(hashes) == 1
        ((only,),) = hashes
        return only

    def batches(self, rank):
        return [int(line.split()[2]) for line in self.notes() if line.startswith(f"batch {rank} ")]

    def folders(self, rank):
        """The folders of the checkpoints, the newest last."""
        return sorted(Path(self.trials[rank].directory, "checkpoints").glob("batch-*"))

    def losses(self):
        return [event["metrics"]["loss"] for event in self.trials[0].events if event["event"] == "step"]


class Workers(Ranks):
    """A trial of some ranks of `tf.keras`."""

    definition_name, metric = "tf_keras_ranks", "val_loss"

    def told(self, rank, ports):
        addresses = [f"127.0.0.1:{port}" for port in ports]
        task = {"type": "worker", "index": rank}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


def free_ports(count):
    """Ports of this machine that are free."""
    with contextlib.ExitStack() as there:
        sockets = [there.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def maker(kind, script_run, tmp_path):
    """A function that makes a trial of some ranks: 4 steps of 5 batches, 7 in an epoch, validated after 2 and 4."""
    made = []

    def make(*options, size=2, seed="reproducibility: {experiment_seed: 7}", **hyperparameters):
        made.append(kind(script_run, tmp_path / f"ranks-{len(made)}", size, options, seed, hyperparameters))
        return made[-1]

    return make


@pytest.fixture
def ranks(script_run, tmp_path):
    """Makes trials of PyTorch."""
    return maker(Ranks, script_run, tmp_path)


@pytest.fixture
def workers(script_run, tmp_path):
    """Makes trials of `tf.keras`."""
    return maker(Workers, script_run, tmp_path)


def test_ranks_train_as_one_process_with_the_batches_of_all(ranks):
    one, two = ranks(size=1, noise=False), ranks(noise=False)
    one.check()
    two.check()
    assert two.losses() == pytest.approx(one.losses(), rel=1e-5)
    assert [len(one.losses()), len(set(one.losses()))] == [4, 4]
    assert sorted({line.split()[1] for line in two.notes() if line.startswith("validated")}) == ["0"]
    assert two.batches(0) == two.batches(1) == list(range(20))


def test_a_rank_that_was_killed_goes_on_with_all_the_others(ranks):
    undisturbed = ranks().check()
    run = ranks("--checkpoint-seconds", "0")
    for killed, batch in ((1, 7), (0, 13)):
        ended = run.run(KILL=f"{killed} {batch}")
        ended[killed].check(-9)
        ended[1 - killed].check(75)
        assert f"rank {1 - killed} of 2 has lost another rank" in ended[1 - killed].stderr
    before = len(run.notes())
    assert run.check() == undisturbed
    assert [trial.count("resumed") for trial in run.trials] == [2, 2]
    numbers = [[line.split()[2] for line in run.notes()[before:] if line.startswith(f"batch {rank} ")] for rank in (0, 1)]
    assert numbers[0] == numbers[1], "all go on at one batch"
    assert 0 < int(numbers[0][0]) <= 13


def test_ranks_go_back_to_a_checkpoint_that_all_of_them_have(ranks):
    undisturbed = ranks().check()
    run = ranks("--checkpoint-seconds", "0")
    run.run(KILL="1 12")
    shutil.rmtree(str(run.folders(0)[-1]))
    names = [{folder.name for folder in run.folders(rank)} for rank in (0, 1)]
    common = int(max(names[0] & names[1]).partition("-")[2])
    before = len(run.notes())
    assert run.check() == undisturbed
    first = [next(line for line in run.notes()[before:] if line.startswith(f"batch {rank} ")) for rank in (0, 1)]
    assert [int(line.split()[2]) for line in first] == [common] * 2
    run = ranks("--checkpoint-seconds", "0")
    run.run(KILL="1 12")
    shutil.rmtree(str(run.trials[1].directory / "checkpoints"))
    assert run.check() == undisturbed, "from the beginning"
    assert [trial.count("resumed") for trial in run.trials] == [0, 0]


@pytest.mark.parametrize("signalled", [0, 1])
def test_p7_a_signal_to_one_rank_ends_all_at_one_batch(ranks, signalled):
    undisturbed = ranks().check()
    run = ranks()
    running = run.start()
    running[signalled].wait_until(lambda: len(run.batches(signalled)) > 8)
    running[signalled].send(15)
    for each in running:
        each.wait(60).check(-15)
    assert run.trials[0].checkpoint == run.trials[1].checkpoint >= 8
    assert run.check() == undisturbed
    assert [trial.count("resumed") for trial in run.trials] == [1, 1]


# `torchrun` of torch 1.13 cannot start on Python 3.11, where iterating over the enumeration `Std` omits its 0.
@pytest.mark.stack("keras3-torch")
def test_torchrun_starts_ranks_again(ranks):
    undisturbed = ranks().check()
    run = ranks("--checkpoint-seconds", "0")
    program = Path(sys.executable).parent / "torchrun"
    # Only the first start of rank 1 is killed.
    script = run.base / "start.sh"
    script.write_text('#!/bin/sh\n[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && export KILL="1 8"\nexec "$@"\n')
    script.chmod(0o755)
    words = ["--no_python", "--standalone", "--nproc_per_node", "2", "--max_restarts", "1", script, support.executable()]
    command = [program, *words, "--python", sys.executable, *run.options(), run.definition]
    ended = subprocess.run(
        list(map(str, command)), env=support.clean_environment(run.common()), cwd=str(run.base), capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert support.hashes_in(ended.stdout) == [undisturbed] * 2
    assert [trial.count("resumed") for trial in run.trials] == [1, 1]


def test_what_a_batch_raises_is_no_lost_rank_whatever_its_words_are(ranks):
    raised, lost = ranks(wrong="raises 0 3").run()
    raised.check(1)
    assert "RuntimeError: the connection to the database is lost" in raised.stderr
    assert "in train_batch" in raised.stderr
    assert "has lost another rank" not in raised.stderr
    lost.check(75)
    assert "rank 1 of 2 has lost another rank" in lost.stderr


# -- refusals ----------------------------------------------------------------------------------------------------------

WRONG = {
    "order": "they differ in the order of the training data",
    "model": "was not computed by calling the model that `train_batch` was given",
    "stream": "has an iterable data set, and several ranks train",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_ranks_that_do_not_train_the_same_are_refused(ranks, wrong):
    running = ranks(wrong=wrong).start()
    for each in running:
        support.refused(each.wait(60), WRONG[wrong])


@pytest.mark.stack("torch-1.4")
def test_ranks_need_a_torch_that_exchanges_objects(ranks):
    for ended in ranks().run():
        support.refused(ended, "trained by 2 ranks, and torch is 1.4.0", "expected: torch 1.8 or later")


def test_ranks_are_of_one_number_and_one_seed(ranks):
    for ended in ranks(seed="").run():
        support.refused(ended, "`reproducibility.experiment_seed`")
    for ended in ranks().run(RANK="2"):
        support.refused(ended, "the environment variable `RANK` is `2`")
    run = ranks("--checkpoint-seconds", "0")
    run.run(KILL="1 8")
    run.size = 1
    support.refused(run.run()[0], "belongs to another configuration", "`ranks`")


def test_other_trials_are_trained_by_one_process(ranks):
    run = ranks()
    (run.definition / "__init__.py").write_text(
        "from pedl.frameworks.keras import KerasTrial\n"
        "def make_data_loaders(experiment_config, hparams): print('made')\n"
        "class RanksTrial(KerasTrial):\n"
        "    def build_model(self, hparams): print('built')\n"
        "    optimizer = loss = batch_size = training_metrics = validation_metrics = build_model\n"
    )
    for ended in run.run():
        support.refused(ended, "the trial class `RanksTrial` is trained by one process")
        assert ended.stdout == ""
    assert not os.path.exists(str(run.trials[0].directory))


# -- `TF_CONFIG` -------------------------------------------------------------------------------------------------------


@TENSORFLOW
@pytest.mark.parametrize("loaders", ["sequence", "dataset"])
def test_k5_workers_train_as_one_process_with_the_batches_of_all(workers, loaders):
    one, two = workers(size=1, noise=False, loaders=loaders), workers(noise=False, loaders=loaders)
    one.check()
    two.check()
    # Ranks report the running value at the end of each step. Only for the first step is it the step's mean.
    assert two.losses()[0] == pytest.approx(one.losses()[0], rel=1e-5)
    assert all("loss" in event["at_end"] for event in two.trials[0].events if event["event"] == "step")
    assert [len(one.losses()), len(set(one.losses()))] == [4, 4]
    validations = [[event["metrics"] for event in run.trials[0].events if event["event"] == "validation"] for run in (one, two)]
    assert len(validations[0]) == 2
    assert validations[1] == [pytest.approx(metrics, rel=1e-5) for metrics in validations[0]]
    assert two.batches(0) == two.batches(1) == list(range(1, 21))


@TENSORFLOW
@pytest.mark.parametrize(("loaders", "kills"), [("processes", [(1, 7), (0, 13)]), ("dataset", [(0, 13)])])
def test_k5_a_worker_that_was_killed_goes_on_with_all_the_others(workers, loaders, kills):
    undisturbed = workers(loaders=loaders).check()
    run = workers("--checkpoint-seconds", "0", loaders=loaders)
    for killed, batch in kills:
        ended = run.run(KILL=f"{killed} {batch}")
        ended[killed].check(-9)
        ended[1 - killed].check(75)
        assert f"rank {1 - killed} of 2 has lost another rank" in ended[1 - killed].stderr
        assert "Traceback" not in ended[1 - killed].stderr
    assert run.check() == undisturbed
    starts = [[event["batch"] for event in trial.events if event["event"] == "resumed"] for trial in run.trials]
    assert len(starts[0]) == len(kills)
    assert starts[0] == starts[1], "all go on at one batch"
    assert all(0 < start <= batch for start, (_, batch) in zip(starts[0], kills))


@TENSORFLOW
def test_p7_a_signal_to_one_worker_ends_all_at_one_batch(workers):
    undisturbed = workers().check()
    run = workers()
    running = run.start()
    running[1].wait_until(lambda: len(run.batches(1)) > 8)
    running[1].send(15)
    for each in running:
        each.wait(60).check(-15)
    assert run.trials[0].checkpoint == run.trials[1].checkpoint >= 8
    assert run.check() == undisturbed


@TENSORFLOW
def test_k5_workers_that_cannot_train_together_are_refused(workers):
    wrong = {
        "model": "the model that `build_model` returned was made before",
        "early": "TensorFlow has computed something before it was told of the other workers",
    }
    for name, text in wrong.items():
        ended = sorted(workers(wrong=name).run(), key=lambda each: each.code)
        support.refused(ended[0], text)
        # A rank that takes longer to find the same may first lose the other one.
        assert ended[1].code in (65, 75)
    for ended in workers().run(TF_CONFIG="[1"):
        support.refused(ended, "`TF_CONFIG` is no JSON")
