"""`LRScheduler`: a learning rate scheduler, and when it takes its steps."""
from __future__ import annotations

import enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LRScheduler:
    """A scheduler of `torch.optim.lr_scheduler`, for `PyTorchTrial.create_lr_scheduler`.

    Args:
        scheduler: the scheduler.
        step_every_batch: it takes a step after every batch.
        step_every_epoch: it takes a step after the last batch of every epoch.
        step_mode: one of `StepMode`, instead of the two; it may be the second positional argument, too. Without any of the
            three the trial calls `step`.
    """

    class StepMode(enum.Enum):
        """When a scheduler takes its steps."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3

    def __init__(
        self,
        scheduler: Any,
        step_every_batch: bool | StepMode = False,
        step_every_epoch: bool = False,
        step_mode: StepMode | None = None,
    ) -> None:
        modes = self.StepMode
        if isinstance(step_every_batch, modes):
            step_mode, step_every_batch = step_every_batch, False
        if step_every_batch and step_every_epoch:
            raise ValueError("a scheduler takes a step after every batch, or after every epoch, not both")
        if step_mode is None:
            step_mode = modes.STEP_EVERY_BATCH if step_every_batch else modes.MANUAL_STEP
            step_mode = modes.STEP_EVERY_EPOCH if step_every_epoch else step_mode
        if not isinstance(step_mode, modes):
            raise ValueError(f"`step_mode` is {step_mode!r}; expected: one of LRScheduler.StepMode")
        self._scheduler = scheduler
        self.step_mode = step_mode

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Takes a step; only with `MANUAL_STEP`, because otherwise the host takes the steps.

        Raises:
            ValueError: it takes steps by itself.
        """
        if self.step_mode is not self.StepMode.MANUAL_STEP:
            raise ValueError(f"the scheduler takes its steps by itself ({self.step_mode.name}); `step` is for MANUAL_STEP")
        self._scheduler.step(*args, **kwargs)

    def get_lr(self) -> list[float]:
        """The learning rates, one for each group of parameters."""
        return [group["lr"] for group in self._scheduler.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The state of the scheduler."""
        return self._scheduler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` returned."""
        self._scheduler.load_state_dict(state_dict)
