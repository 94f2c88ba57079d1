"""What a source of batches returns for a batch that only an answered call would read."""
from __future__ import annotations


class SkippedBatch:
    """Replaces the arrays of a batch that nothing reads: it has a size, and nothing else."""

    def __init__(self, size: int) -> None:
        self.shape = (size,)

    def __len__(self) -> int:
        return self.shape[0]
