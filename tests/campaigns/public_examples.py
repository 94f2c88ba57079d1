"""Runs one definition of the public examples, unchanged: undisturbed, and killed half-way and started again.

    python -m campaigns.public_examples --definition JSON --checkout DIR --revision COMMIT --directory DIR --results FILE

Started by `cargo dev examples` with the Python of a stack; `--definition` is an entry of `public_examples.toml`. The files
of the definition are copied from the checkout. They find substitutes for their data by `PYTHONPATH` (`public_examples/`),
and have a separate home directory.

1. One training runs undisturbed, with `--exact`. If that is refused, the cause is printed, and the rest runs without it.
2. Another one is killed by SIGKILL, all of its processes at once, once a checkpoint is written that was taken half-way,
   and started again. It must continue from there, and be equal: each tensor of the checkpoint after the last batch
   (weights, optimizer, random states) and the metrics of each step and validation.

A definition with a `reason` is run once, and must fail for that reason. A definition that is in the results file is not
run again.
"""

import argparse
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import support

from campaigns import everything

DOUBLES = support.ROOT / "tests" / "campaigns" / "public_examples"

SEED = "\nreproducibility: {experiment_seed: 7}\n"

# A folder that a definition writes to, and that existed before without this file, belongs to somebody else.
MARKER = ".of-cargo-dev-examples"

COLUMNS = "{:<46} {:<18}  {}\n"

REFUSED = 77
_CAUSE = re.compile(r"this run cannot be resumed exactly: (.*)")


class DidNotRun(Exception):
    """A run that ended in an unexpected way."""


class Definition:
    """One definition and its runs."""

    def __init__(self, entry, arguments):
        self.entry = entry
        self.half = entry["steps"] // 2 * entry["batches_per_step"]
        self.batches = entry["steps"] * entry["batches_per_step"]
        self._arguments = arguments
        self._runs = []

    def run(self, name, is_exact):
        """A run in a separate directory; nothing is started yet."""
        self._clear_what_it_leaves()
        directory = self._arguments.directory / name
        shutil.rmtree(str(directory), ignore_errors=True)
        files = self._files(directory / "definition")
        file = directory / "configuration.yaml"
        text = without((files / self.entry["configuration"]).read_text(), self.entry["without"])
        file.write_text(text if "experiment_seed" in text else text + SEED)
        options = ["--config", file, "--steps", self.entry["steps"]]
        options += ["--batches-per-step", self.entry["batches_per_step"], "--max-restarts", 0]
        options += ["--trial-dir", directory / "trial"]
        options += ["--checkpoint-batches", f"{self.half},{self.batches}", *(["--exact"] if is_exact else [])]
        run = support.ScriptRun(directory / "run", files, [], options, self._environment(directory / "home"))
        run.trial = support.Trial(directory / "trial")
        self._runs.append(run)
        return run

    def _files(self, directory):
        """Writes the files of the revision there; returns the folder of the definition."""
        command = ["git", "-C", str(self._arguments.checkout), "archive", self._arguments.revision, self.entry["name"]]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(str(directory))
        return directory / self.entry["name"]

    def _environment(self, home):
        home.mkdir()
        folders = [DOUBLES, *([self._arguments.packages] if self._arguments.packages else [])]
        return {
            "HOME": str(home),
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": ":".join(map(str, folders)),
            "PUBLIC_EXAMPLES_DATA": str(self._arguments.data),
        }

    def _clear_what_it_leaves(self):
        """Removes the folders that earlier runs have left, and makes them again."""
        for name in self.entry["leaves"]:
            folder = Path(name)
            if folder.exists() and not (folder / MARKER).exists():
                raise DidNotRun(f"{folder} is there, and was not made by this program; remove it")
            shutil.rmtree(str(folder), ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / MARKER).touch()

    def close(self):
        """Ends the processes that still run, and removes the files that the definition left."""
        for run in self._runs:
            run.close()
        for name in self.entry["leaves"]:
            if (Path(name) / MARKER).exists():
                shutil.rmtree(name)


def without(text, sections):
    """A configuration without these top-level sections."""
    for name in sections:
        text, count = re.subn(rf"^{name}:.*\n(?:[ #].*\n)*", "", text, flags=re.MULTILINE)
        assert count == 1, name
    return text


def tensors_of(run, batch):
    """The tensors of a checkpoint: types, shapes and hashes by name."""
    command = [support.executable(), "--pedl", "checkpoint", "show", str(run.trial.directory)]
    command += ["--checkpoint", str(batch), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    tensors = json.loads(done.stdout.decode())["manifest"]["tensors"]
    return {one["name"]: (one["dtype"], one["shape"], one["blake3"]) for one in tensors}


def metrics_of(run):
    """The metrics of each step and validation, in order. If one was repeated after a kill, it is included once."""
    found = {}
    for event in run.trial.events:
        if event["event"] in ("step", "validation"):
            found[event["event"], event.get("batch") or tuple(event["batches"])] = event["metrics"]
    return found


def differing(one, other):
    """The names whose values differ between the dicts."""
    return [str(name) for name in {**one, **other} if one.get(name) != other.get(name)]


def make_data(entry, arguments):
    """Makes the files that a definition downloads, if they do not exist."""
    command = [sys.executable, str(DOUBLES / "public_data.py"), str(arguments.data), *entry["data"]]
    done = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise DidNotRun("its data was not made: " + done.stderr.decode()[-300:])


def ended_well(run, ended):
    """Fails with the last lines that a run printed, unless it finished."""
    if ended.code != 0:
        said = [line for line in ended.stderr.splitlines() if line.strip()][-6:]
        raise DidNotRun("it ended with {}: {}".format(ended.code, " / ".join(said)))
    return run


def run_undisturbed(definition):
    """The run that the killed one is compared with, and the cause why it is not exact, or None."""
    run = definition.run("undisturbed", is_exact=True)
    ended = run.run()
    if ended.code != REFUSED:
        return ended_well(run, ended), None
    cause = _CAUSE.search(ended.stderr).group(1)
    run = definition.run("without", is_exact=False)
    return ended_well(run, run.run()), cause


def run_definition(definition):
    """The outcome of a definition: the words of its line."""
    if "reason" in definition.entry:
        return run_to_its_reason(definition)
    undisturbed, cause = run_undisturbed(definition)
    expected = tensors_of(undisturbed, definition.batches), metrics_of(undisturbed)
    assert expected[0] != tensors_of(undisturbed, definition.half), "it learned nothing in its second half"
    killed = definition.run("killed", is_exact=cause is None)
    running = killed.start()
    if running.ends_before(lambda: (killed.trial.checkpoint or 0) >= definition.half) is not None:
        raise DidNotRun("it ended before it could be killed")
    running.kill_everything()
    ended_well(killed, killed.run())
    resumed = [event["batch"] for event in killed.trial.events if event["event"] == "resumed"]
    if resumed != [definition.half]:
        raise DidNotRun(f"it was killed after batch {definition.half}, and resumed after {resumed}")
    words = f"runs unchanged: {definition.batches} batches, killed after {definition.half}, resumed"
    if cause is not None:
        return f"{words}; not exact: {cause}"
    found = tensors_of(killed, definition.batches), metrics_of(killed)
    different = differing(expected[0], found[0]) + differing(expected[1], found[1])
    if different:
        raise DidNotRun("after the resume these are others: {}".format(", ".join(different[:5])))
    return f"{words}, equal ({len(expected[0])} tensors, metrics {len(expected[1])} times)"


def run_to_its_reason(definition):
    """Runs a definition that does not train, and checks that it gives the reason."""
    ended = definition.run("undisturbed", is_exact=False).run()
    if ended.code == 0 or definition.entry["says"] not in ended.stderr:
        raise DidNotRun("expected `{}`, got {!r:.600}".format(definition.entry["says"], ended))
    return "does not run: " + definition.entry["reason"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--definition", required=True, type=json.loads)
    parser.add_argument("--checkout", required=True, type=Path)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--results", required=True, type=Path)
    arguments = parser.parse_args()

    entry = arguments.definition
    done = everything.read_results(arguments.results)
    key = (json.dumps(entry, sort_keys=True),)
    if key not in done:
        outcome = _outcome(entry, arguments)
        done[key] = {"cell": key, "outcome": outcome}
        everything.keep_result(arguments.results, done[key])
    outcome = done[key]["outcome"]
    configuration = "{name}/{configuration}".format(**entry)
    sys.stdout.write(COLUMNS.format(configuration, entry["stack"], outcome))
    return 1 if outcome.startswith("FAILED") else 0


def _outcome(entry, arguments):
    """Runs a definition. If it fails, the others still run, and its files are kept."""
    definition = Definition(entry, arguments)
    try:
        make_data(entry, arguments)
        outcome = run_definition(definition)
    except (DidNotRun, AssertionError, subprocess.CalledProcessError) as error:
        return f"FAILED: {error!s:.600}"
    finally:
        definition.close()
    shutil.rmtree(str(arguments.directory))
    return outcome


if __name__ == "__main__":
    raise SystemExit(main())
