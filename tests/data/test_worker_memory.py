"""Batches of worker processes if memory is short: one clear error, or none if another limit does not apply (issue 6)."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import support

pytestmark = pytest.mark.stack("keras3-jax", "keras2-tensorflow1")

SCRIPT = support.SCRIPTS / "large_batches.py"
MIB = 1 << 20

CONFIGURATION = """
searcher: {name: single, metric: loss, max_steps: 1}
max_restarts: 0
"""


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run with batches of this many megabytes, after other words of a command line."""

    def make(megabytes, wrapper=()):
        file = tmp_path / "once.yaml"
        file.write_text(CONFIGURATION)
        return script_run(SCRIPT, megabytes, 2, options=["--config", file], wrapper=wrapper)

    return make


def test_a_limit_of_the_address_space_is_one_clear_error(run_of):
    peak_kb = int(re.search("PEAK_KB ([0-9]+)", run_of(1).run().check().stdout).group(1))
    # Room for one batch of 256 MB, but not for two: the one that was built, and the one that is sent.
    limit = ["bash", "-c", f'ulimit -v {peak_kb + 400_000} && exec "$@"', "bash"]
    ended = run_of(256, limit).run()
    assert ended.code == 1, ended
    assert "MemoryError: pedl: a batch of 256" in ended.stderr, ended
    assert "has no room in memory" in ended.stderr
    assert "smaller batches or a smaller max_queue_size need less" in ended.stderr


@pytest.fixture
def group():
    """A function that makes a control group with this many bytes of memory; returns the words that start a command in it."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {line.split(":")[1]: line.split(":")[2].lstrip("/") for line in lines}
    root = Path("/sys/fs/cgroup")
    is_v1 = "memory" in paths and (root / "memory").is_dir()
    parent = root / "memory" / paths["memory"] if is_v1 else root / paths.get("", "")
    if not parent.is_dir():
        parent = root / "memory" if is_v1 else root
    made = []

    def make(size):
        directory = parent / f"pedl-test-{os.getpid()}"
        try:
            directory.mkdir()
            made.append(directory)
            (directory / ("memory.limit_in_bytes" if is_v1 else "memory.max")).write_text(str(size))
        except OSError as error:
            pytest.skip(f"no control group with a limit of memory can be made here: {error}")
        return ["bash", "-c", f'echo $$ > {directory}/cgroup.procs && exec "$@"', "bash"]

    yield make
    for directory in made:
        directory.rmdir()


def test_a_small_control_group_is_one_clear_error(run_of, group):
    # Room for the training, but not for the batches that may be under way.
    ended = run_of(200, group(1200 * MIB)).run()
    assert ended.code == 1, ended
    assert "MemoryError: pedl: a batch of 200" in ended.stderr, ended
    assert "the limit may be that of the container" in ended.stderr


def test_a_small_dev_shm_is_no_limit(run_of, tmp_path):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("only root can mount another /dev/shm, with `unshare`")
    mounts = ["unshare", "--mount", "bash", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "bash"]
    tried = subprocess.run([*mounts, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no other /dev/shm can be mounted here: {tried.stderr.strip()}")
    assert run_of(100, mounts).run().check().hashes == run_of(100).run().check().hashes
