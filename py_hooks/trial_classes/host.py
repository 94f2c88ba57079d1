"""What this room asks of the process that trains, besides what all training loops ask (`shims/pedl/_loops/host.py`)."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    from pedl._loops.host import TrialHost

    class RecordingHost(TrialHost, Protocol):
        """The host of pedl-run (`py_hooks/boot/trial_host.py`), with what `pedl.local` has not."""

        def refuse(self, message: str, hint: str | None = None) -> None:
            """Ends the process for a mistake in the model definition."""

        def begin_in(self, session: Any, causes: Iterable[Any] = ()) -> None:
            """The loop begins; with other causes why it cannot be resumed exactly."""

        def fix_dataflow_seed(self) -> None:
            """Called before DataFlows of tensorpack are made: their random numbers come from the trial's seed."""

        def causes_of_dataflows(self, flows: Sequence[Any]) -> list[Any]:
            """What cannot be repeated in DataFlows: causes for `begin_in`."""

        def dataflow(self, flow: Any, is_cut: bool = False) -> DataFlowSource:
            """Batches of a DataFlow."""

        def feeds_vary(self, graph: Any) -> None:
            """Runs of a graph may get other feeds in a replay than they got before."""

    class DataFlowSource(Protocol):
        """The batches of a DataFlow, pass after pass."""

        def next(self) -> Any:
            """The next batch; None if a pass is over."""
