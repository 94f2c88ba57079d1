"""Boots a trial process: runs before the script, and before anything else is imported.

It installs the import hook, notes which files the script makes and what the clock returns to it, and puts a layer below its
output, which does nothing at first. It does nothing more: a script that imports no framework runs as it would under python.
If a trial is started again, the files that it made are withdrawn. If there is a checkpoint to resume, the script's output is
dropped from here on until the resume point.
"""
from __future__ import annotations

import os
import sys

import _pedl

from py_hooks.border import ExitCode
from py_hooks.engine import guard, import_hook
from py_hooks.recording import forks
from py_hooks.refusal import Refusal
from py_hooks.registry import GENERATIONS
from py_hooks.script_io import exec_again, raw_streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any, NoReturn

    from pedl import _host
    from pedl._callbacks import Callbacks
    from pedl.frameworks.keras.data import KerasDataAdapter

    from py_hooks.datasets.item_epochs import ItemEpochs
    from py_hooks.options import Offer
    from py_hooks.random_numbers.random_streams import Streams
    from py_hooks.recording.recorder import Calls
    from py_hooks.script_io.clock import Clock
    from py_hooks.script_io.file_calls import FileCalls
    from py_hooks.script_io.files import Files
    from py_hooks.script_io.output import Output
    from py_hooks.script_io.python_children import Children
    from py_hooks.trial_classes.host import RecordingHost


class _Process:
    """What this process knows of its trial. Everything heavier is imported when a library needs it."""

    bug_code = Refusal.exit_code

    def __init__(self, trial: _pedl.Trial, native_error: type[_pedl.Error]) -> None:
        self.trial = trial
        self.native_error = native_error
        self._streams: Streams | None = None
        self._output: Output | None = None
        self._files: Files | None = None
        self._file_calls: FileCalls | None = None
        self._offer: Offer | None = None
        # Python processes that the script has started before it trained.
        self._children: Children | None = None
        self.clock: Clock | None = None
        self._urandom = os.urandom
        # The callbacks of the script, in their order; None if there are none.
        self.callbacks: Callbacks | None = None
        # Called before an error ends the process, if nothing was intercepted yet.
        self.at_stop: list[Callable[[], object]] = [self._put_back]
        # It runs a trial class, and no script.
        self.runs_trial_class = False
        # A bug of pedl-run was met: the recorder was abandoned, and nothing more is intercepted.
        self.is_aside = False
        # Errors that end the process with their message; see `engine/guard.py`.
        self.errors: tuple[type[_pedl.Error] | type[Refusal], ...] = (native_error, Refusal)
        self.in_place = _pedl.InPlace
        self.forks = forks.Forks()

    def streams(self) -> Streams:
        """The random streams of this process, made when the first generator is imported."""
        if self._streams is None:
            from py_hooks.random_numbers.random_streams import Streams

            self._streams = Streams(self.trial.seed, self.forks)
        return self._streams

    def output(self) -> Output:
        """The script's stdout and stderr, with our layer below them."""
        if self._output is None:
            # Importing it has the output given back at the end, if the script has not imported it yet.
            import atexit  # noqa: F401

            from py_hooks.script_io.output import Output

            self._output = Output()
            self._output.watch_descriptors(self.in_place)
        return self._output

    def come_last(self, module: ModuleType) -> None:
        """`atexit` was imported: our handlers, registered before all handlers of the script, run after them."""
        module.register(self._give_output_back)
        module.register(self._note_seen_files)

    def _note_seen_files(self) -> None:
        if self._files is not None:
            self._files.note_seen()

    def _give_output_back(self) -> None:
        """The process is over: what is printed after this, by destructors of the script's objects, prints as under python."""
        if self._output is not None:
            self._output.give_back()

    def files(self) -> Files:
        """The files of the script."""
        if self._files is None:
            from py_hooks.script_io.files import Files

            self._files = Files(self.trial)
        return self._files

    def file_calls(self) -> FileCalls:
        """The calls by which the script uses files."""
        if self._file_calls is None:
            from py_hooks.script_io.file_calls import FileCalls

            self._file_calls = FileCalls(self.files())
        return self._file_calls

    def seed_python(self, module: ModuleType) -> None:
        self.streams().seed_python(module)

    def seed_numpy(self, module: ModuleType) -> None:
        self.streams().seed_numpy(module)

    def fix_thread_pools(self, name: str) -> None:
        from py_hooks.boot import install

        install.fix_thread_pools(name, self.trial.threads)

    def tell_time(self, module: ModuleType) -> None:
        """A module that returns the time was imported: it now reads the trial's clock."""
        from py_hooks.script_io import clock

        clock.install(self._clock(), module, _pedl.InPlace, _pedl.type_modified)

    def watch_entropy(self) -> None:
        """Entropy that the script takes from the operating system comes from the trial's clock, made at the first request."""
        original, draw = os.urandom, None

        def before(*args: Any, **kwargs: Any) -> Any:
            nonlocal draw
            if draw is None:
                from py_hooks.script_io import clock

                draw = clock.drawn(self._clock())
            return draw(*args, **kwargs)

        self._urandom = original
        self.file_calls().drawn = self._open_drawn
        os.urandom = _pedl.InPlace(original, "os", before)

    def _open_drawn(self, *opened: Any) -> Any:
        from py_hooks.script_io import drawn_files

        return drawn_files.opened(self._clock(), *opened)

    def _clock(self) -> Clock:
        # The import makes the clock, before anything that uses it.
        import time  # noqa: F401

        from py_hooks.random_numbers import entropy
        from py_hooks.script_io import clock

        if self.clock is None:
            state = self._recorded_times()
            drawn = entropy.Entropy(self.trial.directory, state is not None, self._urandom)
            try:
                self.clock = clock.Clock(state, drawn)
            except entropy.KeyLost as error:
                self.stop(error)
        return self.clock

    def _recorded_times(self) -> dict[str, Any] | None:
        """The times in the checkpoint that will be resumed; None if there is none."""
        state = self.trial.checkpoint_state() if self.trial.resume else None
        if state is None:
            return None
        import json

        return json.loads(state).get("clock", {})

    def watch_commands(self, module: ModuleType) -> None:
        """`subprocess` was imported: commands that the script runs while it trains are run once."""
        from py_hooks.script_io import command_starts

        command_starts.watch_subprocess(module, self)

    def has_begun(self) -> bool:
        """Whether a call was recorded, or answered."""
        recorder = sys.modules.get("py_hooks.recording.recorder")
        return recorder is not None and recorder.CALLS is not None and recorder.CALLS.begun

    def environment_of_child(self, command: str, environment: Mapping[Any, Any] | None) -> Mapping[Any, Any] | None:
        """The environment for a python that the script runs before it trains, or None for the default one.

        The child reports whether it imports a framework. If nothing is trained here, a message at the end says so.

        Args:
            command: what it runs, as a user would type it.
            environment: what the script passes to it; None: the environment of this process.
        """
        if self.has_begun() or any(isinstance(name, bytes) for name in environment or ()):
            return environment
        from py_hooks.script_io import python_children

        if self._children is None:
            import atexit

            self._children = python_children.Children()
            atexit.register(self._tell_of_children, os.getpid())
        return self._children.environment_of(command, os.environ if environment is None else environment)

    def _tell_of_children(self, pid: int) -> None:
        if os.getpid() != pid:
            return
        command = self._children.end()
        if command is None or self.has_begun() or hasattr(sys, "last_value"):
            return
        what = f"nothing was trained in this process; `{command}`, which it ran, imports a framework, and is not intercepted"
        hint = f"run `pedl-run {command}` in its place: what it trains has checkpoints then"
        if self.trial.exact:
            self.trial.log_error(f"`--exact` was given, and {what}", hint)
            os._exit(ExitCode.NOT_EXACT)
        self.trial.log(f"{what}\n  {hint}")

    def watch_sqlite(self, module: ModuleType) -> None:
        self.file_calls().watch_sqlite(module, _pedl.InPlace)

    def offer_hyperparameters(self, module: ModuleType) -> None:
        """A library that reads command lines was imported: its options take hyperparameters as defaults."""
        from py_hooks import options

        if self._offer is None:
            self._offer = options.Offer(self.trial, self.stop)
        options.intercept(module.__name__, self._offer)

    def _put_back(self) -> None:
        """Before the process is ended: restores the script's files, and keeps what it printed."""
        if self._files is not None:
            self._files.put_back()
        if self._output is not None:
            self._output.end(self.trial.directory)

    def stop(self, error: _pedl.Error | Refusal) -> NoReturn:
        """Ends the process for one of our errors: message, hint and exit code, no traceback, no handlers of the script."""
        import contextlib

        try:
            # A stream that is closed, full or gone must not keep the message back.
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(AttributeError, ValueError, OSError):
                    stream.flush()
            with contextlib.suppress(OSError):
                self._put_back()
            self.trial.log_error(str(error), error.hint)
        finally:
            os._exit(error.exit_code)

    @property
    def cannot_step_aside(self) -> str | None:
        """Why a bug of pedl-run ends the run; None if the script may continue without us."""
        calls = self._calls()
        if self.trial.exact and not self.trial.is_child:
            return "`--exact` was given"
        if calls is not None and not calls.holds_values and calls.skipped:
            return "calls were answered from the log, and the models do not hold what was trained"
        if self.runs_trial_class:
            return "it is a trial class, whose loop is that of pedl-run"
        return None

    def step_aside(self, text: str) -> None:
        """A bug of pedl-run was met: reports it, and leaves the script to python."""
        from py_hooks.recording import recorder

        self.is_aside = True
        if self.trial.is_child:
            self.trial.log_of_child(text)
            return
        calls = self._calls() or recorder.start(self.trial, self.streams(), self.native_error)
        self.trial.log(text)
        calls.step_aside(text, self.at_stop)

    def end_for_bug(self, message: str, hint: str) -> NoReturn:
        """A bug of pedl-run was met, and the run cannot continue."""
        from py_hooks.recording import ending

        ending.stop(self._calls() or self, self.bug_code, message, hint)

    def end_with(self, error: _pedl.Error | Refusal) -> NoReturn:
        """One of our errors has reached code that must not see it: ends the process with its message."""
        from py_hooks.recording import ending

        ending.stop_with(self._calls() or self, error)

    @staticmethod
    def _calls() -> Calls | None:
        return getattr(sys.modules.get("py_hooks.recording.recorder"), "CALLS", None)

    def tell_hyperparameters(self) -> None:
        """Reports which options took hyperparameters, once training begins."""
        if self._offer is not None:
            self._offer.tell()

    def watch_unasked(self) -> None:
        """Training begins: at its end hyperparameters are reported that nothing has asked for."""
        if self.trial.hyperparameters != "{}":
            from py_hooks.options import unasked

            unasked.watch(self.trial, lambda: self._offer)

    def watch_signals(self, module: Any) -> None:
        """Watches signals in a replay from its beginning: a script that a signal ends there makes fewer calls than before.

        Args:
            module: `signal`. Its function `signal` is replaced by one that does the same, and learns of handlers that the
                script installs before its first intercepted call.
        """
        import functools

        original, trial = module.signal, self.trial

        @functools.wraps(original)
        def install(signalnum: int, handler: Any) -> Any:
            previous = original(signalnum, handler)
            trial.watch_signals()
            return previous

        module.signal = install
        trial.watch_signals()

    def prefer_own_pedl(self, name: str) -> None:
        """`pedl` is about to be imported: another program has the same name."""
        from py_hooks import own_package

        own_package.prefer(name, self.trial.log)

    def open_door(self, module: Any) -> None:
        """`pedl` was imported: what it asks of pedl-run, it asks this process."""
        host: _host.Host = self
        module.current = host

    def register_callbacks(self, callbacks: Callbacks) -> None:
        """See `pedl._host.Host`."""
        from py_hooks.recording import step_callbacks

        step_callbacks.register(self, callbacks)

    def start_batches(self, adapter: KerasDataAdapter, offset: int, is_validation: bool) -> ItemEpochs:
        """See `pedl._host.Host`."""
        from py_hooks.datasets import data_adapter

        return data_adapter.start(adapter, offset, is_validation)

    def run_trial_class(self) -> None:
        """Trains the trial class of the model definition in the current directory."""
        self.runs_trial_class = True
        from py_hooks.boot import trial_host
        from py_hooks.trial_classes import program

        def make_host(name: str) -> RecordingHost:
            return trial_host.RecordingHost(self, name)

        program.main(make_host)

    def seed_torch(self, module: Any) -> None:
        """`torch` was imported: seeds it from the trial; for a trial class with the trial's seed itself."""
        from py_hooks.script_io import clock

        streams = self.streams()
        streams.seed_torch(module, self.trial.seed if self.runs_trial_class else None)
        seed = streams.seeding_from_trial(module.Generator.seed)
        clock.set_attribute(module.Generator, "seed", seed, _pedl.type_modified)

    def watch_torch(self, module: Any) -> None:
        from py_hooks.torch import optimizers

        optimizers.watch(self, module)

    def watch_tf_keras(self, module: Any) -> None:
        from py_hooks.tf_keras import models

        models.watch(self, module)

    def intercept(self, module: ModuleType) -> None:
        from py_hooks.boot import install

        if not self.is_aside:
            install.intercept(self, module)


_PROCESS: _Process | None = None


def serve() -> None:
    """The program of a worker server, after `start`. Does not return."""
    from py_hooks.boot import worker_server

    worker_server.main(_PROCESS.trial)


def run_trial_class() -> None:
    """The program of a trial class, after `start`."""
    _PROCESS.run_trial_class()


def start(launch_text: str) -> None:
    """Prepares this process for the script.

    Args:
        launch_text: the launch message of the host, JSON (`src/core/trial.rs`).
    """
    global _PROCESS  # noqa: PLW0603 - there is one in a process
    _hide_hash_seed()
    process = _Process(_pedl.Trial(launch_text), _pedl.Error)
    _PROCESS = process
    libraries = sorted({row[0] for row in GENERATIONS})
    for unknown in sorted(set(process.trial.no_hooks).difference(libraries)):
        process.trial.log_error(
            f"`--no-hooks {unknown}`: no library of this name is intercepted\n"
            f"  known: {', '.join(libraries)}\n"
            "  the script was not started",
            "name one of these, or leave the option out",
        )
        os._exit(ExitCode.USAGE)
    # Before there is a thread that prints.
    raw_streams.put_below_own()
    finder = import_hook.install()
    forks.watch(process, process.forks)
    guard.PROCESS = process
    finder.when_imported("atexit", process.come_last)
    if not set(libraries).intersection(process.trial.no_hooks):
        if process.trial.resume:
            _go_on(process, finder)
        process.file_calls().install(_pedl.InPlace)
        finder.when_imported("h5py._hl.files", process.file_calls().watch_h5py)
        finder.when_imported("sqlite3.dbapi2", process.watch_sqlite)
        finder.when_imported("subprocess", process.watch_commands)
        finder.when_imported("multiprocessing.popen_spawn_posix", forks.watch_started)
        finder.when_imported("multiprocessing.popen_forkserver", forks.watch_started)
        exec_again.install(process, launch_text, _pedl.InPlace)
        finder.when_imported("tempfile", process.file_calls().watch_tempfile)
        for library in ("time", "datetime", "uuid"):
            finder.when_imported(library, process.tell_time)
        process.watch_entropy()
    finder.when_imported("random", process.seed_python)
    finder.when_imported("numpy.random.mtrand", process.seed_numpy)
    for distribution in [name for name in libraries if "." not in name]:
        finder.before_import(distribution, process.fix_thread_pools)
        finder.when_imported(distribution, process.intercept)
    finder.before_import("jax", process.fix_thread_pools)
    finder.before_import("pedl", process.prefer_own_pedl)
    finder.when_imported("pedl._host", process.open_door)
    finder.when_imported("torch", process.seed_torch)
    finder.when_imported("torch.optim.optimizer", process.watch_torch)
    finder.when_imported("tf_keras.src.engine.training", process.watch_tf_keras)
    _expect_callbacks(process)
    if process.trial.hyperparameters != "{}":
        for library in ("argparse", "absl.flags", "click"):
            finder.when_imported(library, process.offer_hyperparameters)


def _hide_hash_seed() -> None:
    """Restores the user's value of the variable that gave this process its hash seed, for the script and its children."""
    user = os.environ.pop("PEDL_USER_HASH_SEED", None)
    if user is None:
        return
    if user == "unset":
        os.environ.pop("PYTHONHASHSEED", None)
    else:
        os.environ["PYTHONHASHSEED"] = user


def _expect_callbacks(process: _Process) -> None:
    """Has callbacks reported that the configuration names and that are never called."""
    if '"callbacks"' not in os.environ.get("PEDL_CONTEXT", ""):
        return
    from py_hooks.recording import step_callbacks

    if step_callbacks.configured():
        step_callbacks.tell_if_uncalled(process)


def _go_on(process: _Process, finder: import_hook.PostImportFinder) -> None:
    """The trial had begun before: this process takes it over, and sets its files and output aside."""
    import atexit

    try:
        process.trial.hold()
        process.files().withdraw()
    except process.native_error as error:
        process.stop(error)
    except OSError as error:
        process.stop(_cannot_begin(process.trial.directory, error))
    if process.trial.has_checkpoint():
        process.output().drop()
        finder.when_imported("signal", process.watch_signals)
        atexit.register(_end, process, os.getpid())
    # Runs before `_end`, which may be the last thing that this process does.
    atexit.register(process.files().put_back)


def _cannot_begin(directory: str, error: OSError) -> Refusal:
    """The error for a trial directory in which the files of the trial cannot be set aside."""
    from py_hooks.refusal import Refusal

    refusal = Refusal(
        f"cannot begin the trial in `{directory}`\n  {error}\n  the script was not started",
        "let this user read and write there, or name another directory with `--trial-dir DIR`",
    )
    refusal.exit_code = ExitCode.CANNOT_CREATE
    return refusal


def _end(process: _Process, pid: int) -> None:
    """The script has ended. If it is still in its replay, it made fewer calls than the first time, which is reported.

    Runs after the handlers that the script registered. If an exception ended it, its traceback says why.
    """
    if os.getpid() != pid:
        return
    process.output().end(process.trial.directory)
    try:
        process.trial.end()
    except process.native_error as error:
        if not hasattr(sys, "last_value"):
            process.trial.log_error(str(error), error.hint)
            os._exit(error.exit_code)
        process.trial.log(
            "the script failed before it came to where its trial continues; each start runs it from its first line\n"
            "  if it stumbles over what an earlier start has left, remove that; the trial is kept"
        )
