"""What the training loops of trial classes ask of the process that trains: the types of a `TrialHost` and of its parts.

pedl-run has one (`py_hooks/boot/trial_host.py`), and `pedl.local` another one (`pedl/_local/host.py`).
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    class TrialHost(Protocol):
        """The process that trains: counts batches, knows what is due, and records calls."""

        @property
        def seed(self) -> int:
            """The seed of the trial."""

        @property
        def directory(self) -> str:
            """The trial directory."""

        @property
        def work_directory(self) -> str:
            """A folder in which the framework may write for the trial."""

        @property
        def bounds_fits(self) -> bool:
            """Whether the number of batches of a `fit` is that of the plan, whatever its arguments say."""

        @property
        def batches(self) -> int:
            """How many batches were trained so far."""

        @property
        def batches_left(self) -> int:
            """How many batches the plan still has."""

        @property
        def is_validation_due(self) -> bool:
            """Whether the model is to be validated before the next batch."""

        @property
        def of_step(self) -> list[dict[str, Any]] | None:
            """The metrics of each batch of the step that ended last, by the framework's names; None if they are not known."""

        def say(self, text: str) -> None:
            """Prints a line for the user."""

        def described(self) -> dict[str, str]:
            """Texts that describe the definition, by what they describe."""

        def saved_by(self, save: Callable[[str], str]) -> None:
            """Sets `save(directory)`, which saves the trained model, and returns the path that the framework reads."""

        def untracked(self) -> AbstractContextManager[object]:
            """Within it, nothing counts as made by the trial."""

        def begin(self, causes: Iterable[Any] = ()) -> None:
            """The loop begins. It may have causes why it cannot be resumed exactly."""

        def begin_in(self, session: Any) -> None:
            """The loop begins. It trains in a session of TensorFlow, or in others that are configured like it."""

        def loop(self) -> AbstractContextManager[object]:
            """Within it, the trial trains."""

        def train(self, live: Callable[[int], Any], skip: Callable[[], object]) -> Any:
            """Trains a batch: calls `live(number)`, or `skip()` if it was trained before. Returns what `live` returned."""

        def validate(self, live: Callable[[], Any]) -> Any:
            """Validates the model. Returns what `live` returned."""

        def validated(self, scalars: Sequence[tuple[str, float]]) -> None:
            """The model was validated, with these metrics."""

        def heed_signal(self) -> None:
            """Called after a run that trains nothing: a signal that asks for the end acts here."""

        def keep_batches(self) -> None:
            """Has the metrics of each batch kept, for `of_step`."""

        def watch_validations(
            self, begins: Callable[[], object], ended: Callable[[Sequence[tuple[str, float]]], list[tuple[str, float]]]
        ) -> None:
            """Has the plan's validations of a fit reported: `ended` returns metrics by the names that the trial gave."""

        def name_metrics_of_runs(self, graph: Any, names: dict[str, str]) -> None:
            """The trial trains by runs of a session. Names its metrics by the tensors that the runs fetch."""

        def keep_graph(self, graph: Any, record: Any, is_training: Any, outputs: dict[str, Any]) -> None:
            """Checkpoints keep the graph of the trial, for exports."""

        def export_with_checkpoints(self, folders: list[str], export: Callable[[], object]) -> None:
            """Has folders written anew for each checkpoint, as parts of it."""

        def of_torch(self, ranks: Any = None) -> OfTorch:
            """What else the loops of PyTorch need."""

        def of_tensorflow(self, ranks: Any) -> RanksOfTensorFlow:
            """The ranks that train a model of `tf.keras`."""

        def finish(self) -> None:
            """The last batch was trained. May be called again."""

        def validate_on(self, data: Any) -> None:
            """Runs the plan's validations of a fit on data that the fit did not get."""

    class Ranks(Protocol):
        """The processes that train one model, as one of them sees them."""

        @property
        def size(self) -> int:
            """The number of ranks."""

        @property
        def rank(self) -> int:
            """The number of this one."""

        def guard(self) -> AbstractContextManager[object]:
            """If a rank is lost within it, this one ends too, with a message."""

        def with_guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
            """A function that calls this one within `guard`."""

    class RanksOfTensorFlow(Ranks, Protocol):
        """Those of `py_hooks/tensorflow/ranks.py`."""

        def scope(self) -> AbstractContextManager[object]:
            """Within it, variables are made for all ranks."""

        def adopt(self, model: Any) -> bool:
            """Whether the model is one of all ranks."""

    class RanksOfTorch(Ranks, Protocol):
        """Those of `py_hooks/torch/ranks.py`."""

        def device(self) -> Any:
            """The device on which this rank trains."""

        def wrapped(self, model: Any, device: Any) -> Any:
            """The model to train with: gradients of what it computes are averaged over the ranks."""

        def compare_resumption(self) -> None:
            """Ends the process if the ranks do not resume from the same call."""

        def level(self, model: Any, wrapped: Any, measured: dict[str, Any]) -> dict[str, Any]:
            """Called after a batch. Returns the metrics, numbers as means of all ranks."""

        def share(self, live: Callable[[], Any]) -> Any:
            """What `live()` returns on rank 0, which alone calls it."""

    class OfTorch(Protocol):
        """Random numbers, data and states for the loop of a `PyTorchTrial` (`py_hooks/torch/trials.py`)."""

        @property
        def ranks(self) -> RanksOfTorch:
            """The processes that train the model."""

        @property
        def of_batch(self) -> Callable[[int], Drawing]:
            """Called with the number of a batch: within what it returns, all draws are of streams of this batch."""

        def compare(self, described: dict[str, str]) -> None:
            """Called before training: checks that all ranks train the same."""

        def causes(self) -> list[Any]:
            """What cannot be repeated exactly."""

        def provide(self, trial: Any, model: Any, optimizer: Any, scheduler: Any, others: Any) -> None:
            """Called before training: checkpoints keep these objects."""

        def alone(self, *key: object) -> AbstractContextManager[object]:
            """Within it, all draws are of streams of the key."""

        def passes(self, loader: Any, is_shared: bool = False) -> Passes:
            """The passes over a loader; if it is shared, each rank has its share of the batches."""

    class Drawing(Protocol):
        """`with`: a batch is trained."""

        def __enter__(self) -> Drawing: ...
        def __exit__(self, *exception: Any) -> None: ...
        def compute(self) -> None:
            """The data of the batch has been taken."""

    class Passes(Protocol):
        """The passes over a `DataLoader`, one after another."""

        @property
        def loader(self) -> Any:
            """The user's loader."""

        @property
        def length(self) -> int | None:
            """How many batches a pass has; None if that is not known."""

        def begin(self) -> Pass:
            """Begins a pass."""

        def end(self) -> None:
            """The pass is over."""

        def close(self) -> None:
            """No other pass begins."""

    class Pass(Iterator[Any], Protocol):
        """One pass. What `pedl.local` has for it has no `skip`, since nothing is replayed there."""

        def skip(self) -> object:
            """Leaves out the next batch."""
