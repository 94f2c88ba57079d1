"""The experiment that the trial belongs to."""
from pedl._context import context


def get_experiment_id():
    """The number of this experiment, from 1.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["experiment_id"]
