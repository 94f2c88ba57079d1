"""Runs one step of a trial class without the host: `pedl.local`.

The loops are those of `pedl-run` (`keras.py`, ...). This module replaces the host for them: there is one step, nothing is
recorded, and the framework itself saves the trained model at the end.

The process is restored afterwards: the trial that `pedl` answers for and, with TensorFlow 1, the graph and the session of Keras.
Random generators follow the seed from then on. On TensorFlow 2 a `TensorFlowTrial` and an `EstimatorTrial` switch its newer
behaviour off, as they do in `pedl-run`.
"""
from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import sys
import tempfile

from pedl import _local
from pedl._context import VARIABLE
from pedl._definition import check_class
from pedl._trials import metrics, run, seed_python
from pedl._trials.steps import Steps
from pedl.errors import DefinitionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any

    from pedl._context import Context
    from pedl._trials.host import OfTorch
    from pedl.trial import Trial

# The default number of batches in a step (rule T19).
_BATCHES = 100

# The largest seed is one below this.
_SEEDS = 1 << 31

# The functions that seed the frameworks, if these are imported.
_SEEDING = (("torch", "manual_seed"), ("tensorflow", "compat.v1.set_random_seed"), ("keras", "utils.set_random_seed"))


def run_step(
    trial_class: type[Trial],
    hparams: dict[str, Any],
    config: dict[str, Any],
    batches_per_step: int | None,
    directory: str | os.PathLike[str] | None,
    functions: dict[str, Any],
) -> _local.LocalRun:
    """Does the work of `pedl.local`, and returns its result.

    Args:
        trial_class: as in `pedl.local`.
        hparams: the same, a dict.
        config: the same, a dict.
        batches_per_step: the same.
        directory: the same.
        functions: those that were given, by name; None for one that was not.
    """
    _check_is_no_definition()
    definition = _Given(trial_class, functions)
    known = _context(hparams, config, batches_per_step)
    host = _Local(known, _new_directory(directory))

    def make_steps(callbacks: object, size: int) -> _Steps:
        host.steps = _Steps(callbacks, size)
        return host.steps

    with _known(known), _own_graph(trial_class):
        _seed(known["trial_seed"])
        run(definition, known, host, make_steps)
    means, _ = metrics.mean(host.steps.measured)
    return _local.LocalRun(means, host.steps.measured, host.steps.validation, host.checkpoint)


class _Local:
    """Replaces the host (`py_hooks/boot/trials.py`) for one step.

    Args:
        known: the context of the trial.
        directory: the folder where the trained model is saved.

    Attributes:
        steps: counts the batches.
        checkpoint: path of the saved model; None before.
        bounds_fits: False: the caller of a `fit` decides its length.
    """

    is_validation_due = False
    bounds_fits = False

    def __init__(self, known: Context, directory: str) -> None:
        self.seed = known["trial_seed"]
        self.work_directory = directory
        # The directory for downloads: another run of the same definition uses them again.
        self.directory = os.getcwd()
        self.checkpoint: Any = None
        self.steps: Any = None
        self._size = known["batches_per_step"]
        self._save: Any = None

    @property
    def batches(self) -> int:
        return self.steps.batches

    @property
    def batches_left(self) -> int:
        return max(0, self._size - self.batches)

    def say(self, text: str) -> None:
        sys.stderr.write(f"pedl: {text}\n")

    def saved_by(self, save: Callable[[str], str]) -> None:
        """Sets `save(directory)`, which saves the trained model, and returns the path that the framework reads."""
        self._save = save

    def finish(self) -> None:
        """The step is over; a loop may say so before its session is closed, and again after it."""
        if self.checkpoint is None:
            self.checkpoint = self._save(self.work_directory)

    # -- computing ------------------------------------------------------------------------------------------------------

    def train(self, live: Callable[[int], Any], _skip: Callable[[], object]) -> Any:
        return live(self.batches)

    def validate(self, live: Callable[[], Any]) -> Any:
        return live()

    def of_tensorflow(self, _ranks: Any = None) -> One:
        return One()

    def of_torch(self, _ranks: Any = None) -> OfTorch:
        return importlib.import_module("pedl._trials.local_torch").Training()

    @staticmethod
    def untracked() -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    @staticmethod
    def loop() -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def export_with_checkpoints(self, _folders: list[str], export: Callable[[], object]) -> None:
        save = self._save

        def save_all(directory: str) -> str:
            path = save(directory)
            export()
            return path

        self._save = save_all

    # -- ignored here ---------------------------------------------------------------------------------------------------

    def described(self) -> dict[str, str]:
        return {}

    def begin(self, causes: Sequence[object] = ()) -> None:
        pass

    def begin_in(self, session: Any) -> None:
        pass

    def name_metrics_of_runs(self, graph: Any, names: dict[str, str]) -> None:
        pass

    def keep_graph(self, graph: Any, record: Any, is_training: Any, outputs: dict[str, Any]) -> None:
        pass

    def heed_signal(self) -> None:
        pass

    of_step = None

    def keep_batches(self) -> None:
        pass

    def watch_validations(
        self, begins: Callable[[], object], ended: Callable[[Sequence[tuple[str, float]]], list[tuple[str, float]]]
    ) -> None:
        pass

    def validated(self, scalars: Sequence[tuple[str, float]]) -> None:
        pass

    def validate_on(self, data: object) -> None:
        """The model is validated once, after the step."""


class One:
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


class _Steps(Steps):
    """Keeps the metrics.

    Attributes:
        measured: metrics of each batch.
        validation: metrics of the validation.
    """

    has_callbacks = True

    def __init__(self, callbacks: object, batches_per_step: int) -> None:
        super().__init__(callbacks, batches_per_step)
        self.measured: list[dict[str, Any]] = []
        self.validation: Any = None

    @property
    def batches(self) -> int:
        return len(self.measured)

    def batch_ended(self, measured: dict[str, Any], known: Callable[[], list[dict[str, Any]] | None] | None = None) -> None:
        self.measured.append(dict(measured))
        super().batch_ended(self.measured[-1], known)

    def validated(self, measured: dict[str, Any]) -> None:
        self.validation = dict(measured)
        super().validated(measured)


# -- what was given ----------------------------------------------------------------------------------------------------


class _Given:
    """A class, and the functions beside it, in the form of a `Definition`.

    Args:
        trial_class: the class.
        functions: those that were given, by name; None for one that was not.

    Raises:
        DefinitionError: it is no trial class, lacks methods, or is of a kind that cannot run here.
    """

    def __init__(self, trial_class: type[Trial], functions: dict[str, Any]) -> None:
        check_class(trial_class, getattr(trial_class, "__name__", repr(trial_class)))
        if trial_class._not_local is not None:
            raise DefinitionError(
                f"the trial class `{trial_class.__name__}` cannot be tried by `pedl.local`: {trial_class._not_local}\n"
                "  nothing was trained",
                "train one step of it: `pedl-run --config FILE --steps 1 DIRECTORY`",
            )
        self.trial_class = trial_class
        self._functions = functions

    def function(self, name: str, is_required: bool) -> Any:
        """See `Definition`."""
        module = self.trial_class.__module__
        found = self._functions[name] or getattr(sys.modules.get(module), name, None)
        if found is None and is_required:
            raise DefinitionError(
                f"the module `{module}` of the class `{self.trial_class.__name__}` has no function `{name}`\n"
                f"  expected: `{name}(experiment_config, hparams)` beside the class",
                f"define it there, or give it: `pedl.local({self.trial_class.__name__}, {name}=...)`",
            )
        return found


def _check_is_no_definition() -> None:
    known = json.loads(os.environ.get(VARIABLE, "{}"))
    if known.get("definition"):
        raise DefinitionError(
            "`pedl.local` is called in a model definition that `pedl-run --config FILE DIR` trains\n"
            "  expected: a notebook, or a script that is run by itself",
            'put the call below `if __name__ == "__main__":`',
        )


def _context(hparams: dict[str, Any], config: dict[str, Any], batches_per_step: int | None) -> Context:
    """The context that `pedl` gives the trial."""
    _check_is_dict(hparams, "hparams", "the values of hyperparameters by their names")
    _check_is_dict(config, "config", "an experiment configuration, as a dict")
    size = batches_per_step if batches_per_step is not None else config.get("batches_per_step", _BATCHES)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise DefinitionError(f"`batches_per_step` is {size!r}\n  expected: a whole number above 0")
    sections = [config.get(name) or {} for name in ("hyperparameters", "reproducibility")]
    for section, name in zip(sections, ("hyperparameters", "reproducibility")):
        _check_is_dict(section, f'config["{name}"]', "what stands there in a configuration, as a dict")
    seed = sections[1].get("experiment_seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < _SEEDS):
        raise DefinitionError(f"`experiment_seed` is {seed!r}\n  expected: a whole number from 0 to {_SEEDS - 1}")
    known = {
        "trial_id": 1,
        "experiment_id": 1,
        "trial_seed": random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
        "hyperparameters": {**_constants(sections[0], hparams), **hparams},
        "configuration": {"data": {}, **config, "batches_per_step": size},
        "batches_per_step": size,
    }
    try:
        # Each child process gets a copy, as in `pedl-run`.
        return json.loads(json.dumps(known))
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"`hparams` or `config` of `pedl.local` holds what a configuration cannot hold: {error}\n"
            "  expected: texts, numbers, truth values, None, and lists and dicts of these"
        ) from None


def _check_is_dict(value: object, name: str, expected: str) -> None:
    if not isinstance(value, dict):
        raise DefinitionError(
            f"`{name}` of `pedl.local` is an object of class `{type(value).__name__}`\n  expected: {expected}"
        )


def _constants(described: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a configuration that have one value.

    Args:
        described: the section of the configuration.
        given: the hyperparameters that have a value.

    Raises:
        DefinitionError: another one would have to be drawn.
    """
    values = {}
    for name, value in described.items():
        if isinstance(value, dict) and value.get("type", "const") == "const" and "val" in value:
            values[name] = value["val"]
        elif not isinstance(value, dict) or "type" not in value:
            values[name] = value
        elif name not in given:
            raise DefinitionError(
                f"the hyperparameter `{name}` of the configuration is of type `{value['type']}`\n"
                "  expected: a value; `pedl.local` draws none",
                f'give one: `pedl.local(..., hparams={{"{name}": ...}})`',
            )
    return values


def _new_directory(given: str | os.PathLike[str] | None) -> str:
    if given is None:
        return tempfile.mkdtemp(prefix="pedl-local-")
    given = os.path.abspath(os.fspath(given))
    try:
        os.makedirs(given, exist_ok=True)
        found = os.listdir(given)
    except OSError as error:
        raise DefinitionError(
            f"the directory `{given}` cannot be used for the checkpoint: {error.strerror}\n  nothing was trained",
            "name another one, or leave `directory` out",
        ) from None
    if found:
        raise DefinitionError(
            f"the directory `{given}` is not empty\n  expected: a new or an empty one, for the checkpoint; nothing was trained",
            "name another one, or leave `directory` out",
        )
    return given


# -- the process -------------------------------------------------------------------------------------------------------


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
    if trial_class._controller != "pedl._trials.keras":
        return None
    backend = importlib.import_module("pedl._trials.keras").package_of(trial_class).backend
    return backend if hasattr(backend, "set_session") else None


def _seed(seed: int) -> None:
    seed_python(seed)
    for name, path in _SEEDING:
        function: Any = sys.modules.get(name)
        for part in path.split("."):
            function = getattr(function, part, None)
        if function is not None:
            function(seed)
