"""Training loops of the script on TensorFlow 2, or on Keras 3: with `GradientTape`, or `stateless_apply`.

A step of Keras's loop is within a recorded call (`depth` above 0); any other step is one of the script. Before the first
recorded call nothing more needs to be done, because in a replay that loop runs again. After it the loop would run on variables
that an answered call has not changed. On JAX Python reads and writes them, and both are recorded. A function of TensorFlow
does so unseen, so from there on no checkpoint is taken. A `tf.function` that was traced with a step in it may be called at
any time, without a line of Python that could be seen: with one, no checkpoint is taken at all.

Source: keras 3.15.1, keras/src/optimizers/base_optimizer.py: `apply_gradients` and `stateless_apply` call `apply`.
"""
from __future__ import annotations

from py_hooks import causes
from py_hooks.engine.patch import binding
from py_hooks.recording import forks, loops, recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_HINT = "train with `fit` or `train_on_batch`, or run it without `--exact`"


def step_of_optimizer(is_on_tensorflow: Callable[[], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The advice of a function that makes one step of an optimizer; `is_on_tensorflow()` says whether TensorFlow computes it."""

    @binding
    def advice(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            calls = recorder.CALLS
            if calls.is_child:
                forks.trains(calls.trial)
            if calls.depth or not calls.on_main_thread() or is_on_tensorflow() and _is_for_a_session():
                return original(optimizer, *args, **kwargs)
            if not calls.begun:
                loops.tell(calls, causes.OUTSIDE_OF_FIT(), _HINT)
                if is_on_tensorflow() and _is_traced():
                    calls.exactness.refuse(causes.OUTSIDE_IN_FUNCTION())
            elif is_on_tensorflow():
                calls.exactness.refuse(causes.OUTSIDE_OF_FIT())
            return original(optimizer, *args, **kwargs)

        return apply

    return advice


def _is_traced() -> bool:
    import tensorflow

    return not tensorflow.executing_eagerly()


def _is_for_a_session() -> bool:
    """Whether what is built now belongs to a graph; it is then seen when a session runs the graph."""
    from tensorflow.python.eager import context
    from tensorflow.python.framework import ops

    with ops.init_scope():
        return not context.executing_eagerly()


applied = step_of_optimizer(lambda: True)
applied.__doc__ = "`apply_gradients` of optimizers that only TensorFlow 2 has: a step, by Keras or by the script."
