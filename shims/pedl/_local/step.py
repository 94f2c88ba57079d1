"""Does the work of `pedl.local`: runs one step of a trial class in this process.

The process is restored afterwards: the trial that `pedl` answers for and, with TensorFlow 1, the graph and the session of Keras.
Random generators follow the seed from then on. On TensorFlow 2 a `TensorFlowTrial` and an `EstimatorTrial` switch its newer
behaviour off, as they do in `pedl-run`.
"""
from __future__ import annotations

import contextlib
import json
import os
import sys

from pedl._context import VARIABLE
from pedl._local.given import Given, check_is_no_definition, context_of, new_directory
from pedl._local.host import LocalHost, LocalSteps
from pedl._local.result import LocalRun
from pedl._loops import metrics
from pedl._loops.run import run, seed_python
from pedl._loops.trial_class import loop_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pedl._context import Context
    from pedl.trial import Trial

# The functions that seed the frameworks, if these are imported.
_SEEDING = (("torch", "manual_seed"), ("tensorflow", "compat.v1.set_random_seed"), ("keras", "utils.set_random_seed"))


def run_step(
    trial_class: type[Trial],
    hparams: dict[str, Any],
    config: dict[str, Any],
    batches_per_step: int | None,
    directory: str | os.PathLike[str] | None,
    functions: dict[str, Any],
) -> LocalRun:
    """Does the work of `pedl.local`, and returns its result.

    Args:
        trial_class: as in `pedl.local`.
        hparams: the same, a dict.
        config: the same, a dict.
        batches_per_step: the same.
        directory: the same.
        functions: those that were given, by name; None for one that was not.
    """
    check_is_no_definition()
    definition = Given(trial_class, functions)
    known = context_of(hparams, config, batches_per_step)
    host = LocalHost(known, new_directory(directory))

    def make_steps(callbacks: object, size: int) -> LocalSteps:
        host.steps = LocalSteps(callbacks, size)
        return host.steps

    with _known(known), _own_graph(trial_class):
        _seed(known["trial_seed"])
        run(definition, loop_of(trial_class), known, host, make_steps)
    means, _ = metrics.mean(host.steps.measured)
    return LocalRun(means, host.steps.measured, host.steps.validation, host.checkpoint)


@contextlib.contextmanager
def _known(known: Context) -> Iterator[None]:
    """Within it `pedl` answers for this trial."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = json.dumps(known)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextlib.contextmanager
def _own_graph(trial_class: type[Trial]) -> Iterator[None]:
    """Within it the graph of TensorFlow 1 and the session of Keras are other ones than those of the process."""
    tensorflow = sys.modules.get("tensorflow")
    v1 = getattr(getattr(tensorflow, "compat", None), "v1", None)
    if v1 is None or v1.executing_eagerly():
        yield
        return
    sessions = _sessions_of_keras(trial_class)
    before = sessions.get_session() if sessions is not None else None
    try:
        with v1.Graph().as_default():
            yield
    finally:
        if sessions is not None:
            sessions.set_session(before)


def _sessions_of_keras(trial_class: type[Trial]) -> Any:
    """The backend that holds the session of the Keras that trains; None if there is none."""
    if trial_class._loop != "pedl._loops.keras":
        return None
    backend = loop_of(trial_class).package_of(trial_class).backend
    return backend if hasattr(backend, "set_session") else None


def _seed(seed: int) -> None:
    seed_python(seed)
    for name, path in _SEEDING:
        function: Any = sys.modules.get(name)
        for part in path.split("."):
            function = getattr(function, part, None)
        if function is not None:
            function(seed)
