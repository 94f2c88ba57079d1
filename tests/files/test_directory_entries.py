"""Files that a script moves, links, changes and removes: after any kill they are the same as under plain Python."""

import os

import pytest
import support

SCRIPT = support.SCRIPTS / "directory_entries.py"
# Ten batches an epoch.
OPTIONS = ["--exact", "--checkpoint-batches", "25,65"]


@pytest.fixture
def changing(script_run):
    """A function that makes a run of the script, with all files that exist before it."""

    def make():
        run = script_run(SCRIPT, options=OPTIONS)
        folder = run.directory
        for name in ("inbox", "output/deep", "plans"):
            (folder / name).mkdir(parents=True)
        (folder / "inbox" / "1.csv").write_text("".join(f"{number / 40}\n" for number in range(20)))
        (folder / "inbox" / "2.csv").write_text("".join(f"{number / 40}\n" for number in range(20, 40)))
        for name in ("output/weights.h5", "output/deep/old.txt", "plans/a.txt", "state.txt", "stale.txt", "notes.txt"):
            (folder / name).write_text(f"of before: {name}\n")
        (folder / "log-of-before.txt").write_text("of before\n" * 4)
        (folder / "counts.dat").write_bytes(bytes(32))
        (folder / "output" / "weights.h5").chmod(0o640)
        run.environment["HOLDS"] = f"{folder}.holds"
        return run

    return make


def tree_of(run):
    """All files in the run's directory: modes, contents, links, and the names of each file."""
    found = {}
    for path in sorted(run.directory.rglob("*")):
        name = str(path.relative_to(run.directory))
        if name.split(os.sep)[0] == ".pedl":
            continue
        status = path.lstat()
        held = os.readlink(str(path)) if path.is_symlink() else path.is_file() and path.read_bytes()
        found[name] = (status.st_mode, held, status.st_nlink if path.is_file() else 0)
    return found


@pytest.mark.stack("keras3-jax")
def test_entries_of_directories_are_those_of_plain_python_after_any_kill(changing):
    undisturbed, run = changing(), changing()
    undisturbed.python().check()
    holds = run.directory.parent / (run.directory.name + ".holds")
    for epoch, checkpoint in ((4, 25), (8, 65)):
        run.environment["HOLD_AT"] = str(epoch)
        running = run.start()
        running.wait_until(lambda: holds.exists() and run.trial.checkpoint == checkpoint)  # noqa: B023
        running.kill_everything()
        holds.unlink()
    run.environment["HOLD_AT"] = "-1"
    ended = run.run().check()
    assert "exact resume: yes" in ended.stderr
    assert run.trial.count("resumed") == 2
    found, expected = tree_of(run), tree_of(undisturbed)
    # Names of temporary files differ from one run to the next.
    for tree in (found, expected):
        assert sum(1 for name in tree if name.startswith("output/")) == 2
    # The trial has another name of each file that it keeps.
    kept = {name: (mode, held) for name, (mode, held, _) in found.items()}
    assert kept == {name: (mode, held) for name, (mode, held, _) in expected.items()}
    first, done = (run.directory / name for name in ("first.csv", "done/1.csv"))
    assert first.samefile(done)
    assert not (run.directory / "inbox").samefile(run.directory / "done")
