"""Loops and branches of TensorFlow 1 graphs, by their contexts."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def loops_around(context: Any) -> Iterator[Any]:
    """The contexts of the `while_loop`s that a context is in, including itself."""
    while context is not None and context.GetWhileContext() is not None:
        context = context.GetWhileContext()
        yield context
        context = context.outer_context
