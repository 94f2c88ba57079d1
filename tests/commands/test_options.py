"""Hyperparameters become defaults of the script's options: argparse, absl.flags, click."""

import pytest

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", "--learning-rate", type=float, default=0.01)
parser.add_argument("--layers", type=int, nargs="+", default=[1])
parser.add_argument("--tag", action="append", default=None)
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--name", default="x")
parser.add_argument("--width", default=4)
parser.add_argument("--augment", action="store_true")
parser.add_argument("--no-cuda", dest="cuda", action="store_false")
parser.add_argument("-v", "--verbose", action="count", default=0)
parser.add_argument("--steps", type=int, required=True)
parser.add_argument("data", nargs="?", default="here")
print(sorted(vars(parser.parse_args()).items()))
"""

SUBCOMMANDS = """
import argparse
parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command")
train = commands.add_parser("train")
train.add_argument("--batch-size", type=int, default=32)
known, rest = parser.parse_known_args()
print(known.batch_size, rest)
"""

OF_A_LIBRARY = """
import argparse, sys
sys.argv = ["x"]
import library
print(library.verbosity())
"""

LIBRARY = """
import argparse
def verbosity():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbosity", type=int, default=1)
    return parser.parse_args([]).verbosity
"""

ABSL = """
from absl import app, flags
flags.DEFINE_float("learning_rate", 0.01, "")
flags.DEFINE_integer("steps", None, "", required=True)
flags.DEFINE_bool("augment", False, "")
flags.DEFINE_list("layers", ["1"], "")
flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adam"], "")
def main(_):
    F = flags.FLAGS
    print(F.learning_rate, F.steps, F.augment, F.layers, F.optimizer, F.verbosity)
app.run(main)
"""

CLICK = """
import click
@click.command()
@click.option("--learning-rate", "--lr", default=0.01)
@click.option("--steps", type=int, required=True)
@click.option("--augment/--no-augment", default=False)
@click.option("--layers", multiple=True, type=int)
@click.option("--optimizer", type=click.Choice(["sgd", "adam"]), default="sgd")
def main(learning_rate, steps, augment, layers, optimizer):
    print(learning_rate, steps, augment, list(layers), optimizer)
main()
"""

TRAIN = """
import argparse
import numpy as np
import keras
parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int, default=1)
args = parser.parse_args()
model = keras.models.Sequential([keras.layers.Dense(args.units, input_shape=(2,))])
model.compile("sgd", "mse")
model.fit(np.ones((4, 2)), np.ones((4, args.units)), verbose=0)
print(model.layers[0].units)
"""


@pytest.fixture
def run(script_run, tmp_path):
    """Runs a text with hyperparameters; returns an `Ended`."""

    def run(text, hyperparameters, *arguments):
        script = tmp_path / "script.py"
        script.write_text(text)
        options = [word for given in hyperparameters for word in ("--hp", given)]
        return script_run(script, *arguments, options=options).run()

    return run


def printed(ended):
    """The last line of output of a script, which must have ended well."""
    assert ended.check().stderr == ""
    return ended.stdout.splitlines()[-1]


def test_options_of_argparse_take_hyperparameters(run):
    hyperparameters = [
        "learning_rate=0.5", "layers=[3, 4]", "tag=a", "optimizer=adam", "name=7", "width=8", "augment=true",
        "cuda=false", "verbose=2", "steps=10", "unheard_of=1", "data=there",
    ]
    values = dict(eval(printed(run(ARGPARSE, hyperparameters))))
    assert values == {
        "lr": 0.5, "layers": [3, 4], "tag": ["a"], "optimizer": "adam", "name": "7", "width": 8, "augment": True,
        "cuda": False, "verbose": 2, "steps": 10, "data": "here",
    }
    values = dict(eval(printed(run(ARGPARSE, ["no_cuda=true", "steps=1"]))))
    assert values["cuda"] is False


def test_the_command_line_wins(run):
    values = dict(eval(printed(run(ARGPARSE, ["lr=0.5", "steps=10"], "--learning-rate", "2", "--steps", "3"))))
    assert (values["lr"], values["steps"]) == (2.0, 3)
    assert printed(run(ABSL, ["learning_rate=0.5", "steps=1"], "--learning_rate=2")).startswith("2.0 1 ")
    assert printed(run(CLICK, ["lr=0.5", "steps=1"], "--lr", "2")).startswith("2.0 1 ")


def test_options_of_subcommands_too(run):
    assert printed(run(SUBCOMMANDS, ["batch_size=64"], "train", "more")) == "64 ['more']"


def test_parsers_of_libraries_are_let_alone(run, tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "library.py").write_text(LIBRARY)
    text = OF_A_LIBRARY.replace("import library", f"sys.path.insert(0, {str(folder)!r}); import library")
    assert printed(run(text, ["verbosity=9"])) == "1"


ODD_ARGPARSE = """
import argparse
def positive(text):
    if int(text) <= 0:
        raise argparse.ArgumentTypeError("not above 0")
    return int(text)
parser = argparse.ArgumentParser()
parser.register("type", "bool", lambda text: text == "True")
parser.add_argument("--layers", type=positive, nargs="+", default=[1])
parser.add_argument("--flags", type="bool", nargs="+", default=[])
if hasattr(argparse, "BooleanOptionalAction"):
    parser.add_argument("--augment", action=argparse.BooleanOptionalAction, default=True)
else:
    parser.add_argument("--no-augment", dest="augment", action="store_false")
print(sorted(vars(parser.parse_args()).items()))
"""


def test_types_and_switches_of_every_kind(run):
    values = dict(eval(printed(run(ODD_ARGPARSE, ["layers=[2, 3]", "flags=[true, false]", "no_augment=true"]))))
    assert values == {"layers": [2, 3], "flags": [True, False], "augment": False}
    ended = run(ODD_ARGPARSE, ["layers=[-1]"])
    assert ended.code == 65
    assert "  expected: a value that it takes: not above 0\n" in ended.stderr


def test_validators_of_absl_are_asked_when_all_is_parsed(run):
    text = ABSL.replace("def main(_):", """
flags.DEFINE_integer("low", 0, "")
flags.DEFINE_integer("high", 5, "")
@flags.multi_flags_validator(["low", "high"])
def ordered(values):
    return values["low"] < values["high"]
flags.register_validator("low", lambda low: low < flags.FLAGS.high)
def main(_):""").replace("print(", "print(F.low, F.high, ")
    assert printed(run(text, ["low=10", "high=20", "steps=1"])).startswith("10 20 ")


def test_flags_of_absl_take_hyperparameters(run):
    hyperparameters = [
        "learning-rate=0.5", "steps=10", "augment=true", "layers=[3, 4]", "optimizer=adam", "verbosity=3",
    ]
    assert printed(run(ABSL, hyperparameters)) == "0.5 10 True ['3', '4'] adam 0"


def test_options_of_click_take_hyperparameters(run):
    hyperparameters = ["lr=0.5", "steps=10", "augment=true", "layers=[3, 4]", "optimizer=adam"]
    assert printed(run(CLICK, hyperparameters)) == "0.5 10 True [3, 4] adam"


def test_switches_of_click_with_values(run):
    text = """
import click
@click.command()
@click.option("--upper", "transformation", flag_value="upper", default=True)
@click.option("--lower", "transformation", flag_value="lower")
def main(transformation):
    print(transformation)
main()
"""
    assert printed(run(text, ["transformation=lower"])) == "lower"


@pytest.mark.parametrize("text", [ARGPARSE, ABSL, CLICK], ids=["argparse", "absl", "click"])
def test_without_hyperparameters_nothing_is_there(run, text):
    ended = run("import argparse\nbefore = argparse.ArgumentParser.parse_known_args\n"
                "assert not hasattr(before, '_pedl_original')\n" + text, [], "--steps", "1")
    printed(ended)


AMBIGUOUS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", dest="rate")
parser.add_argument("--speed", dest="lr")
parser.add_argument("--batch-size")
parser.add_argument("--batch_size", dest="other")
parser.parse_args()
print("parsed")
"""


@pytest.mark.parametrize(("hyperparameters", "expected"), [
    (
        ["batch_size=1"],
        "pedl: error: the hyperparameter `batch_size` names 2 options: `--batch-size`, `--batch_size`\n"
        "  the script was stopped before it read its command line\n"
        "hint: name the hyperparameter as one of them is spelled\n",
    ),
    (
        ["lr=1", "rate=2"],
        "pedl: error: the hyperparameters `lr` and `rate` both name the option `--lr`\n"
        "  the script was stopped before it read its command line\n"
        "hint: leave one of them out\n",
    ),
], ids=["options", "hyperparameters"])
def test_what_is_ambiguous_stops(run, hyperparameters, expected):
    ended = run(AMBIGUOUS, hyperparameters)
    assert (ended.code, ended.stdout, ended.stderr) == (65, "", expected)


@pytest.mark.parametrize(("text", "hyperparameter", "expected"), [
    (ARGPARSE, "optimizer=rmsprop", "is `\"rmsprop\"`, and names the option `--optimizer` of the script\n"
                                    "  expected: one of 'sgd', 'adam'\n"),
    (ARGPARSE, "augment=3", "is `3`, and names the option `--augment` of the script\n  expected: true or false\n"),
    (ARGPARSE, "lr=fast", "  expected: a value that it takes: invalid float value: 'fast'"),
    (ARGPARSE, "lr=[1, 2]", "  expected: one value, as the option takes\n"),
    (ARGPARSE, "layers=[1, \"x\"]", "  expected: a value that it takes: invalid int value: 'x'"),
    (ABSL, "learning_rate=fast", "is `\"fast\"`, and names the option `--learning_rate` of the script\n"),
], ids=["choices", "switch", "type", "list", "item", "absl"])
def test_a_value_that_does_not_fit_stops(run, text, hyperparameter, expected):
    ended = run(text, [hyperparameter, "steps=1"])
    assert ended.code == 65
    assert ended.stdout == ""
    assert ended.stderr.startswith(f"pedl: error: the hyperparameter `{hyperparameter.partition('=')[0]}` ")
    assert expected in ended.stderr


def test_the_librarys_own_error_is_for_what_only_it_can_tell(run):
    ended = run(
        "import argparse\n"
        "def even(text):\n"
        "    print('asked')\n"
        "    if int(text) % 2: raise argparse.ArgumentTypeError(text + ' is odd')\n"
        "    return int(text)\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=even)\n"
        "parser.parse_args()\n",
        ["width=3"],
    )
    assert (ended.code, ended.stdout) == (2, "asked\n")
    assert "argument --width: 3 is odd" in ended.stderr


@pytest.mark.stack("keras3", "keras2")
def test_what_was_taken_is_said_when_training_begins(run):
    ended = run(TRAIN, ["units=3", "unheard_of=1"]).check()
    assert ended.stdout.splitlines()[-1] == "3"
    assert ended.stderr.count("pedl: hyperparameter units=3 is the default of the option `--units`\n") == 1
