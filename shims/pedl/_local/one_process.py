"""The ranks of a trial that one process trains: what `pedl.local` has in place of several ones (`pedl/_loops/host.py`)."""
from __future__ import annotations

import contextlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any


class OneProcess:
    """One process, which has nobody to agree with (`py_hooks/ranks/agreement.py`)."""

    size = 1
    rank = 0
    key = ()

    def guard(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def with_guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def scope(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def adopt(self, _model: Any) -> bool:
        return True
