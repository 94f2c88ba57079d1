"""Metrics of a step come only from its batches (rules C6, T18), whatever Keras has accumulated over the epoch.

All are compared with what numpy computes for each batch (`scripts/step_metrics.py`).
"""
import importlib.util
import json
import shutil

import pytest
import support

# In those of `EACH` Keras reports and accumulates in different ways. The other stacks of `cargo dev` are tested by
# `ALL_METRICS=1 cargo dev test --stack NAME -- -k step_metrics`.
EACH = ["keras3-jax", "keras2-tensorflow1", "keras2.15-tensorflow2.15"]
ALL = [*EACH, "keras2.2-tensorflow1", "keras2.2.4-tensorflow1.13", "keras3-tensorflow", "keras3-torch"]
ALL += ["tfkeras-1.15", "tfkeras-1.14", "tfkeras-1.13"]


def on(*stacks):
    """The mark of these stacks, or of all stacks if `ALL_METRICS` is set."""
    return pytest.mark.stack(*(ALL if support.os.environ.get("ALL_METRICS") else stacks))


SCRIPT = support.SCRIPTS / "step_metrics.py"
# 21 batches in epochs of 7: the first epoch ends within the second step, and the second one within the third.
SIZE = 5
OPTIONS = ["--batches-per-step", str(SIZE)]
NEAR = 1e-6
STACK = support.os.environ.get("PEDL_STACK", "")


def by_hand():
    spec = importlib.util.spec_from_file_location("step_metrics", str(SCRIPT))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.by_hand()


# Other stacks have no numpy.
BATCHES = by_hand() if importlib.util.find_spec("numpy") else []
if STACK.startswith("keras2.2"):
    # Up to 2.2 a weighted metric is divided by the number of rows, like a loss.
    for batch in BATCHES:
        batch["weighted"] = batch["loss"]


def kind_of(name):
    """Which of the metrics this is. Each Keras has another name for it."""
    for kind, parts in (("root", ["root"]), ("loss", ["loss"]), ("weighted", ["mse", "squared"]), ("absolute", ["mae", "abs"])):
        if any(part in name for part in parts):
            return kind
    raise AssertionError(name)


def reports_own(kind):
    """Whether this Keras reports the metric of a single batch: all metrics up to 2.2, the loss in graph mode."""
    is_graph_mode = "tensorflow1" in STACK or STACK.startswith("tfkeras-1.")
    return is_graph_mode and (kind == "loss" or STACK.startswith("keras2.2"))


def mean(kind, batches):
    """The mean of a metric over batches, weighted as Keras does it. Metrics of single batches are not weighted."""
    weight = {"weighted": "weights"}.get(kind, "rows")
    weights = [1 if reports_own(kind) else batch[weight] for batch in batches]
    return sum(batch[kind] * weight for batch, weight in zip(batches, weights)) / sum(weights)


def check_steps(run, count=4):
    """Each step has the means over its batches, and marks values that are not means."""
    steps = {event["step"]: event for event in run.trial.events if event["event"] == "step"}
    assert sorted(steps) == list(range(1, count + 1))
    for number, event in steps.items():
        batches = BATCHES[(number - 1) * SIZE: number * SIZE]
        for name, value in event["metrics"].items():
            kind = kind_of(name)
            if kind == "root":
                assert name in event["at_end"]
            else:
                assert name not in event.get("at_end", [])
                assert value == pytest.approx(mean(kind, batches), abs=NEAR), (number, name)


def check_told(lines, count=4, kinds=frozenset(["loss", "absolute", "weighted"])):
    """Callbacks received the values of each single batch, once."""
    assert len(lines) == count
    for number, line in enumerate(lines):
        told = json.loads(line)
        assert len(told) == SIZE
        for of_batch, values in zip(BATCHES[number * SIZE:], told):
            found = {kind_of(name): value for name, value in values.items()}
            assert kinds <= set(found)
            for kind, value in found.items():
                if kind != "root":
                    assert value == pytest.approx(of_batch[kind], abs=NEAR), (number, kind)


@pytest.mark.parametrize("way", ["sequence", "untold"])
@on("keras2-tensorflow1")
def test_t18_c6_steps_and_batches_have_their_own_metrics_whatever_the_epoch_has(script_run, way):
    run = script_run(SCRIPT, way, options=OPTIONS)
    run.run().check()
    check_steps(run)
    if way != "untold":
        check_told((run.directory / "told.txt").read_text().splitlines())


@on(*EACH)
def test_t18_c6_they_are_the_same_after_a_kill_behind_the_end_of_an_epoch_inside_of_a_step(script_run, tmp_path):
    # Within the second step, behind the end of the first epoch.
    held = tmp_path / "held"
    run = script_run(SCRIPT, options=[*OPTIONS, "--checkpoint-batches", "9"], environment={"HOLD": str(held)})
    run.start_and_kill(held.exists)
    assert "resuming after batch 9" in run.run().check().stderr
    check_steps(run)
    check_told((run.directory / "told.txt").read_text().splitlines())


CONFIGURATION = """
hyperparameters: {{trial: {kind}, told: {told}, script: '{script}'}}
entrypoint: ":Chosen"
batches_per_step: {size}
min_validation_period: 2
searcher: {{name: single, metric: val_loss, max_steps: 4}}
reproducibility: {{experiment_seed: 7}}
max_restarts: 0
"""

# One class of each kind that this Keras has.
KINDS = ["tf"] if "tensorflow" in support.os.environ.get("KERAS_PACKAGE", "") else ["plain", "functional"]
KINDS += ["tf"] if STACK in ("keras3-tensorflow", "keras2.15-tensorflow2.15") else []


@pytest.mark.parametrize("kind", KINDS)
@on(*EACH)
def test_t18_c6_those_of_trial_classes_too(script_run, tmp_path, kind):
    definition = tmp_path / "step_metrics"
    shutil.copytree(str(support.ROOT / "tests" / "definitions" / "step_metrics"), str(definition))
    file = tmp_path / "configuration.yaml"
    # Without callbacks of steps no sums are kept for batches.
    is_told = kind != "functional"
    file.write_text(CONFIGURATION.format(kind=kind, told=str(is_told).lower(), script=SCRIPT, size=SIZE))
    run = script_run(definition, options=["--config", file])
    run.run().check()
    check_steps(run)
    if is_told:
        check_told((definition / "told.txt").read_text().splitlines(), kinds={"loss", "absolute"})
    assert [event["batch"] for event in run.trial.events if event["event"] == "validation"] == [10, 20]
