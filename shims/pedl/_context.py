"""The trial as the host describes it: one JSON object in the environment, so that child processes know it too."""
from __future__ import annotations

import json
import os
import sys

from pedl.errors import NotUnderHost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class _OfAnyTrial(TypedDict):
        trial_id: int
        experiment_id: int
        trial_seed: int
        hyperparameters: dict[str, Any]
        configuration: dict[str, Any] | None
        batches_per_step: int

    class Context(_OfAnyTrial, total=False):
        """The trial: `src/host/supervisor/child.rs`, or `pedl.local`."""

        # Of a model definition, a dict with the name of its one module; else None.
        definition: Any
        # Of several processes that train one model, a dict (`src/host/supervisor/ranks.rs`); else None.
        ranks: Any
        # Once `download_data` was called.
        download_data_dir: str

VARIABLE = "PEDL_CONTEXT"


def script() -> str:
    """The script as a user types it, for messages."""
    return sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "train.py"


def context() -> Context:
    """The trial's id, seed, experiment and hyperparameters.

    Raises:
        NotUnderHost: the script was started by python itself.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        raise NotUnderHost(
            "this script asks `pedl` about its trial, but it does not run under pedl-run\n"
            f"  start it with: pedl-run --hp NAME=VALUE {script()}"
        )
    return json.loads(text)
