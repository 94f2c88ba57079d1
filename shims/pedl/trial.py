"""The trial that the script runs in."""
from pedl._context import context


def get_trial_id():
    """The number of this trial in its experiment, from 1.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["trial_id"]


def get_trial_seed():
    """The seed of this trial: 0 to 2**31 - 1, drawn at random once and kept over restarts.

    Raises:
        NotUnderHost: the script does not run under pedl-run.
    """
    return context()["trial_seed"]
