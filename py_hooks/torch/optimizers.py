"""PyTorch: reports at the first step of an optimizer that nothing is intercepted.

From 2.1 on torch calls hooks before the step of every optimizer; earlier versions have none, and nothing is reported there.
The hook is never removed: if it were removed while it runs, it would break the loop over the hooks that called it. In the loop
of a trial class batches are recorded calls, so there is nothing to report.

Source: torch 2.6, torch/optim/optimizer.py: `profile_hook_step`.
"""
from __future__ import annotations

from py_hooks.recording import forks, loops, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from py_hooks.boot.process import _Process


def watch(process: _Process, module: ModuleType) -> None:
    """`torch.optim.optimizer` was imported: reports the first step of an optimizer."""
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    if register is None:
        return
    waiting = [True]

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if process.trial.is_child:
            forks.trains(process.trial)
        elif waiting and not (recorder.CALLS is not None and recorder.CALLS.depth):
            waiting.clear()
            loops.tell(process, "PyTorch is not intercepted", "run it without `--exact`")

    register(before_step)
