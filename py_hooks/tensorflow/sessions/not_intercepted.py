"""Training over TensorFlow 1 that is not intercepted: the run says so once, and does not claim to be exact."""
from __future__ import annotations

from py_hooks import causes
from py_hooks.recording import recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# After `tf.enable_eager_execution()` there is neither a session nor a compute function to intercept.
EAGER_TRAINING = "training in eager mode of TensorFlow 1"


def apply_gradients(original: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """`apply_gradients` of an optimizer: in eager mode it means a training loop of the script, or of `tf.keras`."""
    from tensorflow.python.framework import ops

    if ops.executing_eagerly_outside_functions():
        say_not_intercepted(EAGER_TRAINING)
    return original(optimizer, *args, **kwargs)


def cause_of(what: str) -> causes.Told:
    """The cause for training that is not intercepted."""
    return causes.NOT_INTERCEPTED(what=what)


def say_not_intercepted(what: str) -> None:
    """Reports once that the script trains in a way that has no checkpoints; not inside a recorded call of Keras."""
    calls = recorder.CALLS
    cause = cause_of(what)
    if calls.depth or cause in calls.exactness.causes:
        return
    if not calls.begun:
        calls.trial.log(f"no checkpoints: {cause}")
    calls.exactness.refuse(cause)
