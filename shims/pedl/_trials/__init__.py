"""Runs a trial class: the program that Python runs in the model definition for `pedl-run --config FILE DIR`.

It runs like a script, and again from its first line after a crash: its calls into a framework are recorded and answered
like those of a script (`py_hooks`). So a trial has no other machinery: its steps, checkpoints, exact resume, preemption and
output are those of scripts. A controller (`keras.py`, ...) only adds the loop.

In a replay these loops visit the recorded batches, and compute nothing. Callbacks are called again with the metrics of the
record, so that their state, and the files that they write, are as before.
"""
from __future__ import annotations

import importlib
import os
import random
import sys

from pedl._context import context
from pedl._definition import Definition
from pedl._trials.download import download
from pedl._trials.host import hosted
from pedl._trials.steps import Steps
from pedl.errors import DefinitionError
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from pedl._context import Context
    from pedl._trials.host import Host, RecordingHost
    from pedl.trial import Trial

    class AnyDefinition(Protocol):
        """A trial class, and the functions beside it: `Definition`, or what `pedl.local` was given."""

        @property
        def trial_class(self) -> type[Trial]:
            """The class."""

        def function(self, name: str, is_required: bool) -> Any:
            """A function beside it; None if there is none."""


def main() -> None:
    """Trains the trial of this process."""
    known = context()
    host: RecordingHost | None = None
    try:
        # The trial's seed, at every start, for all that the definition draws, also while it is imported.
        seed_python(known["trial_seed"])
        definition = Definition(os.getcwd(), known["definition"]["module"], known["configuration"] or {})
        host = hosted(definition.trial_class.__name__)
        run(definition, known, host)
    except DefinitionError as error:
        (host or hosted("")).refuse(error.message, error.hint)


def run(definition: AnyDefinition, known: Context, host: Host, make_steps: Callable[[object, int], Steps] = Steps) -> None:
    """Trains a trial class.

    Args:
        definition: the `Definition`.
        known: the context of the trial.
        host: counts batches and records calls.
        make_steps: makes the `Steps`.

    Raises:
        DefinitionError: the user's classes and functions are not what they have to be.
    """
    configuration, hparams = known["configuration"] or {}, known["hyperparameters"]
    if known.get("ranks"):
        _check_ranks(definition.trial_class, known["ranks"])
    controller = importlib.import_module(definition.trial_class._controller)
    loaders = Loaders(definition, configuration, hparams) if definition.trial_class._has_data_loaders else None
    download(definition, known, host)
    trial = call_with(definition.trial_class, hparams=hparams)
    steps = make_steps(call_with(trial.callbacks, hparams=hparams), known["batches_per_step"])
    controller.run(trial, loaders, hparams, steps, host)
    host.finish()


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


class Loaders:
    """Makes the two data sets of a definition, when its controller is ready for them."""

    def __init__(self, definition: AnyDefinition, configuration: dict[str, Any], hparams: dict[str, Any]) -> None:
        self._make = definition.function("make_data_loaders", is_required=True)
        self._given = configuration, hparams

    def make(self) -> tuple[Any, Any]:
        """The data sets to train on and to validate on.

        Raises:
            DefinitionError: `make_data_loaders` did not return two.
        """
        configuration, hparams = self._given
        made = call_with(self._make, experiment_config=configuration, hparams=hparams)
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            length = f" of {len(made)}" if isinstance(made, (tuple, list)) else ""
            raise DefinitionError(
                f"`make_data_loaders` returned an object of class `{type(made).__name__}`{length}\n"
                "  expected: a pair, the data set to train on and the one to validate on",
                "return both, as in `return train, validation`",
            )
        return tuple(made)


def seed_python(seed: int) -> None:
    """Seeds the generators of Python and, if it is imported, of NumPy."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
