"""Trial classes of PyTorch: both kinds of classes, their data, and exact resume."""
import collections
import json
import re
import shutil
import subprocess
import sys

import pytest
import support

pytestmark = pytest.mark.stack("torch")

DEFINITIONS = support.ROOT / "tests" / "definitions"

CONFIGURATION = """
entrypoint: "{entrypoint}"
hyperparameters: {hyperparameters}
batches_per_step: 5
min_validation_period: 2
searcher: {{name: single, metric: error, max_steps: 5}}
reproducibility: {{experiment_seed: 7}}
max_restarts: 0
"""


@pytest.fixture
def trial(script_run, tmp_path):
    """A function that makes a run of a definition: 5 steps of 5 batches, 7 in an epoch, validated after 2, 4 and 5."""
    made = []

    def make(*options, definition="pytorch_trial", entrypoint=":Chosen", **hyperparameters):
        base = tmp_path / f"trial-{len(made)}"
        made.append(base)
        shutil.copytree(str(DEFINITIONS / definition), str(base / definition), ignore=shutil.ignore_patterns("__pycache__"))
        file = base / "configuration.yaml"
        file.write_text(CONFIGURATION.format(entrypoint=entrypoint, hyperparameters=json.dumps(hyperparameters)))
        (base / "notes").write_text("")
        environment = {"NOTES": str(base / "notes"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        options = ["--config", file, "--exact", *options]
        run = script_run(base / definition, options=options, environment=environment)
        run.notes = lambda: (base / "notes").read_text().splitlines()
        run.lines = lambda: (base / definition / "callbacks.txt").read_text().splitlines()
        return run

    return make


# By time, and after the batches that come just before a kill.
CHECKPOINTS = "--checkpoint-seconds", "0", "--checkpoint-batches", "6,12,13"


def kill_behind(run, batch):
    """Starts it, and kills it when there is a checkpoint of this batch or a later one. Some batches then remain."""
    run.environment["HOLD"] = str(batch + 6)
    run.start_and_kill(lambda: (run.trial.checkpoint or 0) >= batch)
    del run.environment["HOLD"]


def metrics_of(run, kind):
    # Everything between the last checkpoint and a kill is done, and reported, again.
    events = [event for event in run.trial.events if event["event"] == kind]
    return list({str(event.get("batch", event.get("batches"))): event["metrics"] for event in events}.values())


# -- exact resume ------------------------------------------------------------------------------------------------------

WAYS = {
    "batches": {"trial": "batches", "scheduler": "epoch", "clip_grad_l2_norm": 0.5},
    "full": {"trial": "full", "scheduler": "batch", "clip_grad_val": 0.1},
    "losses": {"trial": "losses", "optimizer": "sgd", "clip_grad_l2_norm": 0.1},
    "manual": {"trial": "batches", "scheduler": "manual"},
    "own": {"trial": "batches", "optimizer": "own", "scheduler": "none"},
    "stream": {"trial": "batches", "dataset": "stream", "scheduler": "epoch"},
    "draws": {"trial": "batches", "draws": "globally"},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_trial_that_was_killed_twice_ends_as_the_undisturbed_one(trial, way):
    whole = trial(**way)
    (undisturbed,) = whole.run().check().hashes
    for workers in (0,) if "dataset" in way else (0, 2):
        run = trial(*CHECKPOINTS, workers=workers, **way)
        kill_behind(run, 6)
        kill_behind(run, 13)
        assert run.run().check().hashes == [undisturbed]
        assert run.lines() == whole.lines()
        assert run.trial.count("resumed") == 2
        assert metrics_of(run, "validation") == metrics_of(whole, "validation")


def test_what_callbacks_draw_is_a_stream_of_its_own(trial):
    printed = trial(definition="pytorch_draws", entrypoint=":Trial").run().check().stdout.splitlines()
    assert len(printed) == 5 + 3 * 2
    assert [line for line in printed if not line.endswith("as expected")] == []


def test_a_killed_trial_trains_no_batch_before_its_checkpoint_again(trial):
    run = trial(*CHECKPOINTS, workers=2)
    kill_behind(run, 12)
    checkpoint, before = run.trial.checkpoint, len(run.notes())
    run.run().check()
    after = run.notes()[before:]
    assert [line for line in after if line.startswith("batch")] == [f"batch {number}" for number in range(checkpoint, 25)]
    builders = {line for line in after if line.startswith("row")}
    assert len(builders) >= 2
    assert sum(line.startswith("row") for line in after) <= (28 - checkpoint) * 8 + 3 * 8, "what is looked at, and cut off"


def test_p7_a_signal_ends_a_trial_and_the_same_command_goes_on(trial):
    undisturbed = trial().run().check().hashes
    run = trial()
    running = run.start()
    running.wait_until(lambda: "batch 8" in run.notes())
    running.send(15)
    running.wait().check(-15)
    assert run.trial.checkpoint >= 8
    assert run.run().check().hashes == undisturbed
    assert run.trial.count("resumed") == 1


def test_a_trial_that_was_killed_behind_its_last_checkpoint_has_ended(trial):
    run = trial()
    run.environment["HOLD"] = "exit"
    running = run.start()
    running.wait_until(lambda: "holds exit" in run.notes())
    running.kill_everything()
    assert run.trial.checkpoint == 25
    del run.environment["HOLD"]
    before = len(run.notes())
    # A callback has drawn from the generators of the script after the last validation.
    run.run().check()
    assert not [line for line in run.notes()[before:] if line.startswith("batch")]
    assert run.trial.count("resumed") == 1


def test_clipping_schedulers_and_seeds_have_effects(trial):
    ways = [{"scheduler": "none"}, {"scheduler": "epoch"}, {"scheduler": "batch"}]
    ways += [{"scheduler": "none", "clip_grad_l2_norm": 0.1}, {"scheduler": "none", "clip_grad_val": 0.01}]
    hashes = [tuple(trial(**way).run().check().hashes) for way in ways]
    assert len(set(hashes)) == len(ways)


def test_a_checkpoint_is_exported_for_torch_alone(trial):
    run = trial(*CHECKPOINTS, scheduler="batch")
    kill_behind(run, 13)
    checkpoint = run.trial.checkpoint
    command = [support.executable(), "--pedl", "checkpoint", "export", str(run.trial.directory), "--python", sys.executable]
    for words in (["trial.pt"], ["weights.pt", "--weights"]):
        subprocess.run([*command, "--output", *words], cwd=str(run.directory), check=True)
    program = (
        "import torch\n"
        # `torch.load` of 1.13 cannot read floats with it.
        "safely = {'weights_only': True} if torch.__version__ >= '2' else {}\n"
        "whole, weights = (torch.load(name, **safely) for name in ('trial.pt', 'weights.pt'))\n"
        "assert all(torch.equal(value, whole['model_state_dict'][name]) for name, value in weights.items())\n"
        "layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.3),\n"
        "                             torch.nn.Linear(8, 2))\n"
        "layers.load_state_dict({name[7:]: value for name, value in weights.items() if name.startswith('layers.')})\n"
        "optimizer = torch.optim.Adam(layers.parameters())\n"
        "optimizer.load_state_dict(whole['optimizer_state_dict'])\n"
        "print(whole['lr_scheduler_state_dict']['last_epoch'], int(layers[1].num_batches_tracked))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-c", program], cwd=str(run.directory), check=True, stdout=subprocess.PIPE, text=True
    )
    assert ended.stdout.split() == [str(checkpoint)] * 2
    ended = subprocess.run(
        [*command, "--output", "model.keras"], cwd=str(run.directory), check=False, stderr=subprocess.PIPE, text=True
    )
    assert ended.returncode == 64
    assert "is of PyTorch, and `model.keras` is not" in ended.stderr


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_d1_d2_d3_data_is_downloaded_once_before_the_loaders_are_made(trial):
    undisturbed = trial().run().check().hashes
    run = trial(*CHECKPOINTS, downloads="some")
    kill_behind(run, 6)
    assert [line.split()[0] for line in run.notes()[:2]] == ["download", "loaders"]
    assert run.run().check().hashes == undisturbed, "what it draws is nobody else's"
    assert collections.Counter(line.split()[0] for line in run.notes())["download"] == 1
    support.refused(trial(downloads="nothing").run(), "`download_data` returned an object of class `NoneType`")


def test_d4_of_several_processes_one_downloads(tmp_path):
    program = (
        "import os, sys, time\n"
        "from pedl._loops.download import once\n"
        "def call():\n"
        "    with open('calls', 'a') as file: file.write('called ')\n"
        "    time.sleep(0.2)\n"
        "    os.mkdir('data')\n"
        "    return os.path.abspath('data')\n"
        "print(once('a key', call))\n"
    )
    environment = support.clean_environment({"PYTHONPATH": str(support.ROOT / "shims"), "XDG_CACHE_HOME": str(tmp_path)})
    command = [sys.executable, "-c", program]
    started = [
        subprocess.Popen(command, cwd=str(tmp_path), env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert {one.communicate()[0] for one in started} == {f"{tmp_path / 'data'}\n"}
    assert (tmp_path / "calls").read_text() == "called "


def test_d5_loaders_are_those_of_pedl(trial):
    ended = trial(definition="pytorch_refused", wrong="loader").run()
    support.refused(ended, "a `DataLoader` of torch itself", "from pedl.frameworks.pytorch import DataLoader")


@pytest.mark.parametrize("shape", ["array", "tensor", "tuple", "list", "dict", "nested"])
def test_d6_d7_d8_d10_batches_of_any_nesting(trial, shape):
    run = trial(definition="pytorch_shapes", entrypoint=":ShapesTrial", shape=shape, workers=1 if shape == "nested" else 0)
    ended = run.run().check()
    assert all(list(metrics) == ["loss"] for metrics in metrics_of(run, "step"))
    assert [sorted(metrics) for metrics in metrics_of(run, "validation")] == [["error", "numpy"]] * 3
    if shape == "array":
        assert "`batch_size` returned 5, and the loader of the training data has 4" in ended.stderr  # D10


def test_d8_d11_d12_metrics_of_losses(trial):
    run = trial(trial="losses")
    run.run().check()
    assert all(sorted(metrics) == ["half", "loss", "train_error"] for metrics in metrics_of(run, "step"))
    assert all(metrics["half"] == pytest.approx(metrics["loss"] / 2) for metrics in metrics_of(run, "step"))
    assert [sorted(metrics) for metrics in metrics_of(run, "validation")] == [["error", "of_losses"]] * 3
    assert [line.count("'mean', [") for line in run.lines() if line.startswith("validated")] == [1, 1, 1]


def test_d11_means_are_not_weighted_and_what_has_no_mean_is_left_out(trial):
    run = trial()
    ended = run.run().check()
    assert ended.stderr.count("the validation metric `scores` is left out: its shape differs between batches") == 1
    # Two batches of 8 rows, and one of 4.
    for metrics in metrics_of(run, "validation"):
        assert metrics["error"] * 3 * 8 == pytest.approx(round(metrics["error"] * 3 * 8))
    ends = [line for line in run.lines() if line.startswith("end")]
    assert [line.split("]")[0] for line in ends] == [f"end {step} 5 ['loss', 'rows', 'seen'" for step in range(1, 6)]


WRONG = {
    "mixed": ("has `train_batch`, `evaluate_batch` and `losses`", "methods of one kind"),
    "both": ("has `evaluate_batch`, `evaluate_full_dataset`", "expected: one of"),
    "neither": ("has no method to validate by",),
    "empty": ("lacks `train_batch`",),
    "half": ("lacks `batch_size`, `validation_metrics`",),
    "model": ("`build_model` returned an object of class `NoneType`",),
    "optimizer": ("`optimizer` returned an object of class `str`",),
    "scheduler": ("`create_lr_scheduler` returned an object of class `StepLR`", "LRScheduler(scheduler"),
    "no loss": ("`train_batch` returned the metrics `mse`", '"loss"'),
    "no scalar": ("a tensor of the shape (4, 1)",),
    "number": ("an object of class `float`",),
    "detached": ("depends on no parameter of the model",),
    "None": ("returned None for the metric `other`",),
    "names": ("returned the metrics `loss`, `other 1`", "those of the batches before"),
    "evaluated": ("`evaluate_batch` returned an object of class `float`",),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_d7_d8_d9_what_is_wrong_with_a_class_is_one_clear_error(trial, wrong):
    run = trial(definition="pytorch_refused", wrong=wrong)
    support.refused(run.run(), *WRONG[wrong])


def test_only_one_kind_of_clipping(trial):
    ended = trial(clip_grad_l2_norm=1.0, clip_grad_val=1.0).run()
    support.refused(ended, "the hyperparameters `clip_grad_l2_norm` and `clip_grad_val` are both given")
    support.refused(trial(clip_grad_val=-1).run(), "the hyperparameter `clip_grad_val` is -1")


# -- in this process ---------------------------------------------------------------------------------------------------


def test_what_is_encoded_is_decoded():
    import numpy
    import torch

    from py_hooks.torch.state_codec import Encoder, Unencodable, decode

    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
    if hasattr(torch, "view_as_real"):
        # Torch before 1.6 has no complex tensors.
        dtypes.append(torch.complex64)
    value = {
        1: [1, 2.5, float("inf"), None, True, "x", (1, 2), 1j],
        "tensors": collections.OrderedDict((str(dtype), torch.ones(2, 3, dtype=dtype)) for dtype in dtypes),
        "others": [torch.Size([2]), torch.float32, torch.device("cpu"), numpy.float32(2), numpy.arange(3), torch.tensor(3.5)],
        "counted": collections.Counter({3: 2}),
        "last": collections.deque([1], 5),
    }
    held = Encoder()
    told = json.loads(json.dumps(held.encode(value, "x")))
    assert len({name for name, _ in held.tensors}) == len(held.tensors)
    # `repr` shows types and values.
    assert repr(decode(told, dict(held.tensors))) == repr(value)
    with pytest.raises(Unencodable, match=re.escape("x.a")):
        Encoder().encode({"a": object()}, "x")


def test_symbols_of_pedl_frameworks_pytorch():
    import torch
    from pedl.frameworks import pytorch
    from pedl.frameworks.pytorch import data, util

    assert pytorch.DataLoader is data.DataLoader
    assert issubclass(data.DataLoader, torch.utils.data.DataLoader)
    assert data.TorchData is not None
    error = util.error_rate(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]]), torch.tensor([1, 0, 1, 0]))
    assert (error.dim(), float(error)) == (0, 0.25)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.BatchNorm1d(2))
    before = model[0].weight.clone()
    pytorch.reset_parameters(model)
    assert not torch.equal(before, model[0].weight)


def test_no_gradient_is_left_of_what_a_model_gets_while_it_trains():
    import torch
    from pedl._loops.pytorch import _Gradients

    class Scale(torch.nn.Module):
        grad = "an attribute of the user's own"

    def parameter():
        return torch.nn.Parameter(torch.zeros(2))

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), Scale())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    gradients = _Gradients(model, optimizer)
    free = parameter()
    changes = [
        lambda: None,
        lambda: setattr(model, "0", torch.nn.Linear(2, 2)),
        lambda: setattr(model[0], "weight", torch.nn.Parameter(torch.zeros(2, 2))),
        lambda: model.add_module("more", torch.nn.Sequential(torch.nn.Linear(2, 1))),
        lambda: model.more.add_module("below", torch.nn.Linear(2, 1)),
        lambda: model[2].register_parameter("late", parameter()),
        lambda: model[2].register_parameter("none", None),
        lambda: setattr(model[2], "none", parameter()),
        lambda: optimizer.add_param_group({"params": [free]}),
        lambda: setattr(model[2], "late", None),
    ]
    for change in changes:
        change()
        for _ in range(2):
            everything = [*model.parameters(), free]
            for one in everything:
                one.grad = torch.ones_like(one)
            gradients.forget()
            left = [one for one in everything if one.grad is not None]
            is_known = any(one is free for group in optimizer.param_groups for one in group["params"])
            assert [id(one) for one in left] == ([] if is_known else [id(free)])
    assert model[2].grad == "an attribute of the user's own"


def test_no_gradient_is_left_where_the_optimizer_has_no_parameters_yet():
    import torch
    from pedl._loops.pytorch import _Gradients

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer.param_groups.clear()
    gradients = _Gradients(model, optimizer)
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    gradients.forget()
    assert [one.grad for one in model.parameters()] == [None, None]


def test_a_scheduler_steps_when_it_was_told():
    import torch
    from pedl.frameworks.pytorch import LRScheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    modes = LRScheduler.StepMode
    assert LRScheduler(scheduler, step_every_epoch=True).step_mode is modes.STEP_EVERY_EPOCH
    assert LRScheduler(scheduler, step_every_batch=True).step_mode is modes.STEP_EVERY_BATCH
    assert LRScheduler(scheduler, modes.STEP_EVERY_BATCH).step_mode is modes.STEP_EVERY_BATCH
    with pytest.raises(ValueError, match="MANUAL_STEP"):
        LRScheduler(scheduler, step_mode=modes.STEP_EVERY_EPOCH).step()
    with pytest.raises(ValueError, match="not both"):
        LRScheduler(scheduler, step_every_batch=True, step_every_epoch=True)
    manual = LRScheduler(scheduler)
    optimizer.step()
    manual.step()
    assert manual.get_lr() == [0.5]
    other = LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    other.load_state_dict(manual.state_dict())
    assert other.state_dict() == manual.state_dict()
