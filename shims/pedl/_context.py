"""The trial as the host describes it: one JSON object in the environment, so that child processes know it too."""
import json
import os
import sys

from pedl.errors import NotUnderHost

VARIABLE = "PEDL_CONTEXT"


def context():
    """The trial's id, seed, experiment and hyperparameters.

    Raises:
        NotUnderHost: the script was started by python itself.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        script = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "train.py"
        raise NotUnderHost(
            "this script asks `pedl` about its trial, but it does not run under pedl-run\n"
            f"  start it with: pedl-run --hp NAME=VALUE {script}"
        )
    return json.loads(text)
