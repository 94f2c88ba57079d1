"""PyTorch: the first step of an optimizer, at which it is said that nothing is intercepted.

From 2.1 on torch calls hooks before the step of every optimizer; versions before have none, and nothing is said there.
Ours stays where it is: taken away while it runs, it would break the loop over the hooks that called it. In the loop of a
trial class, whose batches are recorded calls, there is nothing to be said.

Source: torch 2.6, torch/optim/optimizer.py: `profile_hook_step`.
"""
from py_hooks.advice import calls as recorder
from py_hooks.advice import forks, loops


def watch(process, module):
    """`torch.optim.optimizer` was imported: has the first step of an optimizer told of."""
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    if register is None:
        return
    waiting = [True]

    def before_step(optimizer, args, kwargs):
        if process.trial.is_child:
            forks.trains(process.trial)
        elif waiting and not (recorder.CALLS is not None and recorder.CALLS.depth):
            waiting.clear()
            loops.tell(process, "PyTorch is not intercepted", "run it without `--exact`")

    register(before_step)
