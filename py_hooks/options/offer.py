"""The hyperparameters of this trial, offered to the parsers of the script."""
from __future__ import annotations

import json
import sys

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn, TypeVar, TypeVarTuple, Unpack

    from _pedl import Trial

    _Result = TypeVar("_Result")
    _Arguments = TypeVarTuple("_Arguments")


class AmbiguousOption(Refusal):
    """A hyperparameter may mean several options, or several hyperparameters may mean one option."""

    exit_code = ExitCode.CONFIGURATION


class UnfitValue(Refusal):
    """An option of the script cannot take the value of a hyperparameter."""

    exit_code = ExitCode.CONFIGURATION


class Offer:
    """What is offered, and what was taken.

    Args:
        trial: the native trial.
        stop: `stop(error)` ends the process for one of our errors.
    """

    def __init__(self, trial: Trial, stop: Callable[[Refusal], NoReturn]) -> None:
        self.values: dict[str, Any] = json.loads(trial.hyperparameters)
        self._trial = trial
        self._stop = stop
        self._taken: dict[str, str] = {}
        self._is_told = False

    def match(self, options: list[tuple[str, list[str]]]) -> Iterator[tuple[str, str]]:
        """Which options are named by a hyperparameter.

        Args:
            options: `(key, names)` for each option: `key` identifies the option, `names` are its possible names, the best
                first.

        Yields:
            (key, hyperparameter): the option, and the hyperparameter that is its default.

        Raises:
            AmbiguousOption: more than one pair is possible.
        """
        options = [(key, [_plain(name) for name in names]) for key, names in options]
        taken: dict[str, str] = {}
        for hyperparameter in sorted(self.values):
            key = self._option_of(hyperparameter, options)
            if key is None:
                continue
            if key in taken:
                raise AmbiguousOption(
                    f"the hyperparameters `{taken[key]}` and `{hyperparameter}` both name the option `{key}`\n"
                    "  the script was stopped before it read its command line",
                    "leave one of them out",
                )
            taken[key] = hyperparameter
        yield from taken.items()

    def _option_of(self, hyperparameter: str, options: list[tuple[str, list[str]]]) -> str | None:
        wanted = _plain(hyperparameter)
        most = max((len(names) for _, names in options), default=0)
        for rank in range(most):
            found = sorted({key for key, names in options if names[rank:rank + 1] == [wanted]})
            if len(found) > 1:
                raise AmbiguousOption(
                    f"the hyperparameter `{hyperparameter}` names {len(found)} options: "
                    + ", ".join(f"`{key}`" for key in found)
                    + "\n  the script was stopped before it read its command line",
                    "name the hyperparameter as one of them is spelled",
                )
            if found:
                return found[0]
        return None

    def took(self, hyperparameter: str, option: str) -> None:
        """An option has its default from a hyperparameter: reported with the first lines of the run, or now."""
        if self._taken.get(hyperparameter) == option:
            return
        self._taken[hyperparameter] = option
        if self._is_told:
            self._say(hyperparameter, option)

    def taken(self) -> set[str]:
        """The hyperparameters that options have taken."""
        return set(self._taken)

    def tell(self) -> None:
        """Reports what was taken so far. A script that trains nothing gets no report."""
        self._is_told = True
        for hyperparameter, option in self._taken.items():
            self._say(hyperparameter, option)

    def _say(self, hyperparameter: str, option: str) -> None:
        value = json.dumps(self.values[hyperparameter])
        self._trial.log(f"hyperparameter {hyperparameter}={value} is the default of the option `{option}`")

    def unfit(self, hyperparameter: str, option: str, expected: str) -> UnfitValue:
        """The error for a value that an option cannot take."""
        value = json.dumps(self.values[hyperparameter])
        return UnfitValue(
            f"the hyperparameter `{hyperparameter}` is `{value}`, and names the option `{option}` of the script\n"
            f"  expected: {expected}\n"
            "  the script was stopped before it read its command line",
            f"give another value, as in `--hp {hyperparameter}=VALUE`, or rename the hyperparameter",
        )

    def make(self, function: Callable[[Offer, Unpack[_Arguments]], _Result], *arguments: Unpack[_Arguments]) -> _Result:
        """What `function(self, *arguments)` returns. Ends the process for one of our errors, without a traceback."""
        try:
            return function(self, *arguments)
        except (AmbiguousOption, UnfitValue) as error:
            return self._stop(error)


def called_by_the_script(library: str) -> bool:
    """Whether a function of a library was called by the script, and not by another library.

    Args:
        library: the top module of the library, whose frames do not count.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in (library, "py_hooks"):
        frame = frame.f_back
    return frame is not None and is_the_scripts(frame.f_globals.get("__name__"), frame.f_code.co_filename)


def is_the_scripts(module: str | None, filename: str | None) -> bool:
    """Whether a module is the script, or one that the user wrote for it."""
    return module == "__main__" or (filename is not None and places.is_user_file(filename))


def as_text(value: object) -> str:
    """A value as it would be typed."""
    return value if isinstance(value, str) else repr(value)


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")
