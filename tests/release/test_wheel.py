"""The wheel that is released, installed as users install it: into each Python, by pip, uv and pipx.

`cargo dev wheel` builds it, sets its path (PEDL_WHEEL), and runs these tests.
"""

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest
import support

pytestmark = pytest.mark.stack("wheel")

PYTHONS = ["3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"]
INSTALLERS = ["pip", "uv"]

# Seconds; an installation takes two.
LIMIT = 300

# The PATH of a user, except for Pythons.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SPAWN = """
import multiprocessing
import sys

import pedl


def child(results):
    results.put((pedl.get_hyperparameter("x"), pedl.__file__))


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    results = context.Queue()
    process = context.Process(target=child, args=(results,))
    process.start()
    print(results.get(timeout=60) == (0.5, pedl.__file__))
    process.join()
"""


def wheel():
    return Path(os.environ["PEDL_WHEEL"])


def find_python(version):
    """The real executable of a Python of this version; skips the test if there is none."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    below_pyenv = [path / "bin" / "python" for path in root.glob(version + ".*")]
    for candidate in [*below_pyenv, "python" + version]:
        code = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
        try:
            answer = subprocess.run([str(candidate), "-I", "-c", code], check=False, capture_output=True)
        except FileNotFoundError:
            continue
        words = answer.stdout.decode().split()
        if answer.returncode == 0 and words[1] == version:
            return words[0]
    pytest.skip(f"no Python {version} was found")


def run(*command, cwd=None, code=0, **variables):
    """Runs a command in the environment of a login, and returns its standard output."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PEDL_", "PYTEST_")) and name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    environment.update(PATH=SYSTEM_PATH, **{name: str(value) for name, value in variables.items()})
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=str(cwd) if cwd else None,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=LIMIT,
    )
    assert ended.returncode == code, f"{command}\nexit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def tool(name):
    """A program of the environment that runs these tests."""
    return Path(sys.prefix) / "bin" / name


class Installed:
    """A new virtual environment with nothing in it but the wheel."""

    def __init__(self, directory, version, installer):
        self.directory = directory
        self.installer = installer
        self.cache = directory.parent / "cache"
        python = find_python(version)
        if installer == "uv":
            run(tool("uv"), "venv", "--quiet", "--python", python, directory)
        else:
            run(python, "-m", "venv", directory)
        self.manage("install", wheel())

    @property
    def python(self):
        return self.directory / "bin" / "python"

    def manage(self, verb, *arguments):
        if self.installer == "uv":
            return run(tool("uv"), "pip", verb, "--quiet", "--python", self.python, *arguments)
        arguments = ["--yes", *arguments] if verb == "uninstall" else ["--no-index", *arguments]
        return run(self.python, "-m", "pip", verb, "--quiet", *arguments)

    def run(self, program, *arguments, **variables):
        """Runs a program of the environment by its path, as if the environment was not activated."""
        path = self.directory / "bin" / program
        return run(path, *arguments, cwd=self.directory.parent, PEDL_CACHE_DIR=self.cache, **variables)

    def files(self):
        return sorted(str(path) for path in self.directory.rglob("*pedl*"))


@pytest.fixture(scope="module", params=[(version, name) for version in PYTHONS for name in INSTALLERS], ids="-".join)
def installed(request, tmp_path_factory):
    version, installer = request.param
    directory = tmp_path_factory.mktemp("environment")
    (directory / "hello.py").write_text("import sys; print('hello', sys.executable)\n")
    (directory / "spawn.py").write_text(SPAWN)
    return Installed(directory / "venv", version, installer)


def test_it_runs_the_python_of_its_environment(installed):
    assert installed.run("pedl-run", "hello.py") == f"hello {installed.python}\n"


def test_doctor_finds_the_same_python(installed):
    text = installed.run("pedl", "doctor")
    assert f" at {installed.python}, found by the environment of pedl-run" in text
    assert installed.run("pedl", "--version") == installed.run("pedl-run", "--version")


def test_the_package_explains_itself_without_the_host(installed):
    code = "import pedl\ntry: pedl.get_hyperparameter('x')\nexcept pedl.NotUnderHost as error: print(error)"
    text = installed.run("python", "-c", code)
    assert "  start it with: pedl-run --hp NAME=VALUE " in text


def test_the_package_is_the_same_under_the_host(installed):
    code = (
        "import hashlib, os, pedl\n"
        "directory = os.path.dirname(pedl.__file__)\n"
        "for name in sorted(os.listdir(directory)):\n"
        "    if name != '__pycache__':\n"
        "        print(name, hashlib.sha256(open(os.path.join(directory, name), 'rb').read()).hexdigest())"
    )
    alone = installed.run("python", "-c", code)
    assert "__init__.py " in alone
    assert installed.run("pedl-run", "-c", code) == alone


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_import_the_package(installed, method):
    assert installed.run("pedl-run", "--hp", "x=0.5", "spawn.py", method) == "True\n"


def test_nothing_is_left_when_it_is_uninstalled(installed):
    assert len(installed.files()) > 2
    installed.manage("uninstall", "pedl-run")
    assert installed.files() == []
    installed.manage("install", wheel())


@pytest.mark.parametrize("installer", ["uv", "pipx"])
def test_a_tool_of_its_own_runs_the_python_of_the_user(tmp_path, installer):
    home, links = tmp_path / "home", tmp_path / "links"
    home.mkdir()
    if installer == "uv":
        variables = {"UV_TOOL_DIR": tmp_path / "tools", "UV_TOOL_BIN_DIR": links}
        run(tool("uv"), "tool", "install", "--quiet", "--python", sys.executable, wheel(), **variables)
    else:
        variables = {"PIPX_HOME": tmp_path / "tools", "PIPX_BIN_DIR": links, "HOME": home}
        variables["PIPX_DEFAULT_PYTHON"] = sys.executable
        run(tool("pipx"), "install", "--quiet", wheel(), **variables)
    # The environment of the user, first on PATH and not activated.
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "own")
    own = tmp_path / "own" / "bin" / "python3"
    variables = {"PATH": f"{links}:{own.parent}:{SYSTEM_PATH}", "PEDL_CACHE_DIR": tmp_path / "cache"}
    assert os.path.islink(str(links / "pedl-run"))
    for program in ["pedl-run", links / "pedl-run"]:
        found = run_with_path(program, "-c", "import sys; print(sys.executable)", **variables)
        assert found == f"{own}\n"
    assert f" at {own}, found by `python3` and `python` on PATH\n" in run_with_path("pedl", "doctor", **variables)


def run_with_path(program, *arguments, PATH, **variables):  # noqa: N803 - it is a variable of the environment
    """As `run`, with another PATH, on which the program is searched."""
    return run("/usr/bin/env", f"PATH={PATH}", program, *arguments, **variables)


def test_its_record_is_true():
    with zipfile.ZipFile(str(wheel())) as archive:
        names = archive.namelist()
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, found, size in rows:
            if name == record:
                continue
            content = archive.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (found, size) == (f"sha256={digest}", str(len(content)))


def test_it_holds_what_it_should_and_no_second_copy():
    with zipfile.ZipFile(str(wheel())) as archive:
        files = {info.filename: info for info in archive.infolist()}
        scripts = {name.rpartition("/")[2]: info for name, info in files.items() if ".data/scripts/" in name}
        assert sorted(scripts) == ["pedl", "pedl-run"]
        for info in scripts.values():
            assert info.external_attr >> 16 & 0o111 == 0o111, info
        assert archive.read(scripts["pedl-run"]) == Path(support.executable()).read_bytes()
        assert scripts["pedl"].file_size < 1000
        package = {name: archive.read(name) for name in files if name.startswith("pedl/")}
        source = support.ROOT / "shims" / "pedl"
        shipped = [path for path in source.rglob("*") if path.is_file() and path.suffix in (".py", ".pyi", ".typed")]
        assert package == {f"pedl/{path.relative_to(source)}": path.read_bytes() for path in shipped}
        assert not [name for name in files if name.endswith(".so")]
        license_file = next(name for name in files if name.endswith("/LICENSE"))
        assert archive.read(license_file) == (support.ROOT / "LICENSE").read_bytes()
        # The same source gives the same bytes, because they do not contain the current time.
        assert {info.date_time for info in files.values()} == {(1980, 1, 1, 0, 0, 0)}


def test_its_metadata_is_that_of_the_project():
    name, _, platforms = wheel().stem.rpartition("-")
    assert name == "pedl_run-0.1.0-py3-none"
    assert sorted(platforms.split(".")) == ["manylinux2014_x86_64", "manylinux_2_17_x86_64"]
    with zipfile.ZipFile(str(wheel())) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(archive.read(metadata).decode())
    assert fields["Name"] == "pedl-run"
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.7"
    assert fields["Requires-Dist"] is None
    assert fields.get_payload().rstrip() == (support.ROOT / "README.md").read_text().rstrip()
