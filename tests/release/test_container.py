"""The single file on other systems, and in containers as restricted as real ones.

`cargo dev container` runs these. Debian 11 has only its Python 3.9; the containers are built by the
instructions of `examples/Dockerfile`, and run with a read-only root, an unknown user, no directory that
may contain code except the volume of the trial, 64 MB of shared memory, and pedl-run as process 1.
"""

import re
import shutil
import signal

import containers
import pytest
import support

pytestmark = pytest.mark.stack("container")

USER = 12345

# The default is a checkpoint once a minute, and the training ends before that.
OPTIONS = ["--checkpoint-seconds", "1"]

# The home directory in a container: a directory without code, or none.
HOMES = {
    "noexec": (["mount -t tmpfs -o mode=1777,nosuid,nodev,noexec home $ROOT/home"], {"HOME": "/home"}),
    "none": ([], {}),
}

DEBIAN_11 = """
import multiprocessing
import sys

import pedl


def child(results):
    import _pedl

    results.put((pedl.get_hyperparameter("x"), _pedl.__file__))


if __name__ == "__main__":
    import _pedl

    print(sys.version.split()[0], sys.executable)
    for method in ["fork", "spawn", "forkserver"]:
        context = multiprocessing.get_context(method)
        results = context.Queue()
        process = context.Process(target=child, args=(results,))
        process.start()
        print(method, results.get(timeout=60) == (0.5, _pedl.__file__))
        process.join()
"""

# Leaves an orphan that lives until it is asked to end, and continues as the script of the image.
ORPHAN = """
import os

if os.fork() == 0:
    if os.fork() == 0:
        with open("orphan", "w") as file:
            file.write("here")
        open("end-of-orphan").read()
    os._exit(0)
os.wait()
while not os.path.exists("orphan"):
    pass
"""


@pytest.fixture
def container(tmp_path):
    """A function that makes a `Container`; its processes end with the test."""
    made = []

    def make(image, **settings):
        scratch = tmp_path / f"container-{len(made) + 1}"
        scratch.mkdir()
        made.append(containers.Container(image, scratch, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def volume(directory):
    """A directory for the files that a container keeps, which belongs to its user."""
    directory.mkdir()
    shutil.chown(str(directory), USER, USER)
    return directory


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image that `docker build` makes of the example's Dockerfile."""
    directory = tmp_path_factory.mktemp("docker")
    context = directory / "context"
    context.mkdir()
    shutil.copy2(support.executable(), str(context / "pedl-run"))
    shutil.copy2(str(support.EXAMPLES / "keras_fit_images.py"), str(context / "train.py"))
    return containers.build(support.EXAMPLES / "Dockerfile", context, directory)


class Hostile:
    """A container of the image with all restrictions, and its trial, seen from outside."""

    def __init__(self, container, image, directory, home):
        self.directory = volume(directory)
        mounts, environment = HOMES[home]
        settings = {"user": USER, "read_only": True, "mounts": mounts, "environment": environment}
        self.container = container(image, volumes={"/trial": directory}, **settings)
        self.trial = support.Trial(directory / ".pedl" / "train")

    def start(self, *arguments):
        return self.container.start(*OPTIONS, *(arguments or self.container.image.command))


def is_half_way(trial, steps):
    return 2 * trial.count("step") >= steps and trial.checkpoint is not None


def hashes(started):
    return support.hashes_in(started.stdout)


def test_debian_11_runs_the_one_file(container, tmp_path):
    system = containers.debian("bullseye", "python3")
    system.directory = "/app"
    app = volume(tmp_path / "app")
    shutil.copy2(support.executable(), str(app / "pedl-run"))
    (app / "script.py").write_text(DEBIAN_11)
    for user in (0, USER):
        debian = container(system, user=user, volumes={"/app": app})
        text = debian.run(command=["./pedl-run", "--pedl", "doctor"])
        assert "\nmode         exec: Python is in the executable, which is run\n" in text
        text = debian.run(command=["./pedl-run", "--hp", "x=0.5", "script.py"])
        assert re.fullmatch(r"3\.9\.\d+ /usr/bin/python3\nfork True\nspawn True\nforkserver True\n", text)


def test_the_dockerfile_pins_what_is_tested():
    import tomllib  # other stacks, which also collect this file, have older Pythons

    text = (support.EXAMPLES / "Dockerfile").read_text()
    stacks = tomllib.loads((support.ROOT / "tests" / "matrix.toml").read_text())["stack"]
    stack = next(stack for stack in stacks if stack["name"] == "keras3-jax")
    pinned = re.findall(r"\S+==\S+", text)
    assert {"keras", "jax"} <= {pin.partition("==")[0] for pin in pinned}
    assert set(pinned) <= set(stack["requirements"])


def test_doctor_in_the_container(container, image, tmp_path):
    hostile = Hostile(container, image, tmp_path / "volume", "none")
    text = hostile.container.run("--pedl", "doctor")
    assert " at /usr/local/bin/python3, found by `python3` and `python` on PATH\n" in text
    assert "\nmode         embed: " in text
    assert "\nlibrary      /dev/shm/pedl-run-12345/" in text


@pytest.mark.parametrize("home", list(HOMES))
def test_a_container_that_was_killed_learns_the_same(container, image, tmp_path, home):
    undisturbed = Hostile(container, image, tmp_path / "undisturbed", home)
    expected = undisturbed.start().wait().check()
    assert len(hashes(expected)) == 1
    steps = undisturbed.trial.count("step")

    killed = Hostile(container, image, tmp_path / "killed", home)
    started = killed.start()
    started.wait_until(lambda: is_half_way(killed.trial, steps) and started.init)
    assert len(started.processes()) >= 2
    started.kill()
    assert started.code != 0, started  # the exit code of `unshare` after a kill differs from version to version
    assert started.processes() == []
    again = killed.start().wait().check()
    assert "pedl: resuming after batch " in again.stderr
    assert hashes(again) == hashes(expected), again


def test_orphans_are_reaped_and_a_stop_is_143(container, image, tmp_path):
    undisturbed = Hostile(container, image, tmp_path / "undisturbed", "none")
    expected = undisturbed.start().wait().check()
    steps = undisturbed.trial.count("step")

    stopped = Hostile(container, image, tmp_path / "stopped", "none")
    train = support.EXAMPLES / "keras_fit_images.py"
    (stopped.directory / "train.py").write_text(ORPHAN + train.read_text())
    orphan, end_of_orphan = stopped.directory / "orphan", stopped.directory / "end-of-orphan"
    # A reader of the pipe waits for a writer.
    containers.make_pipe(end_of_orphan, USER)
    started = stopped.start("train.py")
    started.wait_until(lambda: orphan.exists() and started.init)

    def orphans():
        init = started.init
        children = [(pid, state) for pid, parent, state in started.processes() if parent == init]
        # The other child of process 1 is the process that trains.
        return [each for each in children if each[0] != min(children)[0]]

    started.wait_until(lambda: stopped.trial.count("step") >= 1)
    assert [state for _, state in orphans()] == ["S"]
    end_of_orphan.write_text("now")
    started.wait_until(lambda: not orphans())
    assert [state for _, _, state in started.processes() if state == "Z"] == []

    orphan.unlink()
    started.wait_until(lambda: is_half_way(stopped.trial, steps))
    started.send(signal.SIGTERM)
    started.wait().check(143)
    assert started.processes() == []

    again = stopped.start("train.py")
    again.wait_until(orphan.exists)
    end_of_orphan.write_text("now")
    again.wait().check()
    assert "pedl: resuming after batch " in again.stderr
    assert hashes(again) == hashes(expected), again
