"""Callbacks of the steps of scripts: `pedl.callbacks`, and `entrypoint.callbacks` of the configuration."""
import ast
import subprocess
import sys

import pytest
import support

KERAS = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
# The parts of a loop differ between these stacks.
EACH = pytest.mark.stack(
    "keras3-jax", "keras3-tensorflow", "keras3-torch", "keras2-tensorflow1", "tfkeras-1.15", "keras2.15-tensorflow2.15"
)
SESSIONS = pytest.mark.stack("keras2-tensorflow1")

# The name of the metric `mae` in `tf.keras` of TensorFlow 1 and in Keras.
ABSOLUTE = "mean_absolute_error" if support.os.environ.get("KERAS_PACKAGE") else "mae"

SCRIPT = support.SCRIPTS / "step_callbacks.py"
# 21 batches in epochs of 7: 4 steps, and one that does not end.
OPTIONS = ["--batches-per-step", "5"]

CONFIGURATION = """
entrypoint: {{script: step_callbacks.py, callbacks: {callbacks}}}
batches_per_step: 5
searcher: {{name: single, metric: val_loss, max_steps: 4}}
reproducibility: {{experiment_seed: 7}}
max_restarts: 0
"""

# An object and a class, which the configuration may name.
NAMED = """
from __main__ import Noting, noting


class Second(Noting):
    def __init__(self):
        super().__init__("b")
"""


@pytest.fixture
def training(script_run, tmp_path):
    """A function that makes a run of the script; all have the same seeds."""
    made = []

    def make(kind, *options, callbacks=None, **environment):
        number = len(made)
        file, notes = tmp_path / f"const-{number}.yaml", tmp_path / f"notes-{number}"
        options = [*OPTIONS, *options]
        if callbacks is not None:
            file.write_text(CONFIGURATION.format(callbacks=callbacks))
            options += ["--config", file]
        else:
            file.write_text("searcher: {name: single, metric: loss, max_steps: 1}")
        notes.write_text("")
        run = script_run(SCRIPT, kind, options=options, environment=dict(environment, NOTES=str(notes)))
        run.notes = lambda: [line.split(" ", 2) for line in notes.read_text().splitlines()]
        run.lines = lambda: (run.directory / "callbacks.txt").read_text().splitlines()
        made.append(run)
        return run

    return make


def hooks_of(lines, name="a"):
    """Hooks and steps with which the callback of this name was called."""
    return [" ".join(line.split()[1:3]) for line in lines if line.split()[0] == name]


TRAINING = ["begin 1", "end 1", "begin 2", "end 2", "begin 3", "end 3", "begin 4", "end 4", "begin 5"]
# After 7, 14 and 21 batches.
IN_FIT = [
    "trial", "begin 1", "end 1", "begin 2", "validation 1", "validated 1", "end 2", "begin 3", "validation 2", "validated 2",
    "end 3", "begin 4", "end 4", "begin 5", "validation 4", "validated 4",
]  # fmt: skip


def check_metrics(lines, names):
    """Each step has a dict for each batch, with numbers by the framework's names."""
    ends = [line for line in lines if line.startswith("a end")]
    for line in ends:
        batches = ast.literal_eval(line[len("a end 1 "):line.rindex("]") + 1])
        assert len(batches) == 5, line
        for batch in batches:
            assert [name for name, _ in batch] == names
            assert all(type(value) is float for _, value in batch)


def check_killed(training, kind, hooks, *options, killed_at=(6, 12), **settings):
    """A run that was killed twice has the same callbacks as the undisturbed one, each hook once in each process."""
    whole = training(kind, *options, **settings)
    whole.run().check()
    assert hooks_of(whole.lines()) == hooks
    run = training(kind, "--checkpoint-seconds", "0", *options, PAUSE="0.05", **settings)
    for batch in killed_at:
        run.start_and_kill(lambda batch=batch: (run.trial.checkpoint or 0) >= batch)
    run.run().check()
    assert run.trial.count("resumed") == len(killed_at)
    assert run.lines() == whole.lines()
    assert run.hashes == whole.hashes
    processes = list(dict.fromkeys(pid for pid, _, _ in run.notes()))
    assert len(processes) == 1 + len(killed_at)
    for pid in processes:
        told = [" ".join(text.split()[:2]) for one, name, text in run.notes() if one == pid and name == "a"]
        assert told == hooks[:len(told)]
    return whole


@pytest.fixture
def seeded(training):
    """The same with `--config`, which gives all runs the same seeds."""
    return lambda kind, *options, **settings: training(kind, *options, callbacks="[]", **settings)


@EACH
def test_c4_to_c8_a_fit_that_is_killed_calls_each_hook_as_the_undisturbed_one(seeded):
    # 20 batches: the last epoch is cut short, and validated.
    hooks = [*IN_FIT[:-3], "validation 4", "validated 4"]
    run = check_killed(seeded, "fit", hooks)
    lines = run.lines()
    check_metrics(lines, ["loss", ABSOLUTE])
    assert [line.split()[0] for line in lines[:4]] == ["a", "b", "a", "b"]
    assert "'val_loss'" in next(line for line in lines if line.startswith("a validated"))


@KERAS
def test_without_a_configuration_the_script_decides_how_many_steps_there_are(training):
    run = training("fit")
    run.run().check()
    assert hooks_of(run.lines()) == hooks_of(run.lines(), "b") == IN_FIT


@EACH
def test_a_loop_by_hand_calls_them_too(seeded):
    run = check_killed(seeded, "by-hand", ["trial", *TRAINING])
    check_metrics(run.lines(), ["loss", ABSOLUTE])


@SESSIONS
def test_so_does_a_loop_over_sessions(seeded):
    run = check_killed(seeded, "session", ["trial", *TRAINING])
    check_metrics(run.lines(), ["loss"])


@KERAS
def test_the_configuration_names_callbacks_of_a_script_that_has_none(training, tmp_path):
    names = "['named:noting', 'named:Second']"
    run = training("unasked", callbacks=names, PYTHONPATH=str(tmp_path))
    (tmp_path / "named.py").write_text(NAMED)
    run.run().check()
    assert hooks_of(run.lines()) == [*IN_FIT[:-3], "validation 4", "validated 4"]
    assert hooks_of(run.lines(), "b") == hooks_of(run.lines())


@KERAS
def test_what_such_a_callback_raises_is_the_users_own(training, tmp_path):
    run = training("unasked", callbacks="['named:Reading']", PYTHONPATH=str(tmp_path))
    (tmp_path / "named.py").write_text(
        "from pedl.callback import Callback\n"
        "class Reading(Callback):\n"
        "    def __init__(self):\n"
        "        open('none-such')\n"
    )
    stderr = run.run().check(1).stderr
    assert "FileNotFoundError: [Errno 2] No such file or directory: 'none-such'" in stderr
    assert "cannot begin the trial" not in stderr


def test_callbacks_that_nothing_calls_are_told(script_run, tmp_path):
    script = tmp_path / "nothing.py"
    script.write_text("import pedl\nfrom pedl.callback import Callback\npedl.callbacks(Callback())\n")
    told = "the callbacks of steps were never called: nothing trained that pedl-run intercepts"
    assert script_run(script).run().check().stderr.count(told) == 1
    (tmp_path / "unasked.py").write_text("print('nothing')\n")
    (tmp_path / "const.yaml").write_text(
        "entrypoint: {script: unasked.py, callbacks: ['named:noting']}\nsearcher: {name: single, metric: loss, max_steps: 1}\n"
    )
    run = script_run(tmp_path / "unasked.py", options=["--config", tmp_path / "const.yaml"])
    assert told in run.run().check().stderr


@KERAS
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("['nothing:there']", "`entrypoint.callbacks` names `nothing:there`, and there is no module `nothing`"),
        ("['json:there']", "`entrypoint.callbacks` names `json:there`, and there is no `there` in `json`"),
        ("['json:JSONDecoder']", "`entrypoint.callbacks` names `JSONDecoder`\n  expected: a list of `pedl.callback.Callback`"),
    ],
)
def test_a_name_that_is_no_callback_is_one_error(training, names, message):
    run = training("unasked", callbacks=names)
    support.refused(run.run(), message, "the script was stopped before it trained")


@KERAS
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no-callback", "`pedl.callbacks` was given `Noting`, `int`\n  expected: a list of `pedl.callback.Callback`"),
        ("late", "`pedl.callbacks` is called after 21 batches were trained\n  expected: before training begins"),
    ],
)
def test_a_mistake_of_the_script_is_an_exception(training, kind, message):
    assert "DefinitionError: " + message in training(kind).run().check(1).stderr


@KERAS
def test_after_a_hook_that_calls_the_model_no_checkpoint_is_taken(training):
    run = training("evaluates-by-hand", "--checkpoint-seconds", "0")
    ended = run.run().check()
    assert "a callback of steps calls the framework; no checkpoints are taken" in ended.stderr
    assert run.trial.checkpoint < 10
    assert "a callback of steps calls the framework" in training("evaluates-by-hand", "--exact").run().check(77).stderr


@KERAS
def test_within_a_fit_such_a_hook_ends_the_run(training):
    run = training("evaluates")
    support.refused(run.run(), "a callback of steps calls the framework, within a `fit`", "a callback of Keras")


def test_under_plain_python_it_says_how_the_script_is_started(tmp_path):
    command = [sys.executable, "-c", "import pedl; from pedl.callback import Callback; pedl.callbacks(Callback())"]
    environment = support.clean_environment({"PYTHONPATH": str(support.ROOT / "shims")})
    ended = subprocess.run(command, cwd=str(tmp_path), env=environment, stderr=subprocess.PIPE, check=False)
    assert b"NotUnderHost" in ended.stderr


def test_in_a_definition_with_a_trial_class_they_are_its_method(script_run, tmp_path):
    definition = tmp_path / "definition"
    definition.mkdir()
    (definition / "__init__.py").write_text("import pedl\npedl.callbacks()\n")
    file = tmp_path / "const.yaml"
    file.write_text(support.seeded_configuration(5, 2))
    ended = script_run(definition, options=["--config", file]).run()
    support.refused(ended, "`pedl.callbacks` is called in a model definition with a trial class", "callbacks(self, hparams)")
