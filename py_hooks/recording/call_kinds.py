"""The kinds of recorded calls, as `calls.log` has them (`src/core/calls/record.rs`)."""
from __future__ import annotations

from py_hooks.border import Kind

TRAIN, TEST, PREDICT, METRICS, READ = Kind.TRAIN, Kind.TEST, Kind.PREDICT, Kind.METRICS, Kind.READ
WRITE, COMPOSITE, ENTRY = Kind.WRITE, Kind.COMPOSITE, Kind.ENTRY

# Lowest bit of a compute call's `arguments`: the call traced. The other bits are a checksum of the batch, if the script
# itself passed one.
TRACED = Kind.TRACED
