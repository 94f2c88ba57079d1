"""A torch `DataLoader` with worker processes: its batches come from the pool, the same with any workers (issue 6)."""

import pytest
import support

pytestmark = pytest.mark.stack("keras3-torch")

SCRIPT = support.SCRIPTS / "torch_loader.py"

EPOCHS, BATCHES, ROWS = 3, 12, 90

CONFIGURATION = support.seeded_configuration(BATCHES, EPOCHS)


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run with this many workers."""

    def make(workers, *words, seed=7, **settings):
        file = tmp_path / f"seeds-{seed}.yaml"
        file.write_text(CONFIGURATION.replace("experiment_seed: 7", f"experiment_seed: {seed}"))
        options = ["--config", file, "--exact"] + settings.pop("options", [])
        return script_run(SCRIPT, workers, *words, options=options, **settings)

    return make


def builders_of(run):
    """The processes that built samples, and how many samples they built."""
    lines = (run.directory / "built.txt").read_text().split()
    return set(lines), len(lines)


WAYS = [(), ("own",), ("own", "info"), ("persistent",), ("single",), ("twice",), ("endless",), ("behind", "changes")]


@pytest.mark.parametrize("words", WAYS, ids="-".join)
def test_what_is_delivered_is_the_same_with_any_workers(run_of, words):
    runs = [run_of(workers, *words) for workers in (1, 2, 3)]
    ends = [run.run().check() for run in runs]
    assert ends[0].hashes == ends[1].hashes == ends[2].hashes
    drawn = [line for line in ends[0].stdout.splitlines() if line.startswith("DRAWN")]
    assert all(drawn[0] in end.stdout for end in ends), "what the script draws afterwards"
    if "own" in words:
        begun = [(run.directory / "begun.txt").read_text().split() for run in runs]
        assert [sorted(one) for one in begun] == [["0"], ["0", "1"], ["0", "1", "2"]]


def test_workers_live_through_a_fit_and_know_who_they_are(run_of):
    run = run_of(2, "info")
    run.run().check()
    builders, count = builders_of(run)
    # One of them is the trainer, which builds a batch a second time to check it for `--exact`.
    assert len(builders) <= 3
    # Up to four batches of the pass that built the model.
    assert EPOCHS * ROWS <= count <= EPOCHS * ROWS + (3 + 4) * 8


def test_a_worker_that_dies_is_replaced_and_its_batch_built_again(run_of):
    whole = run_of(2).run().check()
    ended = run_of(2, "kill").run().check()
    assert "was ended by SIGKILL while it built item" in ended.stderr
    assert ended.hashes == whole.hashes


def test_what_a_sample_raises_is_raised_where_its_batch_is_asked_for(run_of):
    ended = run_of(2, "raise").run().check(1)
    assert "ValueError: sample 17 is broken" in ended.stderr
    assert "pedl-run bug" not in ended.stderr


@pytest.mark.parametrize(("workers", "words"), [("1", ()), ("3", ("own",)), ("2", ("behind", "changes"))])
def test_a_trial_goes_on_with_another_number_of_workers(run_of, workers, words):
    whole = run_of(2, *words).run().check()
    run = run_of("-", *words, options=["--checkpoint-seconds", "0.05"], environment={"WORKERS": "2"})
    run.start_and_kill()
    built = builders_of(run)[1]
    run.environment["WORKERS"] = workers
    ended = run.run().check()
    assert ended.hashes == whole.hashes
    assert run.trial.count("resumed") == 1
    if not words:
        assert builders_of(run)[1] - built < EPOCHS * ROWS, "a replay builds nothing that was trained on"


def drawn(ended):
    """The lines in which a script prints its random numbers and the hash of what it has learned."""
    return [line for line in ended.check().stdout.splitlines() if line.startswith(("DRAWN", "HASH"))]


@pytest.mark.parametrize("word", ["unseeded", "entropy"])
def test_a_script_without_seeds_goes_on_with_the_numbers_of_its_trial(run_of, word):
    """What torch draws from the operating system on import belongs to the trial, and so do all numbers derived from it."""
    # Without workers the data set draws from the streams of the script, so it gets other numbers.
    wholes = {workers: drawn(run_of(workers, word).run()) for workers in (0, 2)}
    for workers, whole in wholes.items():
        run = run_of(workers, word, options=["--checkpoint-seconds", "0"])
        run.start_and_kill(lambda: run.trial.checkpoint >= 8)  # noqa: B023
        run.start_and_kill(lambda: run.trial.checkpoint >= 20)  # noqa: B023
        assert drawn(run.run()) == whole
        assert run.trial.count("resumed") == 2
    assert drawn(run_of(2, word, seed=8).run()) != wholes[2]


DRAWING = ["-", "nested", "helper", "lambda", "activation", "loss", "metric", "epoch", "within", "global"]


@pytest.fixture
def drawing_run(script_run, tmp_path):
    """A function that makes a run of the layers that draw."""
    file = tmp_path / "seeds.yaml"
    file.write_text(CONFIGURATION)
    return lambda *words, options=(): script_run(
        support.SCRIPTS / "drawing_layers.py", *words, options=["--config", file, *options]
    )


@pytest.mark.parametrize("word", DRAWING)
def test_layers_whose_python_draws_for_every_batch_go_on_with_the_same_numbers(drawing_run, word):
    run = drawing_run(word, options=["--exact", "--checkpoint-seconds", "0"])
    for batch in (12, 21):
        run.start_and_kill(lambda: run.trial.checkpoint >= batch)  # noqa: B023
    assert drawn(run.run()) == drawn(drawing_run(word, options=["--exact"]).run())
    assert run.trial.count("resumed") == 2


def test_a_layer_that_makes_its_generator_while_it_computes_is_told(drawing_run):
    cause = "a layer makes a generator of random numbers while it computes"
    assert f"exact resume: no: {cause}; no checkpoints are taken" in drawing_run("makes").run().check().stderr
    assert f"this run cannot be resumed exactly: {cause}" in drawing_run("makes", options=["--exact"]).run().check(77).stderr


def test_what_the_script_changes_reaches_the_workers(run_of):
    ends = [run_of(workers, "changes").run().check() for workers in (1, 2)]
    assert ends[0].hashes == ends[1].hashes
    unchanged = run_of(2).run().check()
    assert ends[0].hashes != unchanged.hashes


def test_what_is_changed_within_an_epoch_is_told_after_a_kill(run_of):
    run = run_of(2, "within", options=["--checkpoint-batches", "20"])
    running = run.start()
    running.wait_until(lambda: run.trial.checkpoint == 20)
    running.kill_everything()
    ended = run.run().check(77)
    assert run.trial.count("resumed") == 1
    assert "the data set `Data` changes its attribute `scale` while its items are built" in ended.stderr


def test_a_data_set_without_indices_is_left_to_torch(script_run):
    ended = script_run(SCRIPT, 2, "iterable").run().check()
    assert "EPOCH 2" in ended.stdout
