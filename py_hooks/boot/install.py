"""Intercepts a library when it is imported: version, generation, patches, and what must be ready before its first use."""
from __future__ import annotations

import atexit
import importlib
import os
import sys
import traceback

from py_hooks.engine import patch, version
from py_hooks.recording import entries, forks, recorder, step_callbacks
from py_hooks.registry import GENERATIONS
from py_hooks.script_io.given_warnings import GivenWarnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from _pedl import Trial

    from py_hooks.boot.process import _Process
    from py_hooks.script_io.output import Output

# Environment variables with which the frameworks size their pools of maths threads. The size of a pool changes floats
# (it decides how a sum is split), so a resume uses the recorded one.
_THREAD_VARIABLES = {
    "tensorflow": ("TF_NUM_INTRAOP_THREADS",),
    "jax": ("PJRT_NPROC", "NPROC"),
    "keras": ("TF_NUM_INTRAOP_THREADS", "PJRT_NPROC", "NPROC"),
}


def intercept(process: _Process, module: ModuleType) -> None:
    """Patches a library that was just imported. Ends the process if it cannot be intercepted.

    Args:
        process: what `boot` knows of this process.
        module: the library's top module.
    """
    distribution = module.__name__
    if distribution in process.trial.no_hooks:
        return
    try:
        generations = _generations(process.trial, distribution, module)
        for generation in generations:
            patch.install(generation, backend(generation))
    except (version.UnsupportedVersion, patch.PatchTargetMissing) as error:
        if not process.trial.is_child:
            process.stop(error)
        if process.trial.exact:
            # Whether the child trains cannot be seen.
            forks.trains(process.trial)
        return
    # Not earlier: only a complete library has what is needed from here on.
    calls = recorder.CALLS or begin(process)
    for generation in generations:
        if generation.prepare is not None:
            generation.prepare(calls)


def _generations(trial: Trial, distribution: str, module: ModuleType) -> list[patch.Generation]:
    """The generations of a distribution and of its parts."""
    found = version.of(module, GENERATIONS)
    names = [version.choose(distribution, found, GENERATIONS, version.place(module))]
    names += [name for part, name in version.parts(distribution, found, GENERATIONS) if part not in trial.no_hooks]
    return [importlib.import_module("py_hooks." + name).GENERATION for name in names]


def begin(process: _Process) -> recorder.Calls:
    """Called for the first library that is intercepted: makes the recorder, and what it keeps for every library."""
    trial, streams, output, files = process.trial, process.streams(), process.output(), process.files()
    calls = recorder.start(trial, streams, process.native_error)
    streams.install()
    if trial.is_child:
        # It was forked before there was a recorder: nothing is recorded here.
        calls.forked()
        return calls
    calls.checkpoints.keep("streams", streams)
    calls.checkpoints.keep("output", output)
    given_warnings = GivenWarnings()
    given_warnings.install()
    calls.checkpoints.keep("warnings", given_warnings)
    calls.lifecycle.at_begin.append(lambda: _begin_output(trial, output, calls.resumes))
    if process.clock is not None:
        process.clock.calls = calls
        calls.checkpoints.keep("clock", process.clock)
        calls.lifecycle.at_begin.append(lambda: process.clock.begin(calls.resumes))
    files.attach(calls)
    process.file_calls().watch_copies()
    sources = entries.Sources()
    calls.checkpoints.keep("sources", sources)
    calls.lifecycle.at_begin.append(lambda: sources.begin(calls))
    calls.checkpoints.keep("inputs", files.inputs)
    calls.checkpoints.keep("files", files.saved)
    calls.lifecycle.at_begin.append(files.begin)
    calls.lifecycle.at_begin.append(files.look_at_children)
    calls.lifecycle.at_save.append(files.look_at_children)
    calls.lifecycle.when_begun.append(forks.CHANGES.begin)
    calls.lifecycle.at_begin.append(process.tell_hyperparameters)
    calls.lifecycle.at_begin.append(process.watch_unasked)
    step_callbacks.attach(process, calls)
    calls.lifecycle.when_begun.append(lambda: step_callbacks.load_configured(process, calls))
    calls.lifecycle.at_begin.append(lambda: atexit.register(calls.settle))
    calls.lifecycle.at_begin.append(lambda: atexit.register(_tell_repeated_end, trial, output))
    calls.lifecycle.at_begin.append(lambda: files.inputs.begin(calls.checkpoints.states().get("inputs", {})))
    calls.lifecycle.at_begin.append(lambda: files.saved.expect(calls.checkpoints.states().get("files", {})))
    calls.files = files
    calls.lifecycle.at_stop += [files.put_back, lambda: output.end(trial.directory)]
    process.file_calls().install(process.in_place)
    _watch_outside(process, calls)
    return calls


def _watch_outside(process: _Process, calls: recorder.Calls) -> None:
    """Watches what the script changes outside of it, and what it reads from there, while it trains."""
    from py_hooks.script_io import command_starts, observations

    journal = command_starts.attach(process.trial, calls)
    command_starts.watch_os(process.in_place)
    calls.lifecycle.at_begin.append(journal.begin)
    calls.checkpoints.keep("commands", journal)
    observed = observations.Observations(calls, calls.files, journal)
    observations.install(observed, process.in_place)
    calls.lifecycle.at_begin.append(lambda: observed.begin(process.trial.directory))


def _begin_output(trial: Trial, output: Output, replaying: bool) -> None:
    if not trial.is_live:
        output.begin(trial.directory, replaying)
        return
    output.begin(trial.directory, replaying, trial.make_way)
    atexit.register(trial.end_live)


def _tell_repeated_end(trial: Trial, output: Output) -> None:
    """Reports a script that ends by the same exception as the start before it, which would otherwise print nothing."""
    error = getattr(sys, "last_value", None)
    if error is not None and output.only_repeats("stderr"):
        place = os.path.join(trial.directory, "stderr.log")
        what = "".join(traceback.format_exception_only(type(error), error)).strip()
        trial.log(f"the script ended as before, by {what}\n  its traceback is in `{place}`")


def backend(generation: patch.Generation) -> str | None:
    """The backend that a library uses, for libraries that have several.

    Raises:
        version.UnsupportedVersion: the generation has no patches for it.
        patch.PatchTargetMissing: the library does not say which one it uses.
    """
    if not generation.backends:
        return None
    module = generation.facts.backend_module
    try:
        name = importlib.import_module(module).backend()
    except (ImportError, AttributeError) as error:
        raise patch.missing(generation, f"{module}:backend", "know its backend", error) from error
    if name not in generation.backends:
        library = generation.distribution
        raise version.UnsupportedVersion(
            f"{library} on backend `{name}` is not something pedl-run can intercept\n"
            f"  known: {', '.join(sorted(generation.backends))}\n"
            "  the script was stopped before it trained",
            "choose a known backend with KERAS_BACKEND, or "
            f"pass `--no-hooks {library}` to train without checkpoints and resume",
        )
    return name


def fix_thread_pools(distribution: str, threads: int) -> None:
    """Sets the sizes of the maths pools that a library reads from the environment, unless the script's user did."""
    for name in _THREAD_VARIABLES.get(distribution, ()):
        os.environ.setdefault(name, str(threads))

