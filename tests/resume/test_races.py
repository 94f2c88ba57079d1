"""Trainings in which ops of one run use a variable in no order: `--exact` orders them, and a kill changes nothing.

There are more tests of them, with three undisturbed trainings, one of them on a busy machine:
`cargo dev sessions --kind average` and so on (tests/campaigns/sessions.py). Which ops these are:
tests/hooks/test_races_in_graphs.py.
"""

import pytest
import support

pytestmark = pytest.mark.stack("keras2-tensorflow1")

SCRIPT = support.SCRIPTS / "unordered.py"
CALLS = 120


@pytest.fixture
def run_of(script_run, tmp_path):
    """A function that makes a run with the same seeds as all others."""

    def make(*arguments, options=(), pause="0.002"):
        file = tmp_path / "seeds.yaml"
        file.write_text(support.seeded_configuration(20, 10))
        return script_run(SCRIPT, *arguments, options=["--config", file, *options], environment={"PAUSE": pause})

    return make


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [(("average", CALLS), "hidden/bias"), (("layer", CALLS), "warm_1/count")],
    ids=["session", "keras"],
)
def test_ops_that_race_have_an_order_with_exact(run_of, arguments, variable):
    expected = run_of(*arguments, options=["--exact"], pause="0").run().check()
    assert "exact resume: yes" in expected.stderr
    assert f"reads the variable `{variable}`, and" in expected.stderr
    assert expected.stderr.count("--exact imposes an order on ops of one run") == 1
    run = run_of(*arguments, options=["--exact", "--checkpoint-batches", "71"])
    run.kill_at_checkpoints(71)
    assert run.run().check().hashes == expected.hashes
    assert run.trial.count("resumed") == 1


def test_ops_that_race_are_a_cause_without_exact(run_of):
    ended = run_of("counter", 40, options=["--checkpoint-batches", "33"]).run().check()
    (line,) = [line for line in ended.stderr.splitlines() if "exact resume: no" in line]
    assert "ops of one run have no order: `" in line
    assert "` reads the variable `count`, and `AssignAdd` writes it, and 1 more pair; `--exact` imposes one" in line
    assert "checkpoints are taken all the same" in line
