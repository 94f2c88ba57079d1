"""The trial as the host describes it: one JSON object in the environment, so that child processes know it too."""
from __future__ import annotations

import json
import os
import sys

from pedl.errors import NotUnderHost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol, TypedDict

    from pedl.frameworks.keras.data import KerasDataAdapter

    class Batches(Iterator[Any], Protocol):
        """What builds the batches of a `KerasDataAdapter`."""

        def close(self) -> None:
            """No more are taken."""

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


def start_batches(adapter: KerasDataAdapter, offset: int, is_validation: bool) -> Batches:
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


def _script() -> str:
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
            f"  start it with: pedl-run --hp NAME=VALUE {_script()}"
        )
    return json.loads(text)
