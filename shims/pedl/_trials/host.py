"""What runs a trial class: the process of a trial. The host puts its own in the place of this (`py_hooks/trials.py`)."""
from pedl.errors import NotUnderHost


def hosted(name):
    """What counts batches, records calls and takes checkpoints.

    Args:
        name: of the trial class.

    Raises:
        NotUnderHost: always.
    """
    raise NotUnderHost(f"the trial class `{name}` is run by pedl-run\n  start it with: pedl-run --config FILE DIRECTORY")
