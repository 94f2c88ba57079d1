"""`pedl checkpoint export`: the framework alone can read the result, and it is the model as it was at that batch."""
import json
import subprocess
import sys

import pytest
import support
from support import ScriptRun

SCRIPT = support.SCRIPTS / "fit_and_export.py"
BATCHES = 24
OPTIONS = ["--batches-per-step", str(BATCHES), "--checkpoint-period", "1"]

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1", "keras2.15-tensorflow2.15")


class Trained:
    """A trial that has trained to its end, whose last checkpoint is of its last batch."""

    def __init__(self, directory, arguments=()):
        directory.mkdir()
        self.directory = directory
        self.run = ScriptRun(directory, SCRIPT, arguments, OPTIONS)
        self.ended = self.run.start().wait().check()
        assert self.run.trial.checkpoint == BATCHES
        self.predicted, self.weights = self.ended.hashes

    def export(self, *words):
        """Exports with the Python of this stack."""
        command = [support.executable(), "--pedl", "checkpoint", "export", str(self.run.trial.directory)]
        return subprocess.run(
            command + ["--python", sys.executable] + list(words), cwd=str(self.directory), check=False,
            capture_output=True, text=True, timeout=support.TIMEOUT,
        )

    def loaded(self, name):
        """The object that plain Python loads from a file."""
        plain = ScriptRun(self.directory, support.SCRIPTS / "load_export.py", [name])
        return plain.start_python().wait().check().hashes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return Trained(tmp_path_factory.mktemp("export") / "functional")


@pytest.fixture(scope="module")
def subclassed(tmp_path_factory):
    return Trained(tmp_path_factory.mktemp("export") / "subclass", ["subclass"])


def succeeds(ended):
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended
    return ended


@pytest.mark.parametrize("name", ["model.h5", "model.keras"])
def test_a_model_is_loaded_by_the_framework_alone(trained, name):
    ended = trained.export("--output", name)
    if name.endswith(".keras") and sys.version_info < (3, 8):
        assert ended.returncode == 69, ended
        assert "keras 2.3.1 does not read `.keras`" in ended.stderr
        assert not (trained.directory / name).exists()
        return
    succeeds(ended)
    assert trained.loaded(name) == [trained.predicted, trained.weights]


def test_weights_are_arrays_by_name(trained):
    succeeds(trained.export("--output", "weights.npz", "--weights", "--checkpoint", str(BATCHES)))
    assert trained.loaded("weights.npz") == [trained.weights]
    ended = succeeds(trained.export("--output", "weights.safetensors"))
    assert f", as it was after batch {BATCHES}, was exported to `weights.safetensors`\n" in ended.stdout
    content = (trained.directory / "weights.safetensors").read_bytes()
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")].decode())
    assert len(header) == 8, header
    succeeds(trained.export("--output", "model.weights.h5"))


@pytest.mark.stack("keras2-tensorflow1", "keras2.15-tensorflow2.15")
def test_a_folder_is_a_saved_model(trained):
    succeeds(trained.export("--output", "saved"))
    assert trained.loaded("saved") == [trained.predicted]


def test_a_model_that_cannot_be_built_again_is_named_and_its_weights_are_exported(subclassed):
    ended = subclassed.export("--output", "model.h5")
    assert (ended.returncode, "Traceback" in ended.stderr) == (65, False), ended
    assert "pedl: error: model 0 (`__main__.Own`) cannot be built again" in ended.stderr, ended
    assert "--weights" in ended.stderr
    succeeds(subclassed.export("--output", "weights.safetensors"))
    succeeds(subclassed.export("--output", "weights.npz", "--weights"))
    assert subclassed.loaded("weights.npz") == [subclassed.weights]


def test_what_is_not_there_cannot_be_exported(trained):
    for words, code, text in [
        (["--output", "a.h5", "--model", "7"], 64, "the checkpoint has no model 7"),
        (["--output", "a.h5", "--checkpoint", "7"], 65, "there is no checkpoint `7`"),
        (["--output", "a.h5", "--weights"], 64, "`--weights` with `a.h5`"),
        ([], 64, "needs `--output FILE`"),
        (["--output", "."], 64, "`.` is there already"),
        (["--output", "model.pb"], 64, "`model.pb`: nothing is exported to a file of this kind"),
        (["--output", "missing/a.npz"], 73, "`missing/a.npz` cannot be made"),
        (["--output", "missing/a.safetensors"], 73, "No such file or directory"),
    ]:
        ended = trained.export(*words)
        assert (ended.returncode, text in ended.stderr, "Traceback" in ended.stderr) == (code, True, False), ended
    assert not (trained.directory / "a.h5").exists()
