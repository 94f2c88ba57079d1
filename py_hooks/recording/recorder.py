"""Recorded calls: made and written down the first time, answered from `calls.log` in a replay.

After a crash the script runs again from its first line. The code of the script really runs; the calls that this module
intercepts are answered from the log, up to the call in which the checkpoint was taken. There the saved state is restored,
and from then on every call is made.

Invariants

- Only the main thread's calls are recorded, and only outermost ones: what a recorded call does inside (`depth` > 0)
  belongs to it.
- A record is only needed up to a checkpoint. So what a call returned is kept as it is (on its device, unconverted)
  and is converted and appended at the next boundary, in one go. The result of a call for one batch is converted at once
  (`record_batch`), because the script may change it.
- Nothing is answered by guess. A call that differs from its record in kind, identity, place in the script, random
  numbers drawn or arguments ends the process with exit code 76 and a message that shows both sides.
- A call that traced (ran the user's Python in it) runs again in a replay, because tracing creates variables and
  draws seeds. Its result is discarded. If nothing was skipped before the call, its result must equal the record.
- A signal that asks for the end of the run (`src/native/preemption.rs`) acts after a recorded call, once a checkpoint
  of that moment is written. No record contains what a signal handler of the script does: from then on no checkpoint is
  taken, and a start continues from the checkpoint before it.
"""
import contextlib
import errno
import json
import os
import sys
import threading
from time import monotonic, sleep

from py_hooks import causes, places
from py_hooks.own_account import own_account
from py_hooks.recording import fingerprint
from py_hooks.refusal import Refusal

TRAIN, TEST, PREDICT, METRICS, READ, WRITE, COMPOSITE, ENTRY = 1, 2, 3, 4, 5, 6, 7, 8

# Bits of what the trial reports as due.
STEP_ENDED, CHECKPOINT_DUE, LOG_EXCEEDED, NOT_RECORDED, VALIDATION_DUE, IS_LAST, SIGNAL = 1, 2, 4, 8, 16, 32, 64
CHECKPOINT_WANTED = 128
PLANNED = VALIDATION_DUE | IS_LAST

# Lowest bit of a compute call's `arguments`: the call traced. The other bits are a checksum of the batch, if the script
# itself passed one.
TRACED = 1

# Calls that may wait for their conversion. While they wait, their results stay alive (on the device). A step boundary or a
# checkpoint usually comes first.
MAX_PENDING_CALLS = 1000

# Instructions whose line is known. Finding the line of an instruction takes longer, the further down in its code it is.
MAX_KNOWN_SITES = 10000


# The exit code of a process whose replay differs from the record.
_DIVERGED = 76

# How often to check whether a checkpoint is written, while a signal handler of the script may want to run.
_LOOK_SECONDS = 0.005

# The exit code of a process that could not write, or read, in the middle of its training.
STORAGE_FAILED = 201

_KEPT = "\n  the run was stopped; every checkpoint that was committed is kept"


class _Unrecorded:
    """See `Calls.unrecorded`."""

    __slots__ = ("_calls", "_depth")

    def __init__(self, calls):
        self._calls = calls

    def __enter__(self):
        # Nothing that other threads do is recorded, and it must not hide what the main thread does meanwhile.
        self._depth = int(self._calls.on_main_thread())
        self._calls.depth += self._depth

    def __exit__(self, *exception):
        self._calls.depth -= self._depth


class Calls:
    """The recorder of one process. `CALLS` below is the only one.

    Attributes:
        depth: greater than 0 while a recorded call runs, or a part of the framework that the script did not call.
        is_child: whether this process was forked from the one that trains.
        is_aside: whether one of our bugs was met, so that nothing is recorded any more.
        in_composite: whether a call is running that a replay does not make again; what it creates has no counterpart there.
        replaying: whether calls are answered from the log.
        epoch: the epoch of the running fit, from 0; None outside of a fit.
        batches: training calls so far, made or answered.
        traces: how often something was built, ever: a layer's Python ran, or an op was made. The difference over a call
            shows whether it traced.
        cleaned: how often Python wrote a variable, which then is not stale any more: whoever marked stale variables before
            has to mark them again.
        streams: the random streams of this process.
        arguments: checksum of the batch that the running entry received; 0 if it received none.
        entries: sites of the script's calls into the framework that are under way, innermost last.
        main_thread: identity of the thread whose calls are recorded.
        stand_ins: identities of threads in which a framework traces for the main thread, which waits for them.
        validation_due: whether the model is to be validated before the next batch.
        at_due: called first if something is due after a call that was made: before callbacks of a step, the handler of a
            signal, a checkpoint.
        at_save: called before each checkpoint, to make files that belong to it.
        at_step_end: called when a step has ended, before that is written into the journal.
        at_last: called after each batch behind which the plan has no more batches.
        validation_data: the validation data of a trial class, if this Keras would validate on it at the end of each epoch.
        at_validation: pairs of functions. The first is called before a validation of the plan. The second is called after it
            with its metrics, and returns them by the names under which they are reported.
        lost: functions that return the names of trained variables that a checkpoint would not contain, each name once.
        agreement: with the other ranks that train the same model (`ranks/agreement.py`); None if there is one process.
        own_values: knows the values of single batches for metrics that are reported as running values; None if nothing does.
        of_step: the metrics of each training call of the step that ended last, if they are kept: a list of dicts.
        keeps_batches: whether `of_step` is kept.
        steps: calls the callbacks of a script around its steps (`step_callbacks.py`); None if the script has none.
        in_step_callback: whether one of these callbacks is running.
        skipped: whether any call of this replay was answered without being made.
        sites: ids of the lines that called before, by `(id(code), instruction)`.
    """

    def __init__(self, trial, streams, native_error):
        self.trial = trial
        self.depth = 0
        self.in_composite = False
        self.is_child = False
        self.is_aside = False
        self.replaying = False
        self.begun = False
        self.batches = 0
        self.traces = self.cleaned = 0
        self.skipped = False
        self.epoch = None
        self.entries = []
        self.causes = []
        # The causes that were logged last, by one thread at a time; None if nothing was logged yet.
        self._told = None
        self._telling = threading.Lock()
        # Whether exactness is logged as soon as items of a data set were examined.
        self._is_looking = False
        self._takes_checkpoints = True
        # The exception that a recorded call of the script raised, and that the script handled.
        self._raised = None
        self.streams = streams
        self.arguments = 0
        self.state_providers = []
        self.files = None
        self.at_begin = []
        self.at_resume = []
        self.at_stop = []
        self.at_settle = []
        self.validation_due = False
        self.when_begun = []
        self.at_due = []
        self.at_save = []
        self.at_step_end = []
        self.at_last = []
        self.validation_data = None
        self.at_validation = []
        self.lost = []
        self.agreement = None
        self.own_values = None
        self.of_step = None
        self.keeps_batches = False
        self.steps = None
        self.in_step_callback = False
        # Exceptions that end the process with a message. Any other is the user's, and is not caught.
        self._ours = (native_error, Refusal)
        self._pending = []
        self._kept = {}
        self._is_log_told = False
        self.sites = {}
        self._codes = []
        self.main_thread = threading.main_thread().ident
        self.stand_ins = set()

    # -- the beginning -----------------------------------------------------------------------------------------

    def on_main_thread(self):
        """Whether the caller is in the thread whose calls are recorded, or in one that acts for it."""
        thread = threading.get_ident()
        return thread == self.main_thread or thread in self.stand_ins

    def recordable(self):
        """Whether a call made now belongs in the log: it is outermost, and in the main thread."""
        return not self.depth and threading.get_ident() == self.main_thread

    def is_outside(self):
        """Whether the caller is outside of recorded calls: the main thread between them, or a thread that the script started.

        A thread that a library has started in C++ belongs to the call for which the library needs it.
        """
        if threading.get_ident() == self.main_thread:
            return not self.depth
        if not self.begun or self.is_child or self.on_main_thread():
            return False
        return not isinstance(threading.current_thread(), threading._DummyThread)

    def read_in_thread(self):
        """Another thread reads a variable that training changes: this is a cause, unless the thread belongs to a library.

        A library starts a thread with one of its functions. The script starts it with one of its functions, or with an
        intercepted one.
        """
        frame, first = sys._getframe(1), ""
        while frame is not None:
            if not places.is_in_standard_library(frame.f_code.co_filename):
                first = frame.f_code.co_filename
            frame = frame.f_back
        if not places.is_installed_file(first):
            self.refuse_exactness(causes.READ_IN_A_THREAD())

    def unrecorded(self):
        """`with calls.unrecorded()`: the script does not ask for what this thread does, and it is not recorded."""
        return _Unrecorded(self)

    def begin(self, facts):
        """The first intercepted call: opens the trial directory, and starts a replay if a checkpoint exists."""
        self.begun = True
        try:
            self.trial.begin(facts)
            self.replaying = self.trial.resume_call > 0
            for step in self.at_begin:
                step()
        except self._ours as error:
            stop_with(self, error)
        except OSError as error:
            stop(
                self,
                73,
                f"cannot begin the trial in `{self.trial.directory}`\n  {error}\n"
                "  the script was stopped before it trained",
                "make room there, or name another directory with `--trial-dir DIR`",
            )
        for step in self.when_begun:
            step()

    def refuse_exactness(self, cause, is_told=True):
        """Notes a cause for which the run cannot be resumed exactly from here on.

        No further checkpoint is taken, unless the table of causes says so. With `--exact` the process ends with exit
        code 77 instead.

        Args:
            cause: one of `py_hooks/causes.py`, with its values.
            is_told: whether it is logged now; otherwise the caller logs it, with `tell_exactness`.
        """
        if cause in self.causes:
            return
        self.causes.append(cause)
        if not causes.takes_checkpoints(cause):
            self._keep_nothing()
        if self.trial.exact:
            stop(
                self,
                77,
                f"`--exact` was given, and this run cannot be resumed exactly: {cause}\n"
                f"  the script was stopped here{'; its last checkpoint is kept' if self.begun else ', before it trained'}",
                f"{cause.cause.cure}, or run it without `--exact`",
            )
        if self.begun and is_told:
            self.tell_exactness()

    @property
    def takes_checkpoints(self):
        """Whether checkpoints are taken: so far a checkpoint can hold everything."""
        return self._takes_checkpoints

    def _keep_nothing(self):
        """No further checkpoint is taken, and so no signal waits for one."""
        self._takes_checkpoints = False
        self.trial.keep_nothing()

    def tell_exactness(self):
        """Logs whether the run can be resumed exactly, and notes it in the journal, unless the same was logged last."""
        with self._telling:
            texts = [str(cause) for cause in self.causes]
            if texts == self._told:
                return
            self._told = texts
            self.trial.log(self._exactness_of(texts))
            members = {"exact": not texts, "causes": texts, "batch": self.batches}
            self.trial.event(json.dumps(dict(members, event="exactness")))

    def tell_when_looked(self):
        """As `tell_exactness`, as soon as `looked` reports that data was examined."""
        self._is_looking = True

    def looked(self):
        """Items of a data set were examined, or an entry of the script has ended: logs what waits for that."""
        if self._is_looking:
            self._is_looking = False
            self.tell_exactness()

    def stand_aside(self):
        """In a forked child, and in a worker server, nothing is recorded: every call is only made."""
        self.depth += 1 << 20
        # Another thread of the parent may have held the lock.
        self._telling = threading.Lock()

    def forked(self):
        """This process is a forked child."""
        self.is_child = True
        self._pending = []
        self.stand_aside()

    def step_aside(self, text, at_stop):
        """One of our bugs was met (`engine/guard.py`): nothing is recorded from here on, and every call is only made.

        Args:
            text: the message about the bug.
            at_stop: what is done if a process ends before its first call.
        """
        self.depth += 1
        try:
            self._keep_nothing()
            self._pending = []
            if self.replaying or not self.begun:
                # There is no replay: what was withdrawn and dropped for it is put back.
                _put_back(at_stop)
            if self.begun:
                self._leave(text)
        finally:
            self.depth -= 1
        self.replaying = False
        self.is_aside = True
        self.stand_aside()
        self.trial.stand_aside()

    def _leave(self, text):
        with contextlib.suppress(*self._ours):
            self.trial.event(json.dumps({"event": "exactness", "exact": False, "causes": [text], "batch": self.batches}))
        with contextlib.suppress(*self._ours):
            self.trial.wait_saved()
        if self.trial.pending_signal:
            self.trial.preempt(False)

    def _exactness_of(self, texts):
        """The log line about whether the run can be resumed exactly; if not, with the reasons and the consequence."""
        if not texts:
            return "exact resume: yes"
        means = "checkpoints are taken all the same" if self._takes_checkpoints else "no checkpoints are taken"
        return "exact resume: no: {}; {}".format("; ".join(texts), means)

    # -- places ------------------------------------------------------------------------------------------------

    def site(self):
        """Where the script is: an id of `file:line`, of the running entry or else of the innermost user's frame."""
        if self.entries:
            return self.entries[-1]
        frame = sys._getframe(1)
        # Skips the frames of a framework, which are several, without a call for each.
        while frame.f_back is not None and places.KNOWN.get(frame.f_code.co_filename) is False:
            frame = frame.f_back
        return self.site_from(frame)

    def site_of(self, frame):
        """The id of the line that a frame is in; None if that takes longer to find: `site` finds it."""
        return None if self.entries else self.sites.get((id(frame.f_code), frame.f_lasti))

    def site_from(self, frame):
        """The id of the line of the user's code in which a frame is, or the frame that called it, and so on."""
        code, instruction = frame.f_code, frame.f_lasti
        known = self.sites.get((id(code), instruction))
        if known is not None:
            return known
        user = places.user_frame(frame)
        if user is not None and user is not frame:
            # The next time that line is known.
            return self.site_from(user)
        file, line = ("?", 0) if user is None else (user.f_code.co_filename, user.f_lineno)
        site = self.trial.intern(f"{places.display_path(file)}:{line}")
        if user is frame:
            if len(self.sites) >= MAX_KNOWN_SITES:
                self.sites.clear()
                del self._codes[:]
            self.sites[id(code), instruction] = site
            # Kept, so that no other code object gets its id.
            self._codes.append(code)
        return site

    def position(self):
        """How many calls were recorded, or answered, so far."""
        return self.trial.position + len(self._pending)

    # -- recording and answering ---------------------------------------------------------------------------------

    def record(self, kind, identity, arguments, value, site=None):
        """Notes a call that was just made. The caller keeps `depth` above 0 while it makes it."""
        if site is None:
            site = self.entries[-1] if self.entries else self.site()
        self._pending.append((kind, identity, site, self.streams.draws, arguments, value))
        if len(self._pending) >= MAX_PENDING_CALLS:
            self.append_pending()

    def refuse_in_callback(self):
        """A step callback of the script makes a call that would have to be recorded: ends a fit, else refuses exactness."""
        if self.entries:
            stop(
                self,
                65,
                f"{causes.CALLBACK_CALLS()}, within a `fit`\n"
                "  expected: hooks that use what they are told, and the script's own data\n"
                "  the run was stopped; its last checkpoint is kept",
                "do that in a callback of Keras, or after the `fit`",
            )
        self.in_step_callback = False
        self.refuse_exactness(causes.CALLBACK_CALLS())

    def answer(self, kind, identity, arguments, tensor=None):
        """The value that the same call returned the first time. Ends the process if the record differs."""
        self.skipped = True
        try:
            return self.trial.answer(kind, identity, self.site(), self.streams.draws, arguments, tensor)
        except self._ours as error:
            stop_with(self, error)

    def next_arguments(self):
        """The arguments of the next record; 0 at the end of the log, where `answer` reports the error."""
        record = self.guarded(self.trial.peek)
        return record[2] if record is not None else 0

    def check(self, kind, identity, arguments, value):
        """Consumes the record of a call that was made again, and whose value must equal the recorded one."""
        try:
            self.trial.check(kind, identity, self.site(), self.streams.draws, arguments, value)
        except self._ours as error:
            stop_with(self, error)

    def answered(self):
        """Ends the replay if the last call before the checkpoint was answered. Returns True if it was."""
        if self.trial.position < self.trial.resume_call:
            return False
        self.resume()
        return True

    def call(self, kind, identity, live, arguments=0, tensor=None, raises=()):
        """A whole recorded call: calls `live()`, or in a replay returns its recorded value.

        The value is converted at once: it may be an array that the next training call donates. If the call raises, it has
        no record, so no checkpoint is taken after it. Exceptions of the types in `raises` do not count: in a replay the
        call raises them too, by itself.
        """
        if self.in_step_callback:
            self.refuse_in_callback()
        if not self.replaying:
            self.depth += 1
            self.in_composite = kind == COMPOSITE
            try:
                value = live()
            except BaseException as error:
                if not isinstance(error, raises):
                    self._raised = type(error).__name__
                raise
            finally:
                self.depth -= 1
                self.in_composite = False
            self.record(kind, identity, arguments, value)
            self.append_pending()
            return value
        value = self.answer(kind, identity, arguments, tensor)
        self.answered()
        return value

    def checked(self, kind, identity, arguments):
        """Code of the script did something, which it does in a replay too: its checksum is recorded, or compared."""
        if self.in_step_callback:
            self.refuse_in_callback()
        if not self.replaying:
            self.record(kind, identity, arguments, None)
        else:
            self.check(kind, identity, arguments, None)
            self.answered()

    def append_pending(self):
        """Converts and appends the calls that wait."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self.depth += 1
        try:
            with own_account():
                opaque = self.trial.append(pending)
        except self._ours as error:
            stop_with(self, error)
        finally:
            self.depth -= 1
        for type_name in opaque or ():
            self.refuse_exactness(causes.UNRECORDABLE(kind=type_name))
        if self.trial.log_exceeded:
            self._refuse_longer_log()

    def settle(self):
        """The script has ended: appends its last calls, and waits for its last checkpoint.

        The training is complete, so a failure in here is not a failure of the run.
        """
        if self.is_child or self.is_aside:
            return
        pending, self._pending = self._pending, []
        self.depth += 1
        for step in self.at_settle:
            with contextlib.suppress(*self._ours):
                step()
        if pending:
            with contextlib.suppress(*self._ours):
                self.trial.append(pending)
        self.trial.settle()

    def note_kept(self, name, size):
        """Notes that `size` bytes of the log hold the value of this name."""
        self._kept[name] = self._kept.get(name, 0) + size

    def _refuse_longer_log(self):
        if self._is_log_told:
            return
        self._is_log_told = True
        largest = ""
        if self._kept:
            name, size = max(self._kept.items(), key=lambda each: each[1])
            largest = f"; the values of `{name}` take {size / 1e6:.1f} MB of it"
        self.refuse_exactness(causes.LOG_LIMIT(largest=largest))

    # -- training calls ----------------------------------------------------------------------------------------

    def trained(self, batches=1):
        """A training call was recorded: counts its batches, and does what is due at this boundary.

        Args:
            batches: how many batches the call took.
        """
        self.batches += batches
        due = self.trial.batch_done(monotonic())
        for _ in range(1, batches):
            due = self._step_ended_inside(due) | self.trial.batch_done(monotonic())
        if self.agreement is not None:
            due = self.agreement.of_batch(due)
        if due:
            self.append_pending()
            self._do(due)

    def _step_ended_inside(self, due):
        """A batch of a call with several batches is counted: ends its step. Whatever else is due waits for the others."""
        if due & STEP_ENDED:
            self.append_pending()
            self._do(STEP_ENDED)
        return due & ~STEP_ENDED

    def record_batch(self, function, site, is_traced, values, named_values, result):
        """A call on a batch was made: does `record`, notes the changes, and for a training call does `trained`.

        The result is converted at once, because the script may change it. The caller keeps `depth` above 0.

        Args:
            function: the compute function.
            site: the script's line.
            is_traced: whether the call built something.
            values: the batch, as the call received it.
            named_values: the part of the batch that has names.
            result: what the call returned.
        """
        if function.cleaned != self.cleaned:
            function.note_changes(self)
        if self._pending:
            self.append_pending()
        kind = function.kind
        try:
            due = self.trial.record_batch(
                kind, function.identity, site, self.streams.draws, is_traced, values, named_values, result, monotonic()
            )
        except self._ours as error:
            stop_with(self, error)
        if due & NOT_RECORDED:
            self._record_other_batch(function, site, self.checksum_of(values, named_values) | is_traced, result)
            return
        if kind == TRAIN:
            self.batches += 1
        elif self.entries:
            due &= ~SIGNAL
        if due:
            self._do(due)

    def _record_other_batch(self, function, site, arguments, result):
        """As `record_batch`, if something in the batch or in its result takes longer to record."""
        self.record(function.kind, function.identity, arguments, result, site)
        self.append_pending()
        if function.kind == TRAIN:
            self.trained()
        elif not self.entries:
            self.called()

    def guarded(self, function, *args):
        """What `function(*args)` of the trial returns. Ends the process if it raises one of our errors."""
        try:
            return function(*args)
        except self._ours as error:
            return stop_with(self, error)

    def _do(self, due):
        """Does what is due after a call whose record is appended."""
        for step in self.at_due:
            step()
        if due & STEP_ENDED:
            for step in self.at_step_end:
                step()
            self.guarded(self.trial.end_step, self.epoch)
            self._step_ended()
        if due & LOG_EXCEEDED:
            self._refuse_longer_log()
        if due & SIGNAL:
            heed = self.heed_signal if self.agreement is None else self.agreement.heed_signal
            heed()
        elif due & CHECKPOINT_DUE and self._takes_checkpoints:
            self.save(is_wanted=bool(due & CHECKPOINT_WANTED))
        if due & PLANNED:
            self._go_by_plan(due)

    def _step_ended(self):
        """A step has ended, in a replay or not: calls what follows the steps."""
        if self.keeps_batches:
            self.of_step = self._batches_of_step()
        if self.steps is not None:
            self.steps.step_ended()

    def keep_batches(self):
        """From here on the metrics of each training call are kept, for `of_step`."""
        self.keeps_batches = True
        self.trial.keep_batch_metrics()
        if self.own_values is not None:
            self.own_values.keep()

    def _batches_of_step(self):
        """The metrics of each training call of the step: the value of the single batch if it is known, else what was reported."""
        reported = self.trial.take_batch_metrics()
        identity = self.trial.intern("metrics of the batches of a step")
        own = None
        if self.replaying:
            record = self.guarded(self.trial.peek)
            if record is not None and record[:2] == (METRICS, identity):
                own = self.answer(METRICS, identity, 0)
        elif self.own_values is not None:
            own = self.own_values.own_values(reported)
            if own is not None:
                import numpy

                own = numpy.array(own, "float32")
                self.record(METRICS, identity, 0, own)
                self.append_pending()
        batches = [values for _, values in reported]
        if own is not None:
            numbers = iter(own.tolist())
            for values in batches:
                # If a number is NaN, the reported value is kept.
                values.update((name, number) for name, number in zip(list(values), numbers) if number == number)
        return batches

    def called(self):
        """A call that trains nothing was made and recorded: heeds a signal that waits.

        A call that the script makes within a fit does not: there Keras 3 may hold the values of the variables elsewhere.
        """
        if self.trial.signal_calls and not self.replaying and len(self.entries) < 2 and self.agreement is None:
            self.heed_signal()

    # -- signals that ask for the end ----------------------------------------------------------------------------

    def heed_signal(self):
        """A signal waits: takes a checkpoint, waits until it is written, and lets the signal act.

        Returns if the script has a handler. The handler has run by then, and what it raised is raised here.
        """
        if not self.trial.pending_signal:
            # The signal waited for too long, or acted at once, and the script continues to train.
            if self.guarded(self.trial.trained_on):
                self._keep_nothing()
            return
        was_saved = self._takes_checkpoints and self._save_for_signal()
        flush_streams()
        self._keep_nothing()
        # Calls that the handler makes are calls of the script.
        depth, self.depth = self.depth, 0
        try:
            self.guarded(self.trial.preempt, was_saved)
        finally:
            self.depth = depth

    def _save_for_signal(self):
        """Whether a checkpoint was taken and completed before the signal had to act."""
        # Waits in Python, so that a handler of the script can run when the time is over.
        self._wait_while_saving()
        if self.trial.pending_signal:
            self.save(is_wanted=True)
            self._wait_while_saving()
        if not self.trial.pending_signal:
            return False
        self.guarded(self.trial.wait_saved)
        return self._takes_checkpoints

    def _wait_while_saving(self):
        while self.trial.pending_signal and self.trial.saving():
            sleep(_LOOK_SECONDS)

    def _go_by_plan(self, due):
        if due & VALIDATION_DUE:
            self.validation_due = True
        if due & IS_LAST:
            for step in self.at_last:
                step()

    def validated(self, metrics):
        """The model was validated after the last batch: takes a checkpoint of it if one is due.

        Args:
            metrics: `(name, value)`, as the framework reports them.
        """
        self.validation_due = False
        wanted = self.guarded(self.trial.validated, self.epoch, metrics)
        if self.steps is not None:
            self.steps.validated(metrics)
        # A separate call, so that a replay can end here.
        self.checked(COMPOSITE, self.trial.intern("validation"), 0)
        if wanted and (self._takes_checkpoints or self.agreement is not None):
            self.save(is_wanted=True)

    def checksum_of(self, values, named_values):
        """The checksum of a batch, an even number, whatever the batch contains."""
        checksum = self.trial.batch_checksum(values, named_values)
        if checksum:
            return checksum
        values += tuple(named_values.values())
        if fingerprint.holds_symbolic(values):
            # An answered call would not take the next element of the iterator that yields these tensors.
            self.refuse_exactness(causes.TENSORS_BY_HAND())
        with own_account():
            return fingerprint.quick(values) & ~TRACED

    def trained_before(self, batches=1):
        """A training call was answered from the log: counts its batches."""
        self.batches += batches
        due = 0
        for _ in range(batches):
            of_batch = self.trial.batch_done(monotonic())
            if of_batch & STEP_ENDED:
                self._step_ended()
            due |= of_batch
        if due & PLANNED:
            self._go_by_plan(due)

    # -- state ---------------------------------------------------------------------------------------------------

    def save(self, is_wanted=False):
        """Takes a checkpoint of the state as it is after the last recorded call.

        If another one is being written, this one is skipped. If `is_wanted`, a checkpoint of exactly this state is needed:
        then this one waits for the other.
        """
        if self.trial.saving() and not is_wanted:
            return
        if self.agreement is not None and not self.agreement.may_save():
            return
        if self._raised is not None:
            self.refuse_exactness(causes.HANDLED(kind=self._raised))
            return
        self.append_pending()
        self.depth += 1
        try:
            for step in self.at_save:
                step()
            with own_account():
                self._capture_and_save()
        except self._ours as error:
            stop_with(self, error)
        finally:
            self.depth -= 1

    def _capture_and_save(self):
        tensors, states = [], []
        for name, provider in self.state_providers:
            held, state = provider.capture()
            tensors.extend((f"{name}/{key}", value) for key, value in held)
            states.append((name, state))
        # Otherwise a provider has met something that it cannot save.
        if self._takes_checkpoints:
            self.trial.save(self.epoch, tensors, to_json(dict(states)), self.files.saved_paths())

    def checkpoint_states(self):
        """What the providers' `capture` returned for the checkpoint, by their names; empty if there is no checkpoint."""
        return from_json(self.trial.checkpoint_state())

    def resume(self):
        """Restores the state of the checkpoint. The call in which it was taken is the last one that was answered."""
        self.replaying = False
        self.depth += 1
        try:
            states = self.checkpoint_states()
            tensors = {}
            for name, value in self.trial.checkpoint_tensors():
                provider, _, key = name.partition("/")
                tensors.setdefault(provider, {})[key] = value
            with own_account():
                for name, provider in self.state_providers:
                    provider.restore(tensors.get(name, {}), states.get(name))
        except self._ours as error:
            stop_with(self, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the script must not train on what is half put in
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            stop(
                self,
                70,
                f"the state of the checkpoint cannot be put in\n  {what}{_KEPT}",
                "this is a bug of pedl; report it with the lines above",
            )
        finally:
            self.depth -= 1
        for step in self.at_resume:
            step()


CALLS = None


def start(trial, streams, native_error):
    """Makes the recorder of this process."""
    global CALLS  # noqa: PLW0603 - made once, when the first library is intercepted
    CALLS = Calls(trial, streams, native_error)
    if trial.serves is not None:
        CALLS.stand_aside()
    os.register_at_fork(after_in_child=CALLS.forked)
    return CALLS


def flush_streams():
    """Flushes what the script has printed, as far as possible.

    A stream that is closed, or that the script replaced by something else, holds nothing that could be lost. Nor does a
    stream that is in the middle of a write: what it wrote is printed.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError, OSError, RuntimeError):
            stream.flush()


def stop_with(calls, error):
    """Ends the process because of one of our errors, with its message, hint and exit code."""
    message = str(error)
    if error.exit_code == STORAGE_FAILED:
        message += _KEPT
    stop(calls, error.exit_code, message, error.hint)


def stop_for_file(calls, path, error):
    """Ends the process because a file of the trial cannot be written: the script did not cause this failure."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    help = "make room" if is_full else "look after the file system"
    stop(
        calls,
        STORAGE_FAILED,
        f"cannot write `{path}`\n  {error.strerror} (os error {error.errno}){_KEPT}",
        help + " and run the same command again: it continues",
    )


def stop(calls, code, message, hint=None):
    """Ends the process at once: one message, no traceback, no handlers of the script. Puts the files of the script back.

    A script that handles a signal in the middle of its replay does not repeat the first run. That is not an error: the
    process ends by the signal.
    """
    try:
        _put_back(calls.at_stop)
        if code == _DIVERGED and calls.trial.received_signal:
            calls.trial.die_of(calls.trial.received_signal)
        calls.trial.log_error(message, hint)
    finally:
        os._exit(code)


def end(holder, code):
    """Ends the process at once, as `stop` does, if the reason was logged before."""
    try:
        _put_back(holder.at_stop)
    finally:
        os._exit(code)


def _put_back(at_stop):
    flush_streams()
    for step in at_stop:
        # A disk or file that is full or gone must not suppress the message.
        with contextlib.suppress(OSError):
            step()


def to_json(value):
    """JSON text of a provider's state."""
    import json

    return json.dumps(value, sort_keys=True)


def from_json(text):
    """The value of a JSON text; an empty dict for None."""
    import json

    return json.loads(text) if text is not None else {}
