"""Runs a trial class on a host: calls the user's class and functions in their order, and the loop of the class."""
from __future__ import annotations

import random
import sys

from pedl._loops.download import download
from pedl._loops.steps import Steps
from pedl.errors import DefinitionError
from pedl.trial import call_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from pedl._context import Context
    from pedl._loops.host import TrialHost
    from pedl.trial import Trial

    class AnyDefinition(Protocol):
        """A trial class, and the functions beside it: a model definition, or what `pedl.local` was given."""

        @property
        def trial_class(self) -> type[Trial]:
            """The class."""

        def function(self, name: str, is_required: bool) -> Any:
            """A function beside it; None if there is none."""


def run(
    definition: AnyDefinition,
    loop: Any,
    known: Context,
    host: TrialHost,
    make_steps: Callable[[object, int], Steps] = Steps,
) -> None:
    """Trains a trial class.

    Args:
        definition: the class, and the functions beside it.
        loop: the module with the loop of the class; its `run` trains.
        known: the context of the trial.
        host: counts batches and records calls.
        make_steps: makes the `Steps`.

    Raises:
        DefinitionError: the user's classes and functions are not what they have to be.
    """
    configuration, hparams = known["configuration"] or {}, known["hyperparameters"]
    loaders = Loaders(definition, configuration, hparams) if definition.trial_class._has_data_loaders else None
    download(definition, known, host)
    trial = call_with(definition.trial_class, hparams=hparams)
    steps = make_steps(call_with(trial.callbacks, hparams=hparams), known["batches_per_step"])
    loop.run(trial, loaders, hparams, steps, host)
    host.finish()


class Loaders:
    """Makes the two data sets of a definition, when its loop is ready for them."""

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
