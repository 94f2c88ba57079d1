"""Connects the training loops of trial classes (`shims/pedl/_loops`) to the recorder of this process."""
from __future__ import annotations

import contextlib
import os

from py_hooks.boot import install
from py_hooks.border import ExitCode
from py_hooks.random_numbers.random_streams import PrivateStream
from py_hooks.recording import call_kinds, entries, recorder
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, NoReturn

    from py_hooks.boot.process import _Process
    from py_hooks.causes import Told
    from py_hooks.tensorflow.data.dataflows import Source
    from py_hooks.tensorflow.ranks import One, Ranks
    from py_hooks.torch.trials import Training


class RecordingHost:
    """Counts batches, records calls, and takes checkpoints, for the loop of a trial class.

    Args:
        process: what `boot` knows of this process.
        name: name of the trial class.
    """

    # The number of batches that a `fit` is to train is extended, or cut, to the plan.
    bounds_fits = True

    def __init__(self, process: _Process, name: str) -> None:
        self._process = process
        self._name = name
        # The name under which training calls are recorded.
        self._training = process.trial.intern(f"{name}.train")
        self._has_ended = False
        self._recorder: recorder.Calls | None = None

    @property
    def _calls(self) -> recorder.Calls:
        if self._recorder is None:
            # The first framework makes it; a trial of torch alone makes it here.
            self._recorder = recorder.CALLS or install.begin(self._process)
        return self._recorder

    @property
    def seed(self) -> int:
        """The seed of the trial."""
        return self._process.trial.seed

    @property
    def work_directory(self) -> str:
        """A folder in which the framework may write for the trial: a relative path below the trial directory."""
        return os.path.join(os.path.relpath(self._process.trial.directory), "work")

    @property
    def directory(self) -> str:
        """The trial directory."""
        return self._process.trial.directory

    @property
    def batches(self) -> int:
        """How many batches were trained so far."""
        return self._calls.batches

    @property
    def batches_left(self) -> int | None:
        """How many batches the plan still has; None if there is no plan."""
        return self._process.trial.batches_left

    @property
    def is_validation_due(self) -> bool:
        """Whether the model is to be validated before the next batch."""
        return (self._recorder or self._calls).boundary.validation_due

    def refuse(self, message: str, hint: str | None = None) -> NoReturn:
        """Ends the process for a mistake in the model definition."""
        error = Refusal(f"{message}\n  the trial was stopped", hint)
        error.exit_code = ExitCode.CONFIGURATION
        self._process.stop(error)

    def say(self, text: str) -> None:
        """Prints a line for the user."""
        self._process.trial.log(text)

    def described(self) -> dict[str, str]:
        """Texts that describe the definition, by what they describe."""
        return entries.describe_sources()

    def begin(self, causes: Iterable[Told] = ()) -> None:
        """The loop begins. It may have causes why it cannot be resumed exactly."""
        entries.announce(self._calls, list(causes))
        entries.compare(self._calls, self._name, entries.describe_sources())
        # Variables that were trained while the model was built, and no longer exist, do not concern the loop.
        self._lost()

    def begin_in(self, session: Any, causes: Iterable[Told] = ()) -> None:
        """The loop begins. It trains in a session of TensorFlow, or in others that are configured like it.

        Args:
            session: a session of TensorFlow.
            causes: other causes why the loop cannot be resumed exactly.
        """
        from py_hooks.tensorflow.sessions import session_causes

        self.begin([*causes, *session_causes.causes_of(session)])

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """Within it, the calls of a loop are recorded under the name of the trial class."""
        self._calls.entries.append(self._process.trial.intern(self._name))
        try:
            yield
        finally:
            self._calls.entries.pop()

    def name_metrics_of_runs(self, graph: Any, names: dict[str, str]) -> None:
        """The trial trains by runs of a session. Its metrics and validations are reported as those of the trial.

        Args:
            graph: a graph of TensorFlow.
            names: names of metrics by the names of the tensors that runs fetch.
        """
        from py_hooks.tensorflow.graphs import graphs
        from py_hooks.tensorflow.sessions import session_loops

        graphs.of(graph).metric_names.update(names)
        session_loops.EVALUATION.is_told = False

    def keep_graph(self, graph: Any, record: Any, is_training: Any, outputs: dict[str, Any]) -> None:
        """Checkpoints keep the graph of the trial, for exports. The arguments are those of `served_graphs.GraphState`."""
        from py_hooks.tensorflow import served_graphs

        state = served_graphs.GraphState(graph, record, is_training, outputs)
        self._calls.checkpoints.keep(served_graphs.STATE, state)
        self._calls.checkpoints.keep("models", served_graphs.GraphModel(self._name, state.variables))

    def fix_dataflow_seed(self) -> None:
        """Called before DataFlows of tensorpack are made: their random numbers come from the trial's seed."""
        from py_hooks.tensorflow.data import dataflows

        dataflows.fix_seed(self.seed)

    def causes_of_dataflows(self, flows: Sequence[Any]) -> list[Told]:
        """What cannot be repeated in DataFlows: causes for `begin_in`."""
        from py_hooks.tensorflow.data import dataflows

        return dataflows.causes_of(flows)

    def dataflow(self, flow: Any, is_cut: bool = False) -> Source:
        """Batches of a DataFlow. The arguments are those of `py_hooks.tensorflow.data.dataflows.Source`."""
        from py_hooks.tensorflow.data import dataflows

        return dataflows.Source(self._calls, flow, is_cut)

    def feeds_vary(self, graph: Any) -> None:
        """Runs of a graph may get other feeds in a replay than they got before: feeds are not compared."""
        from py_hooks.tensorflow.graphs import graphs

        graphs.of(graph).feeds_vary = True

    def saved_by(self, save: Callable[[str], str]) -> None:
        """Sets how one step without the host saves the model (`pedl.local`). The recorder's checkpoints need none."""

    def heed_signal(self) -> None:
        """Called after a run that trains nothing: a signal that asks for the end acts here."""
        self._calls.called()

    def watch_validations(
        self, begins: Callable[[], object], ended: Callable[[Sequence[tuple[str, float]]], list[tuple[str, float]]]
    ) -> None:
        """Has the plan's validations of a fit reported.

        Args:
            begins: called before each.
            ended: called after each, with pairs of names and values; returns them by the names that the trial gave.
        """
        self._calls.lifecycle.at_validation.append((begins, ended))

    def validate_on(self, data: Any) -> None:
        """Runs the plan's validations of a fit on data that the fit did not get."""
        self._calls.boundary.validation_data = data

    def keep_batches(self) -> None:
        """Has the metrics of each batch kept, for `of_step`."""
        self._calls.boundary.keep_batches()

    @property
    def of_step(self) -> list[dict[str, float]] | None:
        """The metrics of each batch of the step that ended last, by the framework's names; None if they are not known."""
        return self._calls.boundary.of_step

    def train(self, live: Callable[[int], Any], skip: Callable[[], object]) -> Any:
        """Trains a batch: calls `live(number)`, or `skip()` if it was trained before. Returns what `live` returned."""
        calls = self._recorder or self._calls
        return calls.perform(call_kinds.TRAIN, self._training, lambda: live(calls.batches), skip=skip)

    def validate(self, live: Callable[[], Any]) -> Any:
        """Validates the model; returns a dict of metrics."""
        return self._calls.perform(call_kinds.TEST, self._process.trial.intern(f"{self._name}.validate"), live)

    def validated(self, scalars: Sequence[tuple[str, float]]) -> None:
        """The model was validated: `(name, value)` of the metrics that are numbers."""
        self._calls.boundary.validated(scalars)

    def of_torch(self, ranks: dict[str, Any] | None = None) -> Training:
        """What else the loops of PyTorch need: `py_hooks.torch.trials.Training`.

        Args:
            ranks: what the context of the trial says of several processes that train one model.
        """
        from py_hooks.torch.trials import Training

        return Training(self._calls, ranks)

    def of_tensorflow(self, ranks: dict[str, Any] | None) -> One | Ranks:
        """The ranks that train a model of `tf.keras`, of `py_hooks.tensorflow.ranks`.

        Args:
            ranks: what the context of the trial says of several processes that train one model; None for one process.
        """
        from py_hooks.tensorflow.ranks import One, Ranks

        if not ranks:
            return One()
        calls = self._calls
        found = Ranks(calls, ranks)
        found.compare({**self.described(), "random numbers drawn so far": str(calls.streams.draws)})
        found.begin()
        calls.lifecycle.at_begin.append(found.compare_resumption)
        return found

    @contextlib.contextmanager
    def untracked(self) -> Iterator[None]:
        """Within it, nothing counts as made by the trial: its files stay at a restart, and a restart may omit it."""
        calls = self._calls
        calls.in_composite, before = True, calls.in_composite
        try:
            with calls.unrecorded(), PrivateStream("untracked", self.seed):
                yield
        finally:
            calls.in_composite = before

    def export_with_checkpoints(self, folders: Sequence[str], export: Callable[[], object]) -> None:
        """Has folders written anew for each checkpoint, as parts of it.

        Args:
            folders: their paths.
            export: writes them. A replay does not call it, so it must not change what the training depends on.
        """
        from py_hooks.tensorflow.sessions import sessions

        calls = self._calls

        def write() -> None:
            for folder in folders:
                calls.files.saving(folder)
            calls.in_composite, before = True, calls.in_composite
            try:
                with sessions.SESSIONS.aside(), calls.streams.aside():
                    export()
            finally:
                calls.in_composite = before

        calls.lifecycle.at_save.append(write)

    def finish(self) -> None:
        """The last batch was trained: takes a checkpoint of the end.

        Called again, it takes none. A loop calls it while the trained model still exists.
        """
        calls = self._calls
        if calls.begun and not self._has_ended:
            # A separate call, after what the user's callbacks did after the last validation. A checkpoint of the last batch
            # is not enough, because what it holds would depend on when it was taken.
            if calls.checked(call_kinds.COMPOSITE, self._process.trial.intern("end"), 0):
                self._check_nothing_is_lost()
                calls.checkpoints.save(is_wanted=True)
            self._has_ended = True
        if calls.agreement is not None:
            calls.agreement.end()

    def _lost(self) -> list[str]:
        return [name for find in self._calls.lost for name in find()]

    def _check_nothing_is_lost(self) -> None:
        """Checks that a checkpoint that lacks trained variables does not replace one that has them."""
        lost = self._lost()
        if not lost:
            return
        # A checkpoint that is being written is kept too.
        self._calls.guarded(self._calls.trial.wait_saved)
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        self.refuse(
            f"the session of `{self._name}` is closed, and the checkpoint of its end would lack `{lost[0]}`{more}\n"
            "  expected: a session that is open until the training is over\n"
            "  it was not saved; the checkpoint before it, if there is one, is kept",
            "look for what closes the session, as `session.close()` and `clear_session()` do",
        )
