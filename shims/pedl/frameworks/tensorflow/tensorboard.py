"""A callback that writes the metrics of a trial for TensorBoard. It needs no TensorFlow."""
from __future__ import annotations

import os

from pedl._context import context
from pedl._loops import metrics as averages
from pedl.callback import Callback
from pedl.frameworks.tensorflow.event_writer import EventWriter
from pedl.trial import get_trial_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class TensorBoard(Callback):
    """Writes metrics into `<log_directory>/<trial_id>/training` and `<log_directory>/<trial_id>/validation`.

    For a training step these are the means over its batches. The step of TensorBoard is the number of the step. Metrics
    that are not single numbers are left out.

    Args:
        log_directory: a path on the machine of the trial; a relative one is below the model definition.

    Example:
        def callbacks(self, hparams):
            return [TensorBoard("logs")]        # tensorboard --logdir logs
    """

    def __init__(self, log_directory: str | os.PathLike[str]) -> None:
        self._directory = os.fspath(log_directory)
        self._writers: dict[str, EventWriter] = {}

    def on_train_step_end(self, step_id: int, metrics: list[dict[str, Any]]) -> None:
        """Writes the means of a step."""
        self._add("training", step_id, averages.mean(metrics)[0])

    def on_validation_step_end(self, step_id: int, metrics: dict[str, Any]) -> None:
        """Writes the metrics of a validation."""
        self._add("validation", step_id, metrics)

    def _add(self, kind: str, step_id: int, metrics: dict[str, Any]) -> None:
        if (context().get("ranks") or {}).get("rank"):
            # If there are several processes, only the first one writes.
            return
        if kind not in self._writers:
            self._writers[kind] = EventWriter(os.path.join(self._directory, str(get_trial_id()), kind))
        self._writers[kind].add(step_id, averages.scalars(metrics))
