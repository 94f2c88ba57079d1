"""Finds the facts of a library that is imported."""
from __future__ import annotations

import importlib
import sys

from py_hooks.engine import version
from py_hooks.registry import GENERATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FOUND: dict[str, Any] = {}


def of(library: str) -> Any:
    """The facts of a library, or of a part of one such as `tensorflow.keras`.

    `--no-hooks` lets in a version that no generation covers; it has the facts of the generation before it.
    """
    found = _FOUND.get(library)
    if found is None:
        text = version.of(sys.modules[library.partition(".")[0]], GENERATIONS)
        module = version.nearest(library, text, GENERATIONS)
        found = _FOUND[library] = importlib.import_module("py_hooks." + module).GENERATION.facts
    return found
