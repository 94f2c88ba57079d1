"""The sizes of batches in records: an answered call has no batch, and its source must still count its rows."""
from __future__ import annotations

from py_hooks.recording import call_kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from py_hooks.recording.recorder import Calls

_KINDS = (call_kinds.TRAIN, call_kinds.TEST, call_kinds.PREDICT)

# Marks `arguments` as the size of a batch that the framework fed; a checksum of a batch that the script passed has 32 bits.
SIZE = 1 << 40


def recorded_batch_size(calls: Calls) -> int:
    """How many rows the batch of the next answered call has; 0 if the next record is no such call, or a first one."""
    record = calls.next_record()
    if record is None or record[0] not in _KINDS or not record[2] & SIZE or record[2] & call_kinds.TRACED:
        return 0
    return (record[2] & ~SIZE) >> 1
