"""Trains the trial class of a model definition: imports the definition, chooses the training loop, and runs it."""
from __future__ import annotations

import os

from pedl._context import context
from pedl._loops.run import run, seed_python
from pedl._loops.trial_class import loop_of
from pedl.errors import DefinitionError
from pedl.frameworks.tensorflow.tensorpack_trial import TensorpackTrial

from py_hooks.trial_classes.definition import Definition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pedl.trial import Trial

    from py_hooks.trial_classes.host import RecordingHost


def main(make_host: Callable[[str], RecordingHost]) -> None:
    """Trains the trial of this process.

    Args:
        make_host: makes the host for a trial class of a name.
    """
    known = context()
    host: RecordingHost | None = None
    try:
        # The trial's seed, at every start, for all that the definition draws, also while it is imported.
        seed_python(known["trial_seed"])
        definition = Definition(os.getcwd(), known["definition"]["module"], known["configuration"] or {})
        trial_class = definition.trial_class
        host = make_host(trial_class.__name__)
        if known.get("ranks"):
            _check_ranks(trial_class, known["ranks"])
        run(definition, _loop_of(trial_class), known, host)
    except DefinitionError as error:
        (host or make_host("")).refuse(error.message, error.hint)


def _loop_of(trial_class: type[Trial]) -> Any:
    """The module with the loop of a trial class: one of `pedl`, or one of this room that `pedl.local` does not run."""
    if issubclass(trial_class, TensorpackTrial):
        from py_hooks.trial_classes import tensorpack

        return tensorpack
    return loop_of(trial_class)


def _check_ranks(trial_class: type[Trial], ranks: dict[str, Any]) -> None:
    """Checks that several processes can train this class: its framework has to find them by this variable."""
    variable = ranks["variable"]
    if trial_class._ranks_by != variable:
        is_torchs = variable == "WORLD_SIZE"
        told = f"is {ranks['size']}" if is_torchs else f"names {ranks['size']} workers"
        kind = "PyTorchTrial" if is_torchs else "TFKerasTrial"
        raise DefinitionError(
            f"`{variable}` {told}, and the trial class `{trial_class.__name__}` is trained by one process\n"
            f"  expected: a `{kind}`, or `{variable}` not set\n  nothing was trained",
            f"unset `{variable}`{', or start it without `torchrun`' if is_torchs else ', and train in one process'}",
        )
