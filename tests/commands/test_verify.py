"""`pedl verify`: a script that continues exactly is reported identical, and each planted fault is found and named."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import support

# The first fault of this seed is SIGKILL to all processes, after a checkpoint.
SEED = "1"

IS_KERAS2 = "keras2" in os.environ.get("PEDL_STACK_TAGS", "").split()


def verify(directory, *words, work=None, environment=None):
    """Runs `pedl verify --json` on scripts/planted.py in a directory; returns the exit code and the result."""
    directory.mkdir(exist_ok=True)
    shutil.copy(str(support.SCRIPTS / "planted.py"), str(directory / "planted.py"))
    before = sorted(path.name for path in directory.iterdir())
    command = [support.executable(), "--pedl", "verify", "--json", "--seed", SEED, "--exact", "--python", sys.executable]
    command += ["--work-dir", str(work or directory.parent)] + list(words)
    run = subprocess.run(
        command,
        cwd=str(directory),
        env=support.clean_environment(environment or {}),
        capture_output=True,
        timeout=support.TIMEOUT,
        check=False,
    )
    assert sorted(path.name for path in directory.iterdir()) == before, "the user's directory is untouched"
    assert run.stdout, run.stderr.decode()
    return run.returncode, json.loads(run.stdout.decode())


@pytest.mark.stack("keras3-jax")
def test_a_script_that_continues_exactly_is_identical(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    code, result = verify(tmp_path / "project", "--kills", "3", "planted.py", work=work)
    assert (code, result["verdict"]) == (0, "identical"), result
    assert result["undisturbed"]["batches"] == 100
    assert result["faults"]["delivered"] == 3
    assert result["faults"]["resumed"] >= 2
    assert result["exact"]
    assert result["exact_resume"].startswith("yes")
    assert any("model.keras" in excluded for excluded in result["excluded"]), "only the time in it is left out"
    assert list(work.iterdir()) == [], "nothing is left behind"


@pytest.mark.stack("keras3-jax", "keras2-tensorflow1")
def test_worker_processes_are_killed_too(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(str(support.SCRIPTS / "worker_faults.py"), str(project))
    code, result = verify(project, "--kills", "3", "worker_faults.py", "2", "none", "silent")
    assert (code, result["verdict"]) == (0, "identical"), result
    assert result["faults"]["workers_killed"] >= 1


@pytest.mark.stack("keras3-tensorflow", "keras2-tensorflow1")
def test_a_script_on_tensorflow_is_identical(tmp_path):
    code, result = verify(tmp_path / "project", "--kills", "1", "planted.py")
    assert (code, result["verdict"]) == (0, "identical"), result
    assert result["faults"]["resumed"] == 1


@pytest.mark.stack("torch")
@pytest.mark.parametrize(("trial", "workers"), [("batches", 2), ("losses", 0)])
def test_a_trial_of_pytorch_is_identical(tmp_path, trial, workers):
    project = tmp_path / "project"
    definition = support.ROOT / "tests" / "definitions" / "pytorch_trial"
    shutil.copytree(str(definition), str(project / "pytorch_trial"), ignore=shutil.ignore_patterns("__pycache__"))
    hyperparameters = {"trial": trial, "workers": workers, "scheduler": "epoch", "clip_grad_l2_norm": 0.5}
    configuration = {
        "entrypoint": ":Chosen", "hyperparameters": hyperparameters, "batches_per_step": 5, "min_validation_period": 2,
        "searcher": {"name": "single", "metric": "error", "max_steps": 5}, "max_restarts": 0,
    }  # fmt: skip
    (project / "const.yaml").write_text(json.dumps(configuration))
    code, result = verify(
        project, "--kills", "2", "--config", "const.yaml", "pytorch_trial", environment={"PAUSE": "0.05"}
    )
    assert (code, result["verdict"]) == (0, "identical"), result
    assert result["undisturbed"]["batches"] == 25
    assert result["faults"]["resumed"] >= 1


@pytest.mark.stack("keras2-tensorflow1")
def test_a_loop_over_sessions_is_identical(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(str(support.SCRIPTS / "session_loops.py"), str(project))
    code, result = verify(project, "--kills", "2", "session_loops.py", "iterator", "200", environment={"PAUSE": "0.005"})
    assert (code, result["verdict"]) == (0, "identical"), result
    assert result["undisturbed"]["batches"] == 180
    assert result["faults"]["resumed"] >= 1


@pytest.mark.stack("keras3-jax")
def test_a_script_that_answers_sigterm_with_an_orderly_exit_is_identical(tmp_path):
    code, result = verify(tmp_path / "project", "--kills", "6", "planted.py", "--ends-orderly")
    assert (code, result["verdict"]) == (0, "identical"), result
    kinds = [fault["fault"] for run in result["runs"] for fault in run["faults"]]
    assert "terminate" in kinds, result


CONFIGURATION = """
searcher: {name: single, metric: loss, max_steps: 3}
batches_per_step: 30
entrypoint: {script: planted.py}
"""


@pytest.mark.stack("keras3-jax")
def test_a_script_whose_length_a_configuration_decides_is_identical(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "const.yaml").write_text(CONFIGURATION)
    code, result = verify(project, "--kills", "1", "--config", "const.yaml", ".")
    assert (code, result["verdict"]) == (0, "identical"), result
    assert result["undisturbed"]["batches"] == 90
    assert result["faults"]["resumed"] == 1


@pytest.mark.stack("keras3-jax")
def test_a_directory_of_a_configuration_that_is_not_copied_is_refused(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "const.yaml").write_text(CONFIGURATION)
    command = [support.executable(), "--pedl", "verify", "--python", sys.executable, "--config", "const.yaml", str(elsewhere)]
    environment = support.clean_environment({})
    run = subprocess.run(command, cwd=str(project), env=environment, capture_output=True, timeout=support.TIMEOUT, check=False)
    assert run.returncode == 64
    assert "is not below the current directory" in run.stderr.decode()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.stack("keras3-jax")
@pytest.mark.parametrize(
    ("fault", "tensor", "cause"),
    [
        ("slot", "adam/sequential_dense_bias_momentum", "optimizer slot"),
        ("counter", "adam/iteration", "counter was not restored"),
        ("stream", "seed_generator_state", "random stream"),
        ("sample", None, "a sample repeated"),
    ],
)
def test_a_planted_fault_is_named(tmp_path, fault, tensor, cause):
    code, result = verify(tmp_path / "project", "--kills", "1", "planted.py", "--plant", fault)
    _check_found(code, result, tensor, cause)


@pytest.mark.stack("keras2")
def test_a_planted_fault_is_named_in_a_graph(tmp_path):
    code, result = verify(tmp_path / "project", "--kills", "1", "planted.py", "--plant", "slot")
    _check_found(code, result, "m_0", "optimizer slot")


def _check_found(code, result, tensor, cause):
    assert (code, result["verdict"]) == (76, "different"), result
    [run] = [run for run in result["runs"] if not run["identical"]]
    resumed = run["faults"][0]["resumed"]
    found = run["cause"]
    assert found["batch"] == resumed + 1, run
    assert cause in found["text"], run
    if tensor is not None:
        assert tensor in found["tensors"][0], run
        assert tensor in found["text"], run
    of = {difference["of"] for difference in run["differences"]}
    assert {"calls", "state", "metrics", "printed", "file"} <= of, run
    assert os.path.isdir(run["kept"])
    assert len(result["kept"]) == 3, "the undisturbed runs are there to be looked at"


@pytest.mark.stack("keras3-jax")
def test_a_script_that_does_not_repeat_itself_shows_nothing(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    text = (support.SCRIPTS / "planted.py").read_text()
    # Under pedl-run a clock that is read before training is still the real clock.
    (project / "clock.py").write_text(text.replace("RandomState(1)", "RandomState(time.time_ns() % (1 << 32))"))
    code, result = verify(project, "clock.py")
    assert (code, result["verdict"]) == (77, "not_repeatable"), result
    assert result["undisturbed"]["differ_in"]["batch"] in (0, 1), result
    assert result["runs"] == []
