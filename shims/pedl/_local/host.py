"""The host of `pedl.local`: trains one step, records nothing, and has the framework itself save the trained model at the end."""
from __future__ import annotations

import contextlib
import importlib
import os
import sys

from pedl._local.one_process import OneProcess
from pedl._loops.steps import Steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from pedl._context import Context
    from pedl._loops.host import OfTorch


class LocalHost:
    """Replaces the host of pedl-run (`py_hooks/boot/trial_host.py`) for one step.

    Args:
        known: the context of the trial.
        directory: the folder where the trained model is saved.

    Attributes:
        steps: counts the batches.
        checkpoint: path of the saved model; None before.
        bounds_fits: False: the caller of a `fit` decides its length.
    """

    is_validation_due = False
    bounds_fits = False

    def __init__(self, known: Context, directory: str) -> None:
        self.seed = known["trial_seed"]
        self.work_directory = directory
        # The directory for downloads: another run of the same definition uses them again.
        self.directory = os.getcwd()
        self.checkpoint: Any = None
        self.steps: Any = None
        self._size = known["batches_per_step"]
        self._save: Any = None

    @property
    def batches(self) -> int:
        return self.steps.batches

    @property
    def batches_left(self) -> int:
        return max(0, self._size - self.batches)

    def say(self, text: str) -> None:
        sys.stderr.write(f"pedl: {text}\n")

    def saved_by(self, save: Callable[[str], str]) -> None:
        """Sets `save(directory)`, which saves the trained model, and returns the path that the framework reads."""
        self._save = save

    def finish(self) -> None:
        """The step is over; a loop may say so before its session is closed, and again after it."""
        if self.checkpoint is None:
            self.checkpoint = self._save(self.work_directory)

    # -- computing ------------------------------------------------------------------------------------------------------

    def train(self, live: Callable[[int], Any], _skip: Callable[[], object]) -> Any:
        return live(self.batches)

    def validate(self, live: Callable[[], Any]) -> Any:
        return live()

    def of_tensorflow(self, _ranks: Any = None) -> OneProcess:
        return OneProcess()

    def of_torch(self, _ranks: Any = None) -> OfTorch:
        return importlib.import_module("pedl._local.torch_training").Training()

    @staticmethod
    def untracked() -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    @staticmethod
    def loop() -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def export_with_checkpoints(self, _folders: list[str], export: Callable[[], object]) -> None:
        save = self._save

        def save_all(directory: str) -> str:
            path = save(directory)
            export()
            return path

        self._save = save_all

    # -- ignored here ---------------------------------------------------------------------------------------------------

    def described(self) -> dict[str, str]:
        return {}

    def begin(self, causes: Iterable[Any] = ()) -> None:
        pass

    def begin_in(self, session: Any) -> None:
        pass

    def name_metrics_of_runs(self, graph: Any, names: dict[str, str]) -> None:
        pass

    def keep_graph(self, graph: Any, record: Any, is_training: Any, outputs: dict[str, Any]) -> None:
        pass

    def heed_signal(self) -> None:
        pass

    of_step = None

    def keep_batches(self) -> None:
        pass

    def watch_validations(
        self, begins: Callable[[], object], ended: Callable[[Sequence[tuple[str, float]]], list[tuple[str, float]]]
    ) -> None:
        pass

    def validated(self, scalars: Sequence[tuple[str, float]]) -> None:
        pass

    def validate_on(self, data: object) -> None:
        """The model is validated once, after the step."""


class LocalSteps(Steps):
    """Keeps the metrics.

    Attributes:
        measured: metrics of each batch.
        validation: metrics of the validation.
    """

    has_callbacks = True

    def __init__(self, callbacks: object, batches_per_step: int) -> None:
        super().__init__(callbacks, batches_per_step)
        self.measured: list[dict[str, Any]] = []
        self.validation: Any = None

    @property
    def batches(self) -> int:
        return len(self.measured)

    def batch_ended(self, measured: dict[str, Any], known: Callable[[], list[dict[str, Any]] | None] | None = None) -> None:
        self.measured.append(dict(measured))
        super().batch_ended(self.measured[-1], known)

    def validated(self, measured: dict[str, Any]) -> None:
        self.validation = dict(measured)
        super().validated(measured)
