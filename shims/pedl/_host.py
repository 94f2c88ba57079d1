"""The door from `pedl` to pedl-run: what scripts ask for and only the process that trains can do.

pedl-run sets `current` when this module is imported (`py_hooks/boot/process.py`), in each process that it has booted.
Everywhere else it is None: under python itself, and in other processes that the script starts.
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    from pedl._callbacks import Callbacks
    from pedl.frameworks.keras.data import KerasDataAdapter

    class Batches(Iterator[Any], Protocol):
        """What builds the batches of a `KerasDataAdapter`."""

        def close(self) -> None:
            """No more are taken."""

    class Host(Protocol):
        """The process of pedl-run."""

        def register_callbacks(self, callbacks: Callbacks) -> None:
            """Has callbacks called around the steps of the script.

            Raises:
                DefinitionError: training has begun, or a trial class runs.
            """

        def start_batches(self, adapter: KerasDataAdapter, offset: int, is_validation: bool) -> Batches:
            """Begins to build the batches of a `KerasDataAdapter`."""


current: Host | None = None
