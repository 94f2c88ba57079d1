"""Every user mistake before a framework trains: the message, the exit code, and that nothing is lost.

`CASES` has one row for each mistake; its message is in `snapshots/<name>.txt`. After each mistake the directory must be
the same as before, byte for byte. If the message names a remedy, the test applies it, and the script must run.
If Python itself prints the message (`BY_PYTHON`), it must be Python's, to the letter.
Mistakes with a trial that has trained are in `test_bad_trials.py`.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys

import pytest
import support
from support import snapshots

SCRIPT = "print('trained')\n"

# The answer of an interpreter to pedl-run, which asks it for its version of Python.
ANSWER = (
    '#!/bin/sh\necho \'{"executable": "/opt/python", "implementation": "%s", "version": "3.%d.0", "major": 3, '
    '"minor": %d, "abiflags": "%s", "loaded_library": null, "candidate_libraries": ["/opt/lib/libpython3.%d.so.1.0"]}\'\n'
)

TRIAL = (
    '{"schema": %d, "trial_id": 1, "experiment_id": 1, "trial_seed": 7, "hash_seed": 4242, "threads": 2,\n'
    ' "command": ["%s"], "python_options": [], "hyperparameters": {"lr": 0.1}, "pedl_version": "0.1.0"}\n'
)

OLD, NEW = ["plain-python37"], ["plain"]


class Case:
    """A mistake.

    Args:
        name: of its snapshot.
        command: the arguments; text as for a shell, or a list.
        help: the remedy: the arguments of a run that must end with 0.
        prepare: `prepare(bench)` makes the mistake.
        mend: `mend(bench)` undoes it, before the run that must end with 0.
        environment: variables of the run that fails.
        settings: of `Bench.run`.
        python: whether the run gets `--python` with the interpreter of the tests.
        program: `pedl-run` or `pedl`.
        stacks: that can have the mistake; every stack without it.
    """

    def __init__(
        self, name, command, help=None, prepare=None, mend=None, environment=None, settings=None, python=True,
        program="pedl-run", stacks=None,
    ):
        self.name = name
        self.words = shlex.split(command) if isinstance(command, str) else command
        self.help = help
        self.prepare = prepare
        self.mend = mend
        self.environment = environment or {}
        self.settings = settings or {}
        self.python = python
        self.program = program
        self.stacks = stacks


def program(name, text):
    """Makes a file that can be executed."""
    return lambda bench: bench.write(name, text, 0o755)


def file(name, text, mode=None):
    """Makes a file."""
    return lambda bench: bench.write(name, text, mode)


def both(*steps):
    """Does several things."""

    def prepare(bench):
        for step in steps:
            step(bench)

    return prepare


def link(name, target):
    """Makes a symlink."""

    def prepare(bench):
        path = bench.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    return prepare


def remove(name):
    """Removes a file, link or directory."""

    def mend(bench):
        path = bench.directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(str(path))
        else:
            path.unlink()

    return mend


def mode(name, bits):
    """Changes permissions."""
    return lambda bench: (bench.directory / name).chmod(bits)


def trial(schema=1, command="train.py", text=None):
    """Makes a trial that the command line accepts as one; it has no checkpoint."""

    def prepare(bench):
        bench.write(".pedl/train/trial.json", TRIAL % (schema, command) if text is None else text)
        bench.write(".pedl/train/calls.log", b"pedlcall\0\0")
        bench.write(".pedl/train/events.jsonl", '{"event": "trial_begun"}\n')

    return prepare


def close(descriptor):
    """Closes a standard stream."""
    return lambda: os.close(descriptor)


def cwd_is_removed():
    """The directory in which the command is typed is removed before it runs."""
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")


def lock(bench):
    """Another process holds the trial."""
    bench.write(".pedl/train/lock", "")
    code = "import fcntl, sys\nfile = open('.pedl/train/lock', 'r+')\nfcntl.lockf(file, fcntl.LOCK_EX)\n" \
        "print('held', flush=True)\nsys.stdin.read()\n"
    bench.holder = subprocess.Popen(
        [sys.executable, "-c", code], cwd=str(bench.directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert bench.holder.stdout.readline() == b"held\n"


def unlock(bench):
    bench.holder.communicate()
    assert bench.holder.returncode == 0


def listen(bench):
    """Puts a socket in the place of the script."""
    path = bench.directory / "train.sock"
    place = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(str(bench.directory))
    try:
        # The address of a socket may have at most about a hundred characters.
        place.bind(path.name)
    finally:
        os.chdir(here)
        place.close()


FAKE_KERAS = "__version__ = '%s'\n"
IMPORTS = "import keras\nprint('trained')\n"

COMMAND_LINE = [
    Case("option_misspelt", "--trail-dir x train.py", "--trial-dir x train.py"),
    Case("option_of_another_tool", "--epochs 3 train.py", "train.py --epochs 3"),
    Case("option_with_one_dash", "-exact train.py", "--exact train.py"),
    Case("option_without_a_script", "--fresh"),
    Case("nothing_at_all", "", python=False),
    Case("value_forgotten_at_the_end", "--trial-dir", "--trial-dir x train.py"),
    Case("value_forgotten_before_an_option", "--trial-dir --exact train.py", "--trial-dir x --exact train.py"),
    Case("value_is_empty", "--trial-dir= train.py", "--trial-dir x train.py"),
    Case("switch_with_a_value", "--exact=yes train.py", "--exact train.py"),
    Case("option_given_twice", "--mode exec --mode auto train.py", "--mode auto train.py"),
    Case("options_that_exclude_each_other", "--verbose --quiet train.py", "--verbose train.py"),
    Case("option_after_the_word_python", "python --exact train.py", "--exact python train.py", python=False,
         environment={"PEDL_PYTHON": sys.executable}),
    Case("number_in_words", "--batches-per-step many train.py", "--batches-per-step 10 train.py"),
    Case("number_not_whole", "--checkpoint-period 0.5 train.py", "--checkpoint-period 1 train.py"),
    Case("number_of_zero", "--batches-per-step 0 train.py", "--batches-per-step 1 train.py"),
    Case("number_too_large", "--batches-per-step 99999999999999999999 train.py"),
    Case("seconds_negative", "--checkpoint-seconds -1 train.py", "--checkpoint-seconds 1 train.py"),
    Case("seconds_not_a_number", "--checkpoint-seconds nan train.py", "--checkpoint-seconds 0 train.py"),
    Case("seconds_with_a_unit", "--checkpoint-seconds 60s train.py", "--checkpoint-seconds 60 train.py"),
    Case("bytes_in_decimal_units", "--log-limit 10MB train.py", "--log-limit 10MiB train.py"),
    Case("mode_that_is_none", "--mode embedded train.py", "--mode auto train.py"),
    Case("log_format_that_is_none", "--log-format xml train.py", "--log-format json train.py"),
    Case("hyperparameter_without_a_value", "--hp lr train.py", "--hp lr=1 train.py"),
    Case("hyperparameter_without_a_name", "--hp =0.1 train.py", "--hp lr=0.1 train.py"),
    Case("hyperparameter_given_twice", "--hp lr=0.1 --hp units=3 --hp lr=0.2 train.py", "--hp lr=0.2 train.py"),
    Case("hyperparameter_not_text", [b"--hp", b"name=\xff", b"train.py"]),
    Case("hyperparameter_unheard_of", "--hp lr=0.1 ask.py", "--hp rate=0.1 ask.py",
         file("ask.py", "import pedl\nprint(pedl.get_hyperparameter('rate'))\n")),
    Case("hyperparameters_under_plain_python", "ask.py", prepare=both(
        file("ask.py", "import os, subprocess, sys\ndel os.environ['PEDL_CONTEXT']\n"
                       "sys.exit(subprocess.call([sys.executable, 'asks.py']))\n"),
        file("asks.py", "import pedl\nprint(pedl.get_hyperparameter('rate'))\n"))),
    Case("hyperparameter_that_does_not_fit", "--hp epochs=many parse.py", "--hp epochs=3 parse.py",
         file("parse.py", "import argparse\nparser = argparse.ArgumentParser()\n"
                          "parser.add_argument('--epochs', type=int, choices=[1, 2, 3])\nparser.parse_args()\n")),
    Case("variable_with_a_wrong_value", "train.py", "train.py", environment={"PEDL_BATCHES_PER_STEP": "x"}),
    Case("variable_of_a_switch", "train.py", "train.py", environment={"PEDL_FRESH": "maybe"}),
    Case("variable_with_half_a_hyperparameter", "train.py", "train.py", environment={"PEDL_HP": "lr=1;units"}),
    Case("verbs_unknown", "hook keras", "hooks keras", program="pedl", python=False),
    Case("verbs_forgotten", "train.py", "run train.py", program="pedl", python=False),
    Case("verbs_word_too_many", "doctor keras", program="pedl", python=False),
    Case("hooks_of_an_unknown_library", "hooks kears", "hooks keras", program="pedl", python=False),
    Case("hooks_of_an_unknown_version", "hooks keras 2.5.0", "hooks keras 2.3.1", program="pedl", python=False),
    Case("hooks_of_an_unknown_function", "hooks keras 2.3.1 fti", "hooks keras 2.3.1 fit", program="pedl", python=False),
    Case("completions_of_an_unknown_shell", "completions tcsh", "completions bash", program="pedl", python=False),
    Case("no_hooks_of_an_unknown_library", "--no-hooks kears train.py", "--no-hooks keras train.py"),
]

BY_PYTHON = [
    Case("script_misspelt", "trian.py", "train.py"),
    Case("script_in_another_directory", "src/train.py", "train.py"),
    Case("script_is_a_directory", "folder", "folder", file("folder/data.txt", ""), file("folder/__main__.py", SCRIPT)),
    Case("script_is_binary", "model.h5", prepare=file("model.h5", b"\x89HDF\r\n\x1a\n\x00\xff")),
    Case("script_with_a_syntax_error", "wrong.py", prepare=file("wrong.py", "print('a'\nimport os\n")),
    Case("script_unreadable", "secret.py", "secret.py", file("secret.py", SCRIPT, 0o000), mode("secret.py", 0o600),
         settings={"as_owner": True}),
    Case("script_is_a_socket", "train.sock", "train.py", listen),
    Case("script_with_a_name_that_is_not_text", [b"tr\xe4in.py"]),
    Case("module_misspelt", "-m trian", "-m train"),
    Case("code_forgotten", "-c", "-c pass"),
    Case("option_that_python_has_not", "-Z train.py", "-B train.py"),
    Case("option_after_the_script", "argv.py --exact", "--exact argv.py",
         file("argv.py", "import sys\nsys.exit(str(sys.argv[1:]) if sys.argv[1:] else 0)\n")),
    Case("current_directory_is_gone", "-c print(1)", "-c print(1)", settings={"before": cwd_is_removed}),
    Case("stdin_is_closed", "-", settings={"before": close(0)}),
    Case("stdout_is_closed", "train.py", settings={"before": close(1)}),
    Case("stdout_is_full", "train.py", settings={"before": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1)}),
    Case("keras_that_cannot_be_imported", "train.py",
         prepare=both(file("train.py", IMPORTS), file("keras/__init__.py", "raise ImportError('no libcudart.so.10')\n"))),
]

INTERPRETERS = [
    Case("python_that_is_not_there", "--python /opt/python/bin/python3 train.py", python=False),
    Case("python_that_is_not_on_the_path", "--python python3.99 train.py", python=False),
    Case("python_by_its_version_alone", "--python 3.11 train.py", python=False),
    Case("python_by_a_word_that_is_not_there", "python3.99 train.py", python=False),
    Case("python_is_a_text", "--python train.py train.py", python=False),
    Case("python_is_a_directory_without_one", "--python data train.py", prepare=file("data/x", ""), python=False),
    Case("python_of_an_environment_whose_base_is_gone", "--python venv train.py", python=False,
         prepare=both(link("venv/bin/python", "/opt/gone/bin/python"), file("venv/pyvenv.cfg", "home = /opt/gone/bin\n"))),
    Case("python_is_another_program", "--python ./program train.py", python=False,
         prepare=program("program", "#!/bin/sh\necho 'usage: program FILE' >&2\nexit 2\n")),
    Case("python_says_nothing", "--python ./program train.py", python=False, prepare=program("program", "#!/bin/sh\n")),
    Case("python_says_too_much", "--python ./program train.py", python=False,
         prepare=program("program", "#!/bin/sh\necho 'no such file:' \"$@\" >&2\nexit 1\n")),
    Case("python_is_a_script_of_a_program_that_is_gone", "--python ./program train.py", python=False,
         prepare=program("program", "#!/opt/gone/bin/python\n")),
    Case("python_of_another_architecture", "--python ./program train.py", python=False,
         prepare=program("program", b"\x7fELF\x02\x01\x01\x00" + b"\x00" * 8 + b"\x02\x00\xb7\x00" + b"\x00" * 44)),
    Case("python_too_old", "--python ./python train.py", python=False,
         prepare=program("python", ANSWER % ("cpython", 6, 6, "m", 6))),
    Case("python_too_new", "--python ./python train.py", python=False,
         prepare=program("python", ANSWER % ("cpython", 14, 14, "", 14))),
    Case("python_without_a_global_lock", "--python ./python train.py", python=False,
         prepare=program("python", ANSWER % ("cpython", 13, 13, "t", 13))),
    Case("python_is_pypy", "--python ./python train.py", python=False,
         prepare=program("python", ANSWER % ("pypy", 10, 10, "", 10))),
    Case("embed_without_a_library", "--mode embed --python ./python train.py", "--mode exec train.py", python=False,
         prepare=program("python", ANSWER % ("cpython", 11, 11, "", 11))),
    Case("isolated_where_it_is_executed", "--mode exec -I train.py", "train.py", stacks=NEW),
    Case("isolated_where_it_is_static", "-I --python ./python train.py", python=False,
         prepare=program("python", ANSWER % ("cpython", 11, 11, "", 11))),
    Case("isolated_on_3_7", "-I train.py", "train.py", stacks=OLD),
    Case("no_python_anywhere", "train.py", "train.py", python=False,
         environment={"PATH": "/opt/gone/bin", "VIRTUAL_ENV": "/opt/gone/venv"}),
]

PLACES = [
    Case("cache_is_a_file", "train.py", "train.py", file("cache", ""), environment={"PEDL_CACHE_DIR": "cache"}),
    Case("cache_is_open_to_others", "train.py", "train.py", both(file("cache/x", ""), mode("cache", 0o777)),
         environment={"PEDL_CACHE_DIR": "cache"}),
    Case("cache_is_a_link", "train.py", "train.py", both(file("elsewhere/x", ""), link("cache", "elsewhere")),
         environment={"PEDL_CACHE_DIR": "cache"}),
    Case("cache_cannot_be_made", "train.py", "train.py", both(file("folder/x", ""), mode("folder", 0o555)),
         environment={"PEDL_CACHE_DIR": "folder/cache"}, settings={"as_owner": True}),
    Case("no_home", "train.py", "train.py", environment={"HOME": None}),
    Case("home_cannot_be_written", "train.py", "train.py", both(file("home/x", ""), mode("home", 0o555)),
         environment={"HOME": "home"}, settings={"as_owner": True}),
    Case("stderr_is_closed", "--trail-dir x train.py", settings={"before": close(2)}),
    Case("trial_of_another_script", "train.py", "--trial-dir .pedl/other train.py", trial(command="other.py")),
    Case("trial_of_other_hyperparameters", "--hp lr=0.2 train.py", "--hp lr=0.1 train.py", trial()),
    Case("trial_of_other_arguments", "--hp lr=0.1 train.py --epochs 3", "--hp lr=0.1 train.py", trial()),
    Case("trial_of_a_later_schema", "--hp lr=0.1 train.py", "--fresh train.py", trial(schema=2)),
    Case("trial_json_is_torn", "train.py", "--fresh train.py", trial(text='{"schema": 1, "trial_id"')),
    Case("trial_json_is_empty", "train.py", "--fresh train.py", trial(text="")),
    Case("trial_json_is_binary", "train.py", "--fresh train.py", trial(text=b"\xff\xfe\x00")),
    Case("trial_json_lacks_a_member", "train.py", "--fresh train.py", trial(text='{"schema": 1}')),
    Case("trial_json_is_a_directory", "train.py", "--fresh train.py", file(".pedl/train/trial.json/x", "")),
    Case("trial_json_unreadable", "--hp lr=0.1 train.py", "--hp lr=0.1 train.py",
         both(trial(), mode(".pedl/train/trial.json", 0)), mode(".pedl/train/trial.json", 0o644),
         settings={"as_owner": True}),
    Case("trial_in_use", "--hp lr=0.1 train.py", "--hp lr=0.1 train.py", both(trial(), lock), unlock),
    Case("trial_in_use_is_not_given_up", "--fresh train.py", "--fresh train.py", both(trial(), lock), unlock),
    Case("trial_dir_that_is_not_text", [b"--trial-dir", b"tr\xe4", b"train.py"], "--trial-dir x train.py"),
]

LIBRARIES = [
    Case("keras_of_an_unknown_version", "train.py", "--no-hooks keras train.py",
         both(file("train.py", IMPORTS), file("keras/__init__.py", FAKE_KERAS % "2.5.0"))),
    Case("keras_of_a_version_to_come", "train.py", "--no-hooks keras train.py",
         both(file("train.py", IMPORTS), file("keras/__init__.py", FAKE_KERAS % "3.20.0rc1"))),
    Case("keras_half_installed", "train.py", "--no-hooks keras train.py",
         both(file("train.py", IMPORTS), file("keras/__init__.py", FAKE_KERAS % "2.3.1"))),
    Case("keras_without_one_of_its_functions", "train.py", "--no-hooks keras train.py",
         both(file("train.py", IMPORTS), file("keras/__init__.py", FAKE_KERAS % "2.3.1"),
              file("keras/backend.py", "def backend():\n    return 'tensorflow'\n"),
              file("keras/engine/__init__.py", ""), file("keras/engine/training.py", "class Model: pass\n"))),
    Case("keras_is_a_file_of_the_script", "train.py", "--no-hooks keras train.py",
         both(file("train.py", IMPORTS), file("keras.py", "models = None\n"))),
    Case("keras_is_what_pip_left_behind", "train.py", "--no-hooks keras train.py",
         both(file("train.py", "import keras.models\nprint('trained')\n"), file("keras/models.py", "Sequential = None\n"))),
    Case("tensorflow_of_an_unknown_version", "train.py", "--no-hooks tensorflow train.py",
         both(file("train.py", "import tensorflow as tf\nprint('trained')\n"),
              file("tensorflow/__init__.py", FAKE_KERAS % "2.16.1"))),
]

def configured(name, text, command="--config const.yaml train.py", help="--config good.yaml train.py", bits=None, **more):
    """A case of a wrong configuration, next to one that is right."""
    prepare = both(file("good.yaml", SEARCH), file("const.yaml", text, bits))
    return Case(f"configuration_{name}", command, help, prepare, **more)


SEARCH = "searcher: {name: single, metric: loss, max_steps: 1}\n"
RANDOM = "searcher: {name: random, metric: loss, max_steps: 1, max_trials: 3}\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    "a{}: &a{} [{}]\n".format(level, level, ", ".join([f"*a{level - 1}"] * 9)) for level in range(1, 12)
)

CONFIGURATIONS = [
    configured("misspelt", SEARCH + "batches_per_setp: 10\n"),
    configured("misspelt_in_a_block", "searcher:\n  name: single\n  metric: loss\n  max_step: 1\n"),
    configured("of_another_type", SEARCH + "max_restarts: never\n"),
    configured("out_of_range", SEARCH + "batches_per_step: 0\n"),
    configured("of_an_unknown_choice", SEARCH + "checkpoint_policy: bset\n"),
    configured("with_a_number_in_quotes", SEARCH + "batches_per_step: '100'\n"),
    configured("without_a_searcher", "batches_per_step: 10\n"),
    configured("of_an_unknown_searcher", "searcher: {name: hyperband, metric: loss, max_steps: 1}\n"),
    configured("of_a_search_that_compares",
               "searcher: {name: adaptive_simple, metric: loss, max_steps: 4, max_trials: 4}\n"),
    configured("with_a_range_upside_down", SEARCH + "hyperparameters:\n  lr: {type: double, minval: 1.0, maxval: 0.1}\n"),
    configured("with_a_misspelt_type", SEARCH + "hyperparameters:\n  lr: {tpye: double, minval: 0.1, maxval: 1.0}\n"),
    configured("without_the_hyperparameter", SEARCH + "hyperparameters: {lr: 0.1}\n",
               "--hp rate=0.1 --config const.yaml train.py"),
    configured("is_a_bomb", BOMB + SEARCH),
    configured("that_would_run_code", SEARCH + "data: !!python/object/apply:os.system [reboot]\n"),
    configured("is_no_yaml", SEARCH + "labels: [a, b\n"),
    configured("with_tabs", "searcher:\n\tname: single\n"),
    configured("with_a_field_twice", SEARCH + "debug: true\ndebug: false\n"),
    configured("of_two_documents", SEARCH + "---\n" + SEARCH),
    configured("is_empty", ""),
    configured("is_a_list", "- searcher\n"),
    configured("is_binary", b"\x89HDF\r\n\x1a\n\x00\xff"),
    configured("is_too_large", "# " + "x" * (1 << 20) + "\n" + SEARCH),
    configured("keeps_its_secret",
               SEARCH + "checkpoint_storage: {type: s3, bucket: b, access_key: [AKIAIOSFODNN7], secret_key: x}\n"),
    configured("is_not_there", SEARCH, "--config cosnt.yaml train.py"),
    configured("is_a_directory", SEARCH, "--config . train.py"),
    configured("unreadable", SEARCH, bits=0, mend=mode("const.yaml", 0o600), settings={"as_owner": True}),
    configured("without_an_entrypoint", SEARCH, "--config const.yaml ."),
    configured("of_a_script_that_is_not_there", SEARCH + "entrypoint: {script: main.py}\n", "--config const.yaml ."),
    configured("of_a_script_outside", SEARCH + "entrypoint: {script: ../train.py}\n", "--config const.yaml ."),
    configured("of_another_script", SEARCH + "entrypoint: {script: main.py}\n"),
    configured("of_a_trial_too_many", RANDOM, "--trial 4 --config const.yaml train.py"),
    Case("trial_without_a_configuration", "--trial 2 train.py", "train.py"),
]

CASES = COMMAND_LINE + INTERPRETERS + PLACES + LIBRARIES + CONFIGURATIONS


@pytest.fixture
def bench(tmp_path):
    made = snapshots.Bench(tmp_path / "here")
    made.write("train.py", SCRIPT)
    return made


@pytest.fixture
def attempt(bench, tmp_path):
    """A function that makes a mistake, checks that nothing is lost, and returns the `Ended` and a function for the help."""

    def attempt(case):
        if case.stacks and os.environ.get("PEDL_STACK", "plain") not in case.stacks:
            pytest.skip(f"only possible on {' and '.join(case.stacks)}")
        if case.settings.get("as_owner"):
            snapshots.skip_unless_permissions_hold(tmp_path)
        # All tests of a session share a cache, so that the library is unpacked once.
        environment = {"PEDL_CACHE_DIR": str(tmp_path.parent / "cache")}
        if case.program == "pedl":
            (tmp_path / "pedl").symlink_to(bench.executable)
            bench.executable = str(tmp_path / "pedl")
            environment["PEDL_PYTHON"] = sys.executable
        if case.prepare:
            case.prepare(bench)
        before = snapshots.tree(bench.directory)
        ended = bench.run(words(case, case.words), dict(environment, **case.environment), **case.settings)
        after = snapshots.tree(bench.directory)

        def check():
            assert after == before
            check_help(case, bench, environment)

        return ended, check

    return attempt


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_a_mistake_is_told_and_nothing_is_lost(bench, attempt, case, request):
    ended, check = attempt(case)
    shown = " ".join(support.shown(word) for word in [case.program] + list(case.words))
    snapshots.compare(case.name, ended, bench, shown, request.config.getoption("--renew"))
    assert "py_hooks" not in ended.stderr, f"a traceback of ours: {ended!r}"
    check()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in BY_PYTHON])
def test_what_python_says_itself_is_said_by_python(bench, attempt, case):
    ended, check = attempt(case)
    python = snapshots.Bench(bench.directory, sys.executable).run(case.words, **case.settings)
    assert ended.code == python.code
    assert ended.stdout == python.stdout
    # The finder of pedl adds a line to every traceback that passes an import of a framework.
    assert without_finder(ended.stderr) == python.stderr
    check()


def without_finder(text):
    lines = text.splitlines(True)
    ours = [number for number, line in enumerate(lines) if "/py_hooks/engine/import_hook.py" in line]
    assert len(ours) <= 1, text
    for number in ours:
        end = number + 1
        while lines[end].startswith("    "):
            end += 1
        del lines[number:end]
    return "".join(lines)


def check_help(case, bench, environment):
    """Checks that the remedy in the message, or what a user would do about it, helps."""
    if case.mend:
        case.mend(bench)
    if case.help is not None:
        helped = bench.run(words(case, shlex.split(case.help), helps=True), environment)
        assert helped.code == 0, f"what should help does not: {helped!r}"


def words(case, words, helps=False):
    """The command line of a case, with the interpreter of the tests if the case chooses none."""
    chosen = case.program == "pedl-run" and (case.python or helps)
    return (["--python", sys.executable] if chosen else []) + words


def test_each_snapshot_is_of_a_case():
    from test_bad_trials import NAMES

    names = [case.name for case in CASES] + NAMES
    assert len(names) + len(BY_PYTHON) >= 60
    assert len(names) == len(set(names))
    assert sorted(path.stem for path in snapshots.FOLDER.glob("*.txt")) == sorted(names)
