"""Why a session cannot be resumed exactly."""
from __future__ import annotations

import os

from py_hooks import causes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def causes_of(session: Any) -> list[causes.Told]:
    """The causes in a session: what cannot be resumed exactly."""
    found = []
    if not runs_one_at_a_time(session):
        found.append(causes.SEVERAL_AT_ONCE())
    kinds = sorted({device.device_type for device in session.list_devices()} - {"CPU", "XLA_CPU"})
    if kinds:
        found.append(causes.DEVICE(device=", ".join(kinds)))
    return found


def runs_one_at_a_time(session: Any) -> bool:
    """Whether a session runs one operation at a time: only then does a run on the CPU repeat."""
    given = session._config.inter_op_parallelism_threads if session._config is not None else 0
    return (given or os.environ.get("TF_NUM_INTEROP_THREADS")) in (1, "1")
