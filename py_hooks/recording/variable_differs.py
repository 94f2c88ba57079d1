"""The error for a variable that is not the one that the recorded run had; every library of variables raises it."""
from __future__ import annotations

from py_hooks.border import ExitCode
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class VariableDiffers(Refusal):
    """At the resume point a variable is not the one that had this number in the recorded run."""

    exit_code = ExitCode.DIVERGED

    def __init__(self, number: str, path: str, shape: Iterable[int | None], variable: Any) -> None:
        Refusal.__init__(
            self,
            "the replay differs from the record: the script made other variables\n"
            f"  variable {number}: recorded `{path}` of shape {tuple(shape)}, "
            f"now `{getattr(variable, 'path', None) or variable.name}` of shape {tuple(variable.shape)}\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "look for models built by the clock, the environment or another file; `--fresh` begins a new trial",
        )
