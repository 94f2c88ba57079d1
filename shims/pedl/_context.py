"""The trial as the host describes it: one JSON object in the environment, so that child processes know it too."""
import json
import os
import sys

from pedl.errors import NotUnderHost

VARIABLE = "PEDL_CONTEXT"


def start_batches(adapter, offset, is_validation):
    """Begins to build the batches of a `KerasDataAdapter`. The host replaces this function in the process that trains.

    Raises:
        NotUnderHost: always.
    """
    if VARIABLE in os.environ:
        raise NotUnderHost(
            "KerasDataAdapter builds batches in the process that trains; this is another one, which the script has started\n"
            "  start the adapter in the script itself"
        )
    raise NotUnderHost(
        "KerasDataAdapter builds batches in the process of a trial, and this script does not run under pedl-run\n"
        f"  start it with: pedl-run {_script()}"
    )


def _script():
    return sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "train.py"


def context():
    """The trial's id, seed, experiment and hyperparameters.

    Raises:
        NotUnderHost: the script was started by python itself.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        raise NotUnderHost(
            "this script asks `pedl` about its trial, but it does not run under pedl-run\n"
            f"  start it with: pedl-run --hp NAME=VALUE {_script()}"
        )
    return json.loads(text)
