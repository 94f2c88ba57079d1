"""`pedl.local`: one step of a trial class, in a script under plain Python and under pedl-run."""
import subprocess
import sys

import pytest
import support

SHIMS = {"PYTHONPATH": str(support.ROOT / "shims")}

KERAS = pytest.mark.stack("keras3-jax", "keras3-tensorflow", "keras2-tensorflow1", "keras2.15-tensorflow2.15")
TENSORFLOW = pytest.mark.stack("keras2-tensorflow1", "tfkeras-1.15", "keras2.15-tensorflow2.15")
TORCH = pytest.mark.stack("keras3-torch")

# On TensorFlow 2 the process has no graph before the call.
UNTOUCHED = [] if "tensorflow2" in support.os.environ.get("PEDL_STACK", "") else ["UNTOUCHED True ['mine:0']"]


def ask(code, directory, **environment):
    """The output of a script that imports `pedl`, and the last line of its error."""
    command = [sys.executable, "-c", code]
    environment = support.clean_environment(dict(SHIMS, **environment))
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": support.TIMEOUT}
    ended = subprocess.run(command, cwd=str(directory), env=environment, check=False, **settings)
    return ended.stdout.decode(), ended.stderr.decode()


def told(run, *lines):
    """Checks those lines of the output of a script that begin with the words of the test."""
    marks = ("LOADERS", "RESULT", "SAME", "STEP", "RATE", "REPEATED", "UNTOUCHED", "OUTSIDE", "FILES")
    marks += ("begin", "end ", "validated")
    found = [line for line in run.stdout.splitlines() if line.startswith(marks)]
    assert found == list(lines), run


STEP_OF_KERAS = [
    "LOADERS {'path': 'here'} [('rate', 0.5), ('size', 8), ('units', 4)] 1",
    "begin 1",
    "end 1 12 ['distance', 'loss']",
    "validated 1 ['distance', 'val_loss']",
]
OF_KERAS = [
    *STEP_OF_KERAS,
    "RESULT ['distance', 'loss'] 12 ['distance', 'val_loss']",
    "SAME ERROR True",
    *STEP_OF_KERAS,
    "REPEATED True True",
    "UNTOUCHED True",
]


@pytest.mark.stack(*KERAS.args, *TORCH.args)
def test_a_keras_trial_of_a_plain_script_has_a_step_a_validation_and_a_checkpoint(script_run):
    run = script_run(support.SCRIPTS / "local_keras.py", environment=SHIMS)
    told(run.python().check(), *OF_KERAS, "OUTSIDE NotUnderHost")
    assert [path.name for path in (run.directory / "kept").iterdir()] in (["model.keras"], ["model.h5"])


# Not with torch: the random numbers of its layers depend there on the number of earlier calls.
@pytest.mark.stack(*KERAS.args, "keras2.2.4-tensorflow1.13")
def test_under_pedl_run_it_is_what_the_script_does(script_run):
    run = script_run(support.SCRIPTS / "local_keras.py")
    told(run.run().check(), *OF_KERAS, "OUTSIDE HyperparameterNotFound")
    assert run.trial.identity["command"]


@TENSORFLOW
@pytest.mark.parametrize("host", ["python", "pedl-run"])
def test_a_graph_has_one_too_and_the_graph_of_the_process_stays_as_it_was(script_run, host):
    run = script_run(support.SCRIPTS / "local_tensorflow.py", "graph", environment=SHIMS)
    ended = run.python() if host == "python" else run.run()
    told(
        ended.check(), "RESULT ['loss', 'twice'] 7 ['loss', 'twice']", "SAME LOSS True", "STEP 7", "REPEATED True True",
        *UNTOUCHED, "FILES ['checkpoint', 'model.ckpt.data-00000-of-00001', 'model.ckpt.index', 'model.ckpt.meta']",
    )  # fmt: skip


@TENSORFLOW
def test_so_has_an_estimator_with_what_it_exports(script_run):
    run = script_run(support.SCRIPTS / "local_tensorflow.py", "estimator", environment=SHIMS)
    ended = run.python().check()
    told(
        ended, "RESULT ['loss'] 7 ['loss']", "SAME LOSS True", "STEP 7", "REPEATED True True", *UNTOUCHED,
        "FILES ['estimator', 'exports', 'model.ckpt.data-00000-of-00001', 'model.ckpt.index']",
    )  # fmt: skip
    assert (run.directory / "kept" / "exports" / "raw" / "saved_model.pb").is_file()


@TENSORFLOW
def test_an_estimator_whose_hook_ends_its_step_has_no_checkpoint(script_run):
    run = script_run(support.SCRIPTS / "local_tensorflow.py", "estimator", environment=dict(SHIMS, KIND="ends"))
    ended = run.python().check(1)
    assert "DefinitionError: a hook of the trial class has ended its training, 6 batches before the end" in ended.stderr


@TORCH
@pytest.mark.parametrize("host", ["python", "pedl-run"])
def test_both_kinds_of_pytorch_trials_have_one(script_run, host):
    run = script_run(support.SCRIPTS / "local_torch.py", environment=SHIMS)
    ended = run.python() if host == "python" else run.run()
    results = [
        ("RATE 0.025 ['lr_scheduler_state_dict', 'model_state_dict', 'optimizer_state_dict']"),
        ("RATE 0.1 ['model_state_dict', 'optimizer_state_dict']"),
    ]
    lines = [["RESULT ['loss'] 12 ['loss']", "SAME LOSS True", rate, "REPEATED True"] for rate in results]
    told(ended.check(), *lines[0], *lines[1])


# -- mistakes ----------------------------------------------------------------------------------------------------------

DEFINE = """
import pedl
from pedl.trial import Trial
class Some(Trial):
    pass
"""

MISTAKES = {
    "no class": ("pedl.local(3)", "`3` is an object of class `int`, which is no trial class"),
    "another class": ("pedl.local(dict)", "`dict` is the class `dict`, which is no trial class"),
    "hparams": ("pedl.local(Some, 3)", "`hparams` of `pedl.local` is an object of class `int`"),
    "config": ("pedl.local(Some, {}, 'const.yaml')", "`config` of `pedl.local` is an object of class `str`"),
    "size": ("pedl.local(Some, batches_per_step=0)", "`batches_per_step` is 0\n  expected: a whole number above 0"),
    "drawn": (
        "pedl.local(Some, {}, {'hyperparameters': {'rate': {'type': 'log'}}})",
        "the hyperparameter `rate` of the configuration is of type `log`\n  expected: a value",
    ),
    "section": ("pedl.local(Some, {}, {'hyperparameters': [1]})", '`config["hyperparameters"]` of `pedl.local` is an object'),
    "seed": ("pedl.local(Some, {}, {'reproducibility': {'experiment_seed': '7'}})", "`experiment_seed` is '7'\n  expected: "),
    "file": ("open('file', 'w').close(); pedl.local(Some, directory='file')", "cannot be used for the checkpoint"),
    "no value": ("pedl.local(Some, {'rate': {1}})", "holds what a configuration cannot hold"),
    "directory": ("open('file', 'w').close(); pedl.local(Some, directory='.')", "is not empty\n  expected: a new or an empty"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_error(tmp_path, name):
    code, message = MISTAKES[name]
    stdout, stderr = ask(DEFINE + code, tmp_path)
    assert stdout == ""
    assert "pedl.errors.DefinitionError: " in stderr
    assert message in stderr


def test_a_class_without_loaders_is_told_where_they_are_looked_for(tmp_path):
    code = "import pedl\nfrom pedl.frameworks.tensorflow import TensorFlowTrial as Base\n"
    methods = "".join(f"    def {name}(self, *_): pass\n" for name in ("optimizer", "build_graph", "validation_metrics"))
    _, stderr = ask(f"{code}class Some(Base):\n{methods}pedl.local(Some)", tmp_path)
    assert "the module `__main__` of the class `Some` has no function `make_data_loaders`" in stderr
    assert "pedl.local(Some, make_data_loaders=...)" in stderr


def test_a_class_that_lacks_a_method_is_told_which(tmp_path):
    code = "import pedl\nfrom pedl.frameworks.keras import KerasTrial\nclass Some(KerasTrial): pass\npedl.local(Some)"
    _, stderr = ask(code, tmp_path)
    assert "the trial class `Some` lacks `build_model`, `loss`, `optimizer`" in stderr


def test_a_class_of_tensorpack_is_refused(tmp_path):
    code = "import pedl\nfrom pedl.frameworks.tensorflow import TensorpackTrial as Base\n"
    methods = "".join(f"    def {name}(self, *_): pass\n" for name in ("build_model", "validation_metrics"))
    _, stderr = ask(f"{code}class Some(Base):\n{methods}pedl.local(Some)", tmp_path)
    assert "the trial class `Some` cannot be tried by `pedl.local`" in stderr
    assert "pedl-run --config FILE --steps 1" in stderr


@KERAS
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("one", "`make_data_loaders` returned an object of class `InMemorySequence`"),
        ("no model", "`build_model` of `Small` returned an object of class `NoneType`"),
    ],
)
def test_what_the_class_returns_is_checked_as_pedl_run_does(script_run, kind, message):
    run = script_run(support.SCRIPTS / "local_keras.py", environment=dict(SHIMS, KIND=kind))
    assert "DefinitionError: " + message in run.python().check(1).stderr


def test_in_a_definition_that_pedl_run_trains_it_is_refused(script_run, tmp_path):
    definition = tmp_path / "definition"
    definition.mkdir()
    (definition / "__init__.py").write_text(DEFINE + "pedl.local(Some)\n")
    file = tmp_path / "const.yaml"
    file.write_text(support.seeded_configuration(5, 2))
    ended = script_run(definition, options=["--config", file]).run()
    support.refused(ended, "`pedl.local` is called in a model definition", "__main__")
