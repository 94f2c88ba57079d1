"""The rules for every generation of Keras, whatever its call paths: `contract.py` reports, and this file judges.

Each target is reached exactly once for each call of the user, and once for each computation. Interceptions do not change
the user's exceptions, leave no trace when taken back, and there is no training if any of this is not known to hold.
"""
import json
import os
import re

import pytest
import support

SCRIPT = support.ROOT / "tests" / "hooks" / "contract.py"
STACK = os.environ.get("PEDL_STACK", "plain")
PACKAGE = os.environ.get("KERAS_PACKAGE", "keras")
IS_KERAS3 = "keras3" in os.environ.get("PEDL_STACK_TAGS", "").split()

pytestmark = pytest.mark.stack("keras", "generation")
# Tests that need no framework, or are the same for all.
once = pytest.mark.stack("keras")

# name of the call: entries into the framework, train, test and predict calls. Two batches to an epoch, two epochs.
CALLS = {
    "fit on arrays": (1, 4, 0, 0),
    "fit with validation data": (1, 4, 4, 0),
    # The callback is the user's code: its two calls of `evaluate` are separate entries.
    "fit with a callback that evaluates": (3, 4, 4, 0),
    "fit on a Sequence": (1, 4, 0, 0),
    "fit on a generator": (1, 4, 0, 0),
    "evaluate": (1, 0, 2, 0),
    "evaluate a Sequence": (1, 0, 2, 0),
    "predict": (1, 0, 0, 2),
    "predict a Sequence": (1, 0, 0, 2),
    "train_on_batch": (1, 1, 0, 0),
    "test_on_batch": (1, 0, 1, 0),
    "predict_on_batch": (1, 0, 0, 1),
}
CALLS_KERAS2 = {
    "fit_generator on a Sequence": (1, 4, 0, 0),
    "fit_generator on a Sequence without a thread": (1, 4, 0, 0),
    "fit_generator on a generator": (1, 4, 0, 0),
    "evaluate_generator": (1, 0, 2, 0),
    "predict_generator": (1, 0, 0, 2),
}

ARRAYS_ONLY = {"fit on a Sequence", "fit on a generator", "evaluate a Sequence", "predict a Sequence"}

_OF_TORCH = {"TorchDataLoaderAdapter.__init__", "TorchDataLoaderAdapter.get_numpy_iterator"}

# Targets that `contract.py` cannot reach visibly, with the reason for each.
UNSEEN = {
    # They have no torch, and so no loader of torch.
    "keras3-jax": _OF_TORCH,
    # `tf.data` calls the second in another thread. The first is for scripts; Keras does not use it here.
    "keras3-tensorflow": {"BaseResourceVariable.assign_add", "PyDatasetAdapter._get_iterator"} | _OF_TORCH,
    # Here Keras takes the tensors of a loader as they are.
    "keras3-torch": {"TorchDataLoaderAdapter.get_numpy_iterator"},
}

NO_HOOKS = ["--no-hooks", "keras", "--no-hooks", "tensorflow"]

ORDERS = {
    "keras3-jax": ("keras", "keras.models", "jax keras"),
    "keras3-tensorflow": ("keras", "keras.models", "tensorflow keras"),
    "keras3-torch": ("keras", "keras.models", "torch keras"),
    "keras2-tensorflow1": ("keras", "keras.models", "tensorflow keras", "tensorflow.keras keras"),
    "keras2.2.4-tensorflow1.13": ("keras", "tensorflow keras"),
    "tfkeras-1.13": ("tensorflow", "tensorflow.python.keras.models"),
    "tfkeras-1.14": ("tensorflow", "tensorflow.python.keras.models"),
    "tfkeras-1.15": ("tensorflow", "tensorflow.python.keras.models"),
}


def last_line(ended):
    return json.loads(ended.check().stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def reached(tmp_path_factory):
    """The answer of one long run, which several tests use."""
    run = support.ScriptRun(tmp_path_factory.mktemp("reached") / "run", SCRIPT, ["reached"])
    yield last_line(run.run())
    run.close()


# -- patched, and taken back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("modules", ORDERS.get(STACK, ()))
def test_every_target_is_patched_once_in_whatever_order_libraries_are_imported(script_run, modules):
    run = script_run(SCRIPT, "patched", *modules.split())
    answer = last_line(run.run())
    assert {name: times for name, times in answer["wrapped"].items() if times != 1} == {}
    assert len(answer["wrapped"]) > 20
    # An import is not training: no trial has begun, and nothing was written.
    assert not answer["begun"]
    assert not run.trial.directory.exists()


def test_taking_the_patches_back_leaves_the_same_objects_and_signatures_never_change(script_run):
    ended = script_run(SCRIPT, "undo", options=NO_HOOKS).run()
    assert last_line(ended) == []


# -- reached -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["Sequential", "functional", "subclassed"])
def test_a_call_of_the_user_enters_once_and_every_computation_is_recorded_once(reached, model):
    expected = {}
    calls = CALLS if IS_KERAS3 else dict(CALLS, **CALLS_KERAS2)
    if STACK == "keras2.2.4-tensorflow1.13":
        # Only their `..._generator` accepts data other than arrays.
        calls = {name: calls[name] for name in calls if name not in ARRAYS_ONLY}
    for name, (entries, train, test, predict) in calls.items():
        expected[name] = {
            "entries": entries,
            "train": train,
            "test": test,
            "predict": predict,
            "computed": train + test + predict,
            "target": 1,
        }
    found = {
        name.partition(": ")[2]: counts for name, counts in reached["calls"].items() if name.startswith(model + ":")
    }
    assert sorted(found) == sorted(expected)
    assert {name: counts for name, counts in found.items() if counts != expected[name]} == {}


def test_no_patch_stands_where_nothing_comes_by(reached):
    assert {name.partition(":")[2] for name in reached["never"]} == UNSEEN.get(STACK, set())


# -- the user's exceptions ---------------------------------------------------------------------------------------


def test_exceptions_of_the_user_come_out_as_under_python(script_run):
    run = script_run(SCRIPT, "exceptions")
    python = last_line(run.python())
    ours = last_line(run.run())
    # The recorder is no longer in any call or entry.
    assert ours.pop("left inside") == [0, 0]
    assert python.pop("left inside") is None
    assert ours == python
    assert python["a callback"]["the same object"]
    assert all(value == 1 for name, value in ours.items() if name.endswith(", then"))


# -- unknown versions --------------------------------------------------------------------------------------------


def write_library(directory, name, version):
    package = directory / "fake" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')
    return str(package.parent)


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(text)
        return path

    return write


KNOWN = (
    "2.2.0 - 2.2.2, 2.2.3 - 2.2.4, 2.2.5, 2.3.0 - 2.3.1, 2.4.0 - 2.4.3, 2.6.0 - 2.7.0, 2.8.0, 2.9.0 - 2.10.0, 2.11.0, 2.12.0, "
    "2.13.0 - 2.15.0, 3.13.0 and later"
)


def error_of(ended):
    """The message that ended a run, without the folders of this machine."""
    text = ended.stderr[ended.stderr.index("pedl: error:"):]
    return re.sub(r"(found at: ).*/(\w+)\n", r"\1.../\2\n", text).replace(" \n", "\n")


@once
@pytest.mark.parametrize("version", ["2.16.0", "2.5.0", "3.12.1", "3.13.0rc1", "99-dev", "2.1.6"])
def test_an_unknown_version_is_stopped_before_it_trains(script_run, script, tmp_path, version):
    path = write_library(tmp_path, "keras", version)
    run = script_run(script("import keras\nprint('it trains')\n"), environment={"PYTHONPATH": path})
    ended = run.run().check(69)
    assert ended.stdout == ""
    assert error_of(ended) == (
        f"pedl: error: keras `{version}` is not a version pedl-run can intercept\n"
        "  found at: .../keras\n"
        f"  known: {KNOWN}\n"
        "  the script was stopped before it trained\n"
        "hint: install a listed version, or pass `--no-hooks keras` to train without checkpoints and resume\n"
    )
    assert not run.trial.directory.exists()


@once
def test_an_unknown_version_is_left_alone_where_the_user_says_so(script_run, script, tmp_path):
    path = write_library(tmp_path, "keras", "2.16.0")
    options = ["--no-hooks", "keras"]
    run = script_run(script("import keras\nprint('it trains')\n"), options=options, environment={"PYTHONPATH": path})
    assert run.run().check().stdout == "it trains\n"


@once
def test_a_known_library_of_which_a_part_is_missing_is_stopped(script_run, script, tmp_path):
    path = write_library(tmp_path, "tensorflow", "1.15.5")
    run = script_run(script("import tensorflow\nprint('it trains')\n"), environment={"PYTHONPATH": path})
    ended = run.run().check(69)
    assert ended.stdout == ""
    assert error_of(ended) == (
        "pedl: error: cannot patch `tensorflow.python.ops.gen_random_ops:random_uniform`: "
        "No module named 'tensorflow.python'\n"
        "  a row of generation tensorflow 1.15.0 - 1.15.5; needed to keep the state of a random op\n"
        "  nothing was patched; the script was stopped before it trained\n"
        "hint: is tensorflow half installed, or modified? reinstall it, or pass `--no-hooks tensorflow`\n"
    )


# The backend `numpy` needs scipy, which the stack of TensorFlow does not have.
@pytest.mark.stack("keras3-jax")
def test_an_unknown_backend_is_stopped_before_it_trains(script_run, script):
    text = "import keras\nprint('it trains')\n"
    ended = script_run(script(text), environment={"KERAS_BACKEND": "numpy"}).run().check(69)
    assert ended.stdout == ""
    assert error_of(ended) == (
        "pedl: error: keras on backend `numpy` is not something pedl-run can intercept\n"
        "  known: jax, tensorflow, torch\n"
        "  the script was stopped before it trained\n"
        "hint: choose a known backend with KERAS_BACKEND, or pass `--no-hooks keras` to train without checkpoints "
        "and resume\n"
    )


def test_without_hooks_keras_trains_as_under_python(script_run):
    run = script_run(SCRIPT, "train", options=NO_HOOKS)
    assert last_line(run.run()) == last_line(run.python())
    assert not run.trial.directory.exists()


EAGER = """
import sys
import numpy
import tensorflow
tensorflow.enable_eager_execution()
model = tensorflow.keras.Sequential([tensorflow.keras.layers.Dense(1, input_shape=(2,))])
model.compile("sgd", "mse")
x, y = numpy.zeros((4, 2), "float32"), numpy.zeros((4, 1), "float32")

class Batches(tensorflow.keras.utils.Sequence):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return x, y

print("compiled")
calls = {
    "fit": lambda: model.fit(x, y, verbose=0),
    "fit_generator": lambda: model.fit_generator(Batches(), verbose=0),
    "train_on_batch": lambda: [model.train_on_batch(x, y) for _ in range(3)],
}
calls[sys.argv[1]]()
print("trained")
"""
IN_EAGER_MODE = "training in eager mode of TensorFlow 1 is not intercepted in this version"


@pytest.mark.stack("tfkeras-1.13", "tfkeras-1.14", "tfkeras-1.15")
@pytest.mark.parametrize("call", ["fit", "fit_generator", "train_on_batch"])
def test_in_eager_mode_tf_keras_trains_without_checkpoints_and_says_so(script_run, script, call):
    run = script_run(script(EAGER), call)
    ended = run.run().check()
    assert ended.stdout == "compiled\ntrained\n"
    assert ended.stderr.count("exact resume: no: ") == 1
    assert IN_EAGER_MODE in ended.stderr
    assert "no checkpoints are taken" in ended.stderr
    ended = script_run(script(EAGER), call, options=["--exact"]).run().check(77)
    assert ended.stdout == "compiled\n"
    assert IN_EAGER_MODE in ended.stderr


@pytest.mark.stack("tfkeras-1.13", "tfkeras-1.14", "tfkeras-1.15")
def test_in_eager_mode_a_number_of_steps_is_refused(script_run, script):
    ended = script_run(script(EAGER), "fit", options=["--steps", "1"]).run().check(65)
    assert ended.stdout == "compiled\n"
    assert error_of(ended) == (
        "pedl: error: the number of steps is given, and `tf.keras` trains in eager mode of TensorFlow 1\n"
        "  its batches are not counted there\n"
        "  the script was stopped before it trained\n"
        "hint: leave out `tf.enable_eager_execution()`, or leave the number of steps to the script\n"
    )


@pytest.mark.stack("tfkeras-1.15")
def test_without_hooks_of_its_part_tf_keras_trains_as_under_python(script_run, script):
    run = script_run(script(EAGER), "fit", options=["--no-hooks", "tensorflow.keras", "--exact"])
    assert run.run().check().stdout == "compiled\ntrained\n"
