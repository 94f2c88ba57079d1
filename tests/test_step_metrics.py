"""Metrics of a step are those of its own batches (contract.md C6, T18), whatever Keras has accumulated over the epoch.

All are compared with what numpy computes for each batch (`scripts/step_metrics.py`).
"""
import importlib.util
import json

import pytest
import support

pytestmark = pytest.mark.stack("each-keras", "keras2.2-tensorflow1", "keras3-tensorflow", "keras3-torch", "tfkeras-1.15")

SCRIPT = support.SCRIPTS / "step_metrics.py"
# 21 batches in epochs of 7: the second step has the end of an epoch inside of it, and so have the third and the fourth none.
SIZE = 5
OPTIONS = ["--batches-per-step", str(SIZE)]
NEAR = 1e-6
STACK = support.os.environ.get("PEDL_STACK", "")


def by_hand():
    spec = importlib.util.spec_from_file_location("step_metrics", str(SCRIPT))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.by_hand()


BATCHES = by_hand()


def kind_of(name):
    """Which of the metrics this is, under whatever name of a Keras."""
    for kind, parts in (("root", ["root"]), ("loss", ["loss"]), ("weighted", ["mse", "squared"]), ("absolute", ["mae", "abs"])):
        if any(part in name for part in parts):
            return kind
    raise AssertionError(name)


def reports_own(kind):
    """Whether this Keras reports the metric of a batch alone: all up to 2.2, the loss in graph mode."""
    is_graph_mode = "tensorflow1" in STACK or STACK.startswith("tfkeras-1.")
    return is_graph_mode and (kind == "loss" or STACK.startswith("keras2.2"))


def mean(kind, batches):
    """The mean of a metric over batches, as Keras weighs it; of what batches report by themselves it is not weighted."""
    weight = {"weighted": "weights"}.get(kind, "rows")
    weights = [1 if reports_own(kind) else batch[weight] for batch in batches]
    return sum(batch[kind] * weight for batch, weight in zip(batches, weights)) / sum(weights)


def check_steps(run, count=4):
    """Each step has the means over its batches, and marks what is none."""
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


def check_told(lines, count=4):
    """Callbacks were told what each batch has by itself, once."""
    assert len(lines) == count
    for number, line in enumerate(lines):
        told = json.loads(line)
        assert len(told) == SIZE
        for of_batch, values in zip(BATCHES[number * SIZE:], told):
            kinds = [kind_of(name) for name in values]
            assert {"loss", "absolute", "weighted"} <= set(kinds)
            for kind, value in zip(kinds, values.values()):
                if kind != "root":
                    assert value == pytest.approx(of_batch[kind], abs=NEAR), (number, kind)


@pytest.mark.parametrize("way", ["arrays", "sequence", "untold"])
def test_t18_c6_steps_and_batches_have_their_own_metrics_whatever_the_epoch_has(script_run, way):
    run = script_run(SCRIPT, way, options=OPTIONS)
    run.run().check()
    check_steps(run)
    if way != "untold":
        check_told((run.directory / "told.txt").read_text().splitlines())


def test_t18_c6_they_are_the_same_after_a_kill_behind_the_end_of_an_epoch_inside_of_a_step(script_run, tmp_path):
    # Within the second step, behind the end of the first epoch.
    run = script_run(SCRIPT, options=[*OPTIONS, "--checkpoint-batches", "9"], environment={"HOLD": str(tmp_path / "held")})
    run.start_and_kill()
    assert "resuming after batch 9" in run.run().check().stderr
    check_steps(run)
    check_told((run.directory / "told.txt").read_text().splitlines())
