"""Checks the arguments of `pedl.local`, and makes a definition, a context and a directory of them."""
from __future__ import annotations

import json
import os
import random
import sys
import tempfile

from pedl._context import VARIABLE
from pedl._loops.trial_class import check_class
from pedl.errors import DefinitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pedl._context import Context
    from pedl.trial import Trial

# The default number of batches in a step (rule T19).
_BATCHES = 100

# The largest seed is one below this.
_SEEDS = 1 << 31


class Given:
    """A class, and the functions beside it, in the form of a `Definition`.

    Args:
        trial_class: the class.
        functions: those that were given, by name; None for one that was not.

    Raises:
        DefinitionError: it is no trial class, lacks methods, or is of a kind that cannot run here.
    """

    def __init__(self, trial_class: type[Trial], functions: dict[str, Any]) -> None:
        check_class(trial_class, getattr(trial_class, "__name__", repr(trial_class)))
        if trial_class._not_local is not None:
            raise DefinitionError(
                f"the trial class `{trial_class.__name__}` cannot be tried by `pedl.local`: {trial_class._not_local}\n"
                "  nothing was trained",
                "train one step of it: `pedl-run --config FILE --steps 1 DIRECTORY`",
            )
        self.trial_class = trial_class
        self._functions = functions

    def function(self, name: str, is_required: bool) -> Any:
        """See `Definition`."""
        module = self.trial_class.__module__
        found = self._functions[name] or getattr(sys.modules.get(module), name, None)
        if found is None and is_required:
            raise DefinitionError(
                f"the module `{module}` of the class `{self.trial_class.__name__}` has no function `{name}`\n"
                f"  expected: `{name}(experiment_config, hparams)` beside the class",
                f"define it there, or give it: `pedl.local({self.trial_class.__name__}, {name}=...)`",
            )
        return found


def check_is_no_definition() -> None:
    """Checks that this is no process of pedl-run that trains a model definition.

    Raises:
        DefinitionError: it is one.
    """
    known = json.loads(os.environ.get(VARIABLE, "{}"))
    if known.get("definition"):
        raise DefinitionError(
            "`pedl.local` is called in a model definition that `pedl-run --config FILE DIR` trains\n"
            "  expected: a notebook, or a script that is run by itself",
            'put the call below `if __name__ == "__main__":`',
        )


def context_of(hparams: dict[str, Any], config: dict[str, Any], batches_per_step: int | None) -> Context:
    """The context that `pedl` gives the trial, from the arguments of `pedl.local`.

    Raises:
        DefinitionError: one of them cannot be used.
    """
    _check_is_dict(hparams, "hparams", "the values of hyperparameters by their names")
    _check_is_dict(config, "config", "an experiment configuration, as a dict")
    size = batches_per_step if batches_per_step is not None else config.get("batches_per_step", _BATCHES)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise DefinitionError(f"`batches_per_step` is {size!r}\n  expected: a whole number above 0")
    sections = [config.get(name) or {} for name in ("hyperparameters", "reproducibility")]
    for section, name in zip(sections, ("hyperparameters", "reproducibility")):
        _check_is_dict(section, f'config["{name}"]', "what stands there in a configuration, as a dict")
    seed = sections[1].get("experiment_seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < _SEEDS):
        raise DefinitionError(f"`experiment_seed` is {seed!r}\n  expected: a whole number from 0 to {_SEEDS - 1}")
    known = {
        "trial_id": 1,
        "experiment_id": 1,
        "trial_seed": random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
        "hyperparameters": {**_constants(sections[0], hparams), **hparams},
        "configuration": {"data": {}, **config, "batches_per_step": size},
        "batches_per_step": size,
    }
    try:
        # Each child process gets a copy, as in `pedl-run`.
        return json.loads(json.dumps(known))
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"`hparams` or `config` of `pedl.local` holds what a configuration cannot hold: {error}\n"
            "  expected: texts, numbers, truth values, None, and lists and dicts of these"
        ) from None


def _check_is_dict(value: object, name: str, expected: str) -> None:
    if not isinstance(value, dict):
        raise DefinitionError(
            f"`{name}` of `pedl.local` is an object of class `{type(value).__name__}`\n  expected: {expected}"
        )


def _constants(described: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a configuration that have one value.

    Args:
        described: the section of the configuration.
        given: the hyperparameters that have a value.

    Raises:
        DefinitionError: another one would have to be drawn.
    """
    values = {}
    for name, value in described.items():
        if isinstance(value, dict) and value.get("type", "const") == "const" and "val" in value:
            values[name] = value["val"]
        elif not isinstance(value, dict) or "type" not in value:
            values[name] = value
        elif name not in given:
            raise DefinitionError(
                f"the hyperparameter `{name}` of the configuration is of type `{value['type']}`\n"
                "  expected: a value; `pedl.local` draws none",
                f'give one: `pedl.local(..., hparams={{"{name}": ...}})`',
            )
    return values


def new_directory(given: str | os.PathLike[str] | None) -> str:
    """The path of the directory for the checkpoint, which is made.

    Args:
        given: a path; None for a new directory among temporary files.

    Raises:
        DefinitionError: it is not empty, or cannot be used.
    """
    if given is None:
        return tempfile.mkdtemp(prefix="pedl-local-")
    given = os.path.abspath(os.fspath(given))
    try:
        os.makedirs(given, exist_ok=True)
        found = os.listdir(given)
    except OSError as error:
        raise DefinitionError(
            f"the directory `{given}` cannot be used for the checkpoint: {error.strerror}\n  nothing was trained",
            "name another one, or leave `directory` out",
        ) from None
    if found:
        raise DefinitionError(
            f"the directory `{given}` is not empty\n  expected: a new or an empty one, for the checkpoint; nothing was trained",
            "name another one, or leave `directory` out",
        )
    return given
