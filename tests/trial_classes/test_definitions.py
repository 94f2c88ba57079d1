"""Finding the code of standard model definitions (rules M1 to M18). No framework is needed for that.

The trial classes here print their names when they are made, and end the process.
"""
import json
import subprocess
import sys
import textwrap

import pytest
import support

pytestmark = pytest.mark.stack("plain")

SEARCH = "searcher: {name: single, metric: loss, max_steps: 1}\nmax_restarts: 0\n"

TRIAL = """
    from pedl.frameworks.keras import TFKerasTrial

    class Told(TFKerasTrial):
        def __init__(self, hparams):
            print("TOLD", type(self).__module__, type(self).__qualname__, sorted(hparams))
            raise SystemExit(0)

        def build_model(self, hparams):
            pass
"""

LOADERS = """
    def make_data_loaders(experiment_config, hparams):
        raise AssertionError("they are made after the trial")
"""


@pytest.fixture
def define(tmp_path):
    """A function that writes a model definition and runs it; returns the `Ended`."""

    def make(files, configuration="", name="model", behind=(), target=None):
        root = tmp_path / name
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text) if isinstance(text, str) else "".join(map(textwrap.dedent, text)))
        (tmp_path / "c.yaml").write_text(SEARCH + configuration)
        options = ["--config", tmp_path / "c.yaml"]
        run = support.ScriptRun(tmp_path / "run", root / target if target else root, behind, options)
        return run.run()

    return make


def told(ended):
    """What the trial class has printed about itself."""
    (line,) = [line for line in ended.check().stdout.splitlines() if line.startswith("TOLD")]
    return line.split()[1:3]


def test_m2_a_directory_is_a_simple_or_a_standard_definition(define):
    files = {"model_def.py": (TRIAL, LOADERS), "train.py": "print('SCRIPT', __name__)\n"}
    assert told(define(files, "entrypoint: model_def:Told\n")) == ["model.model_def", "Told"]
    assert "SCRIPT __main__" in define(files, "entrypoint: {script: train.py}\n").check().stdout


def test_m3_a_directory_is_a_package(define):
    files = {"__init__.py": (TRIAL, LOADERS, "print('INIT', __name__, __package__)\n")}
    ended = define(files)
    assert told(ended) == ["model", "Told"]
    assert ended.stdout.count("INIT model model") == 1
    assert told(define({"model_def.py": (TRIAL, LOADERS)}, "entrypoint: model_def:Told\n", name="other"))[0] == "other.model_def"


def test_m4_the_package_exposes_one_trial_and_the_loaders(define):
    support.refused(define({"__init__.py": "import os\nLEVEL = 1\n"}), "exposes no trial class", "`LEVEL`", "`os`")
    two = (TRIAL, "class Another(Told):\n    pass\n", LOADERS)
    support.refused(define({"__init__.py": two}), "several trial classes: `Another`, `Told`", 'entrypoint: ":')
    support.refused(define({"__init__.py": TRIAL}), "no function `make_data_loaders`", "`Told`")


def test_m5_the_layout_of_the_reference_example(define):
    files = {
        "__init__.py": "from model_def import Told, make_data_loaders\n",
        "model_def.py": (TRIAL, "from data import make_data_loaders\n"),
        "data.py": LOADERS,
    }
    assert told(define(files, name="imdb_keras")) == ["imdb_keras.model_def", "Told"]


def test_m9_a_single_file_needs_no_init(define):
    ended = define({"model_def.py": (TRIAL, LOADERS)}, target="model_def.py")
    assert told(ended) == ["model.model_def", "Told"]
    both = {"model_def.py": (TRIAL, LOADERS, "if __name__ == '__main__':\n    print('SCRIPT')\n")}
    ended = define(both, target="model_def.py")
    support.refused(ended, "has a trial class, and is a script as well", "entrypoint: model_def:CLASS")
    assert told(define(both, "entrypoint: model_def:Told\n", target="model_def.py"))[1] == "Told"
    ended = define(both, "entrypoint: {script: model_def.py}\n", target="model_def.py")
    assert "SCRIPT" in ended.check().stdout
    # Other files in the folder are not run.
    files = {"model_def.py": (TRIAL, LOADERS), "__init__.py": "raise SystemExit(3)\n"}
    assert told(define(files, target="model_def.py", name="beside"))[1] == "Told"


def test_m10_the_trial_classes_have_their_paths():
    code = (
        "from pedl.frameworks.keras import KerasTrial, KerasFunctionalTrial, TFKerasTrial, wrap_dataset, data\n"
        "from pedl.frameworks.keras.tf_keras_trial import TFKerasTrial\n"
        "from pedl.frameworks.tensorflow import EstimatorTrial, TensorFlowTrial, TensorpackTrial, wrap_dataset\n"
        "from pedl.frameworks.tensorflow.tensorflow_trial import TensorFlowTrial\n"
        "from pedl.frameworks.tensorflow.estimator_trial import EstimatorTrial\n"
        "from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial\n"
        "from pedl.frameworks.pytorch import PyTorchTrial\n"
        "from pedl.frameworks.pytorch.pytorch_trial import PyTorchTrial\n"
        "from pedl.trial import MetricOp, ValidOp\nfrom pedl.callback import Callback\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(support.ROOT / "shims")})


@pytest.mark.parametrize("entrypoint", ["model_def", "model_def:", "a:b:c", "a b:C", "my-model:A"])
def test_m11_an_entrypoint_is_a_module_and_an_object(define, entrypoint):
    support.refused(define({"model_def.py": TRIAL}, f"entrypoint: {json.dumps(entrypoint)}\n"), f"`{entrypoint}`", "expected: ")


def test_m12_m14_an_empty_module_is_the_package(define):
    assert told(define({"__init__.py": (TRIAL, LOADERS)}, 'entrypoint: ":Told"\n')) == ["model", "Told"]


def test_m13_m16_an_object_may_be_nested(define):
    nested = (TRIAL, "class trial_classes:\n    class NestedTrial(Told):\n        pass\n", LOADERS)
    files = {"determined_lib/trial.py": nested, "determined_lib/__init__.py": ""}
    ended = define(files, "entrypoint: determined_lib.trial:trial_classes.NestedTrial\n")
    assert told(ended) == ["model.determined_lib.trial", "trial_classes.NestedTrial"]


def test_m15_a_module_is_below_the_definition(define):
    files = {"__init__.py": "print('INIT')\n", "model_def.py": (TRIAL, LOADERS)}
    ended = define(files, "entrypoint: ' model_def : Told '\n")
    assert told(ended) == ["model.model_def", "Told"]
    assert ended.stdout.count("INIT") == 1


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("my-model", "my-model"), ("1-tensorflow-keras", "1-tensorflow-keras"), ("a.b", "a_b"), ("json", "json_definition"),
        ("pytest", "pytest_definition"), ("model_def", "model_def_definition"), ("déf", "déf"),
    ],
)
def test_m17_a_directory_may_have_any_name(define, name, package):
    files = {"__init__.py": "from .model_def import Told, make_data_loaders\n", "model_def.py": (TRIAL, LOADERS)}
    assert told(define(files, name=name)) == [f"{package}.model_def", "Told"]


def test_m17_both_kinds_of_import_give_one_module(define):
    files = {
        "__init__.py": "from model_def import Told\nfrom . import model_def as other\nassert other.Told is Told\n"
        "import part.inner, model.part.inner\nassert part.inner is model.part.inner\nfrom part import inner\n"
        "assert inner.__spec__.name == 'model.part.inner', inner.__spec__\n"
        "from .model_def import make_data_loaders\n",
        "model_def.py": ("import part\nfrom .part import inner\nprint('RUN', __name__)\n", TRIAL, LOADERS),
        "part/__init__.py": "print('RUN', __name__)\n",
        "part/inner.py": "import model_def\nfrom .. import part\nprint('RUN', __name__, __spec__.name)\n",
    }
    ended = define(files)
    assert told(ended) == ["model.model_def", "Told"]
    runs = sorted(line[4:] for line in ended.stdout.splitlines() if line.startswith("RUN"))
    assert runs == ["model.model_def", "model.part", "model.part.inner model.part.inner"]


def test_m17_names_that_others_have_are_those_of_the_definition(define):
    names = ["data", "utils", "imdb", "layers", "main", "test", "absl"]
    check = "".join(f"import {name}\nassert {name}.MINE, {name}\n" for name in names)
    files = {f"{name}.py": "MINE = True\n" for name in names}
    # Modules that were imported before remain the same, as beside a script.
    files.update({"os.py": "MINE = True\n", "__init__.py": (check, "import os\nassert os.path\n", TRIAL, LOADERS)})
    # A folder of data is not a package.
    files["click/data.txt"] = ""
    files["__init__.py"] = (*files["__init__.py"], "import click\nassert click.Option\n")
    assert told(define(files))[1] == "Told"


def test_m11_what_is_not_there_is_named(define):
    files = {"model_def.py": (TRIAL, LOADERS), "other.py": ""}
    support.refused(define(files, "entrypoint: models:Told\n"), "no module `models`", "there is: `model_def`, `other`")
    ended = define(files, "entrypoint: model_def:Tld\n")
    support.refused(ended, "no `Tld` in the module `model_def`", "trial classes there: `Told`")
    support.refused(define(files, "entrypoint: model_def:make_data_loaders\n"), "object of class `function`")
    support.refused(define(files, "entrypoint: model_def:TFKerasTrial\n"), "`TFKerasTrial` lacks `build_model`")


def test_m17_a_folder_that_is_called_as_the_definition(define):
    files = {"model_def.py": ("from foo.data import make_data_loaders\n", TRIAL), "foo/data.py": LOADERS}
    assert told(define(files, "entrypoint: model_def:Told\n", name="foo")) == ["foo_definition.model_def", "Told"]


def test_m4_a_base_of_the_users_own_is_no_second_trial(define):
    base = "from pedl.frameworks.keras import KerasTrial\nclass Base(KerasTrial):\n    pass\n"
    assert told(define({"__init__.py": (base, TRIAL, LOADERS)}))[1] == "Told"


def test_what_is_typed_in_another_way_is_the_same_definition(define, tmp_path):
    assert told(define({"__init__.py": (TRIAL, LOADERS)}, target="."))[1] == "Told"


def test_an_error_in_the_definition_is_the_users(define):
    ended = define({"model_def.py": ("import absent_library\n", TRIAL)}, "entrypoint: model_def:Told\n").check(1)
    assert "ModuleNotFoundError: No module named 'absent_library'" in ended.stderr
    ended = define({"model_def.py": "1 / 0\n"}, "entrypoint: model_def:Told\n").check(1)
    assert "ZeroDivisionError" in ended.stderr


def test_a_definition_that_is_not_there_is_told(define):
    ended = define({"__init__.py": (TRIAL, LOADERS)}, "entrypoint: 'model_def:Told'\n", target="../modle")
    support.refused(ended, "there is no `")
    assert "../modle`\n  expected: the model definition that has the class `model_def:Told`" in ended.stderr


def test_k19_a_missing_method_is_told_before_training(define):
    text = "from pedl.frameworks.keras import KerasTrial\nclass Half(KerasTrial):\n    def loss(self): pass\n"
    support.refused(define({"__init__.py": text}), "`Half` lacks `build_model`, `optimizer`", "of `KerasTrial`")


def test_parts_of_a_definition_may_be_named_each(define):
    files = {"model_def.py": TRIAL, "data.py": "def make(experiment_config, hparams):\n    return 1\n"}
    entrypoints = "entrypoints: {trial_class: 'model_def:Told', data_loaders_function: 'data:make'}\n"
    assert told(define(files, entrypoints)) == ["model.model_def", "Told"]
    support.refused(define(files, entrypoints.replace("data:make", "data:mk")), "no `mk` in the module `data`")


def test_a_trial_class_has_no_command_line(define):
    ended = define({"__init__.py": (TRIAL, LOADERS)}, behind=["--epochs", "3"]).check(64)
    assert "`--epochs` stands behind the model definition" in ended.stderr


def test_p6_hyperparameters_are_known_everywhere_and_an_unknown_one_is_told(define):
    files = {
        "train.py": "import layers, pedl\nprint('TOLD', layers.UNITS, pedl.get_hyperparameter('rate'))\nlayers.other()\n",
        "layers.py": "import pedl\nUNITS = pedl.get_hyperparameter('units')\ndef other():\n    pedl.get_hyperparameter('unit')\n",
    }
    ended = define(files, "entrypoint: {script: train.py}\nhyperparameters: {units: 5, rate: 0.5}\n").check(1)
    assert "TOLD 5 0.5" in ended.stdout
    assert "HyperparameterNotFound: this trial has no hyperparameter `unit`\n  known: `rate`, `units`\n" in ended.stderr


def test_k18_hyperparameters_are_given_to_the_class(define):
    ended = define({"__init__.py": (TRIAL, LOADERS)}, "hyperparameters: {b: 1, a: 2}\n")
    assert "TOLD model Told ['a', 'b']" in ended.check().stdout


def test_a_framework_that_is_not_installed_is_named(define):
    trial = TRIAL.replace("raise SystemExit(0)", "pass")
    loaders = LOADERS.replace('raise AssertionError("they are made after the trial")', "return [], []")
    ended = define({"__init__.py": (trial, loaders)})
    support.refused(ended, "`tensorflow` is not installed in this Python", sys.executable, "`pip install tensorflow`")
