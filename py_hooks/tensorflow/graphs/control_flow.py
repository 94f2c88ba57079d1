"""Loops and branches of TensorFlow 1 graphs, by their contexts."""


def loops_around(context):
    """The contexts of the `while_loop`s that a context is in, including itself."""
    while context is not None and context.GetWhileContext() is not None:
        context = context.GetWhileContext()
        yield context
        context = context.outer_context
