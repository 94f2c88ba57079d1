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


def contexts_of(op: Any) -> list[Any]:
    """The loops and branches that an op is in, innermost first, and None for the graph around them."""
    context = op._get_control_flow_context()
    found = []
    while context is not None:
        found.append(context)
        context = context.outer_context
    return [*found, None]


def loops_of(op: Any) -> list[Any]:
    """The loops that an op is in, innermost first."""
    return [context for context in contexts_of(op)[:-1] if context.IsWhileContext()]
