"""The kinds of recorded calls, as `calls.log` has them (`src/core/calls/record.rs`; a test compares the two)."""

TRAIN, TEST, PREDICT, METRICS, READ, WRITE, COMPOSITE, ENTRY = 1, 2, 3, 4, 5, 6, 7, 8

# Lowest bit of a compute call's `arguments`: the call traced. The other bits are a checksum of the batch, if the script
# itself passed one.
TRACED = 1
