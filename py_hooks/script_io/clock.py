"""The wall clock, and what the operating system draws: a replay returns to the script what the first run returned.

Scripts name folders by `time.strftime(...)`, decide by `time.time()` how long they train, and draw a seed by
`secrets.randbits(32)`. So the module notes what the clock of the `time` module, `datetime.now`, `utcnow` and `today`,
`date.today`, and `uuid.uuid1` return to files of the user, and a replay returns it again. An answer is found by the line
that asks, the recorded call that came before, and how many times that line had asked since. Lines that a replay does not
run (in muted code) leave no gap.

What `os.urandom` (with `secrets` and `SystemRandom`, which call it) and `uuid.uuid4` return to those lines may be secret,
so it is not noted. It is computed from the place of the call, with a key that the trial drew once from the operating system
(`entropy.py`).

Answers are in memory, and in the checkpoints, so they need no file. A start reads those of the newest checkpoint before the
script begins. Without a checkpoint nothing is kept, and the clock is the real one.

A replay has no answer beyond the `MAX_ANSWERS` that are kept, or if code takes another path and asks elsewhere. Then the
clock continues from the last answer at its normal pace, so it never jumps and never stops. From the resume point on the clock
is the real one; a time limit that has passed meanwhile has passed.

Not touched: `monotonic`, `perf_counter` and `process_time`, which show no date; what libraries ask; other threads and
processes; what C code asks by itself (`pandas.Timestamp.now`, `numpy.datetime64("now")`).

`datetime.datetime` is a type of C code. It can be neither changed by `setattr` nor replaced by a subclass without harm (to
`type(x)`, pickles, and code that already holds the type). Its dictionary can be changed: `now` and `utcnow` are replaced in
it, and the type stays the same object. `today` needs nothing, because it calls the `time` module.
Source: CPython 3.7 to 3.13, Modules/_datetimemodule.c, `datetime_now`, `datetime_utcnow`, `datetime_today`.
"""
from __future__ import annotations

import os
import time
from _thread import get_ident
from sys import _getframe

from py_hooks import causes, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any

    import numpy

    from py_hooks.random_numbers.entropy import Entropy
    from py_hooks.recording.recorder import Calls

# Over all lines. A line that asks once per batch uses them up after this many batches. Each takes some 15 bytes in every
# checkpoint.
MAX_ANSWERS = 100_000

# In the state of a checkpoint, beside the lines: which key the trial drew with. No line has this name.
_KEY = "key"

_TIME, _UUID1, _UUID4 = "clock", "uuid1", "uuid4"

_SECOND = 10**9
_now = time.time_ns
_known = places.KNOWN


class _Line:
    """The answers that one line received. Numbers are kept as differences, which are short in a checkpoint.

    Attributes:
        positions: the number of recorded calls before each answer.
        values: the answers: nanoseconds since 1970, or the number of a UUID, or of drawn bytes.
    """

    def __init__(self, positions: Iterable[int] = (), values: Iterable[int] = ()) -> None:
        self.positions = list(positions)
        self.values = list(values)
        self._last = [sum(self.positions), sum(self.values)]
        self._next = 0
        self._read = [0, 0]

    def note(self, position: int, value: int) -> None:
        """Adds an answer."""
        self.positions.append(position - self._last[0])
        self.values.append(value - self._last[1])
        self._last[:] = position, value

    def answer(self, position: int) -> int | None:
        """The next answer that was given after `position` calls; None if there is none."""
        while self._next < len(self.positions):
            recorded = self._read[0] + self.positions[self._next]
            if recorded > position:
                return None
            self._read[0] = recorded
            self._read[1] += self.values[self._next]
            self._next += 1
            if recorded == position:
                return self._read[1]
        return None

    def forget_rest(self) -> None:
        """Keeps only the answers that were given so far."""
        del self.positions[self._next:], self.values[self._next:]
        self._last[:] = self._read


class Clock:
    """The clock of this process, and a provider of state. Made in the main thread.

    Args:
        state: what `capture` returned for the checkpoint that will be resumed; None if there is none.
        entropy: the random bytes of the operating system; None if nothing is drawn.

    Attributes:
        calls: the recorder, once there is one.
    """

    def __init__(self, state: dict[str, Any] | None, entropy: Entropy | None = None) -> None:
        self.calls: Calls | None = None
        self._entropy = entropy
        self._is_replay = state is not None
        self._load(state or {})
        self._thread = get_ident()
        self._pid = os.getpid()
        # The last answer of a replay, and the time of the real clock then.
        self._reached: tuple[int, int] | None = None
        if state and _KEY in state:
            entropy.expect(state[_KEY])

    def _load(self, state: dict[str, Any]) -> None:
        self._named = {name: _Line(*answers) for name, answers in state.items() if name != _KEY}
        self._count = sum(len(line.values) for line in self._named.values())
        self._lines: dict[tuple[str, int, str], _Line] = {}

    # -- answers to the script -------------------------------------------------------------------------------------

    def is_asked_by_user(self, frame: FrameType) -> bool:
        """Whether the questions of a frame are noted."""
        if not places.is_user_file(frame.f_code.co_filename):
            return False
        return get_ident() == self._thread and os.getpid() == self._pid

    def now(self, frame: FrameType) -> int:
        """Nanoseconds since 1970, for the line that a frame is in."""
        told = self._tell(frame, _TIME, _now)
        if told is None:
            reached, then = self._reached or (_now(), _now())
            return reached + max(0, _now() - then)
        if self._is_replay:
            self._reached = told, _now()
        return told

    def number(self, frame: FrameType, kind: str, draw: Callable[[], int]) -> int:
        """The number of a UUID that is made from the time; `draw()` makes one if there is no recorded answer."""
        told = self._tell(frame, kind, draw)
        return draw() if told is None else told

    def draw(self, frame: FrameType, kind: str, size: int) -> int:
        """`size` random bytes of the operating system, as a number, for the line that a frame is in."""
        if self._is_replay:
            # A trial that an earlier version began has noted what was drawn.
            noted = self._line(frame, kind).answer(self._position())
            if noted is not None:
                return noted
        is_begun = self.calls is not None and self.calls.begun
        drawn = self._entropy.draw(self._name(frame, kind), self._position(), size)
        if is_begun:
            self._keep_key()
        return drawn

    def _keep_key(self) -> None:
        try:
            self._entropy.keep()
        except OSError as error:
            self.calls.exactness.refuse(causes.UNKEPT_DRAWS(error=error))

    def _tell(self, frame: FrameType, kind: str, live: Callable[[], int]) -> int | None:
        """The answer for a line: a new one, which is noted, or in a replay the noted one. None if a replay has no answer."""
        line, position = self._line(frame, kind), self._position()
        if self._is_replay:
            return line.answer(position)
        value = live()
        if self._count < MAX_ANSWERS:
            self._count += 1
            line.note(position, value)
        return value

    def _position(self) -> int:
        """The number of calls that were recorded before."""
        calls = self.calls
        return 0 if calls is None or not calls.begun else calls.position()

    def _line(self, frame: FrameType, kind: str) -> _Line:
        key = frame.f_code.co_filename, frame.f_lineno, kind
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._named.setdefault(self._name(frame, kind), _Line())
        return line

    def _name(self, frame: FrameType, kind: str) -> str:
        return f"{places.display_path(frame.f_code.co_filename)}:{frame.f_lineno} {kind}"

    # -- the life of a trial ---------------------------------------------------------------------------------------

    def begin(self, is_replay: bool) -> None:
        """The trial has begun; if there is no replay, no more recorded answers are given."""
        if self._entropy is not None and self._entropy.has_drawn:
            self._keep_key()
        if self._is_replay and not is_replay:
            self._is_replay = False
            for line in self._named.values():
                line.forget_rest()

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, Any]]:
        """All answers so far, by line: part of a checkpoint."""
        lines: dict[str, Any] = {name: [line.positions, line.values] for name, line in self._named.items() if line.values}
        if self._entropy is not None and self._entropy.has_drawn:
            lines[_KEY] = self._entropy.name()
        return [], lines

    def restore(self, tensors: dict[str, numpy.ndarray], state: dict[str, Any] | None) -> None:
        """The replay is over: the clock is the real one, and new answers are added to those of the checkpoint."""
        self._is_replay = False
        self._load(state or {})


def _without_arguments(args: tuple[Any, ...]) -> bool:
    return not args


def _without_time(args: tuple[Any, ...]) -> bool:
    return not args or args == (None,)


def _with_format(args: tuple[Any, ...]) -> bool:
    return len(args) == 1 and isinstance(args[0], str)


def _at(original: Callable[..., Any], now: int, args: tuple[Any, ...]) -> Any:
    return original(now // _SECOND)


# Which calls of a function ask for the time, and its answer. Source: CPython 3.7, 3.13, Modules/timemodule.c.
_FUNCTIONS: dict[str, tuple[Callable[[tuple[Any, ...]], bool], Callable[[Callable[..., Any], int, tuple[Any, ...]], Any]]] = {
    "time": (_without_arguments, lambda original, now, args: now / _SECOND),
    "time_ns": (_without_arguments, lambda original, now, args: now),
    "localtime": (_without_time, _at),
    "gmtime": (_without_time, _at),
    "ctime": (_without_time, _at),
    "asctime": (_without_arguments, lambda original, now, args: original(_localtime(now // _SECOND))),
    "strftime": (_with_format, lambda original, now, args: original(args[0], _localtime(now // _SECOND))),
}
_localtime: Callable[[float], time.struct_time]
_gmtime: Callable[[float], time.struct_time]
_localtime, _gmtime = time.localtime, time.gmtime


def install(clock: Clock, module: Any, in_place: Callable[..., Any], type_modified: Callable[[type], None]) -> None:
    """Makes this module ask the clock, if the script calls it. Runs before anything binds a function of the module.

    Args:
        clock: the clock.
        module: `time`, `datetime` or `uuid`.
        in_place: makes the replacement of a builtin function (`src/native/in_place.rs`).
        type_modified: notifies Python that the dictionary of a type was changed behind its back.
    """
    if module.__name__ == "datetime":
        _in_datetime(clock, module, in_place, type_modified)
    elif module.__name__ == "uuid":
        _in_uuid(clock, module)
    else:
        for name, (is_of_now, answer) in _FUNCTIONS.items():
            original = getattr(time, name)
            setattr(time, name, in_place(original, "time", _function(clock, original, is_of_now, answer), _known))


def _function(
    clock: Clock,
    original: Callable[..., Any],
    is_of_now: Callable[[tuple[Any, ...]], bool],
    answer: Callable[[Callable[..., Any], int, tuple[Any, ...]], Any],
) -> Callable[..., Any]:
    def before(*args: Any, **kwargs: Any) -> Any:
        frame = _getframe().f_back
        if frame is None or not _known.get(frame.f_code.co_filename, True):
            return NotImplemented
        if kwargs or not is_of_now(args) or not clock.is_asked_by_user(frame):
            return NotImplemented
        return answer(original, clock.now(frame), args)

    return before


def _in_datetime(clock: Clock, module: Any, in_place: Callable[..., Any], type_modified: Callable[[type], None]) -> None:
    """Replaces `now` and `utcnow` of the type, which stays the same object."""
    kind = module.datetime
    attributes = vars(kind)
    from_timestamp = attributes["fromtimestamp"]
    deprecated = _deprecation(kind.utcnow)

    def now(cls: type[Any], tz: Any = None, *wrong: object) -> Any:
        frame = _getframe().f_back
        if frame is None or not _known.get(frame.f_code.co_filename, True) or not clock.is_asked_by_user(frame):
            return NotImplemented
        if wrong or not (tz is None or isinstance(tz, module.tzinfo)):
            return NotImplemented
        # To a microsecond: a float of this size can distinguish those.
        return from_timestamp.__get__(None, cls)(clock.now(frame) // 1000 / 10**6, tz)

    def utcnow(cls: type[Any], *wrong: object) -> Any:
        frame = _getframe().f_back
        if wrong or frame is None or not clock.is_asked_by_user(frame):
            return NotImplemented
        if deprecated:
            import warnings

            warnings.warn(deprecated, DeprecationWarning, stacklevel=2)
        nanoseconds = clock.now(frame)
        return cls(*_gmtime(nanoseconds // _SECOND)[:6], nanoseconds % _SECOND // 1000)

    for name, before in (("now", now), ("utcnow", utcnow)):
        replaced = in_place(attributes[name], kind.__module__, before)
        set_attribute(kind, name, classmethod(replaced), type_modified)


def _deprecation(function: Callable[[], object]) -> str | None:
    """How a function warns that it is deprecated, as `utcnow` does from Python 3.12 on; None if it does not."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return str(caught[0].message) if caught else None


def set_attribute(kind: type, name: str, value: object, type_modified: Callable[[type], None]) -> None:
    """Sets an attribute of a type, also if the type is one of C code."""
    try:
        setattr(kind, name, value)
    except TypeError:
        import gc

        # `vars` returns a view of the dictionary, which refers to the dictionary only.
        (attributes,) = gc.get_referents(vars(kind))
        attributes[name] = value
        type_modified(kind)


def _in_uuid(clock: Clock, module: Any) -> None:
    import functools

    of_time, drawn = module.uuid1, module.uuid4

    @functools.wraps(of_time)
    def uuid1(*args: Any, **kwargs: Any) -> Any:
        frame = _getframe(1)
        if not clock.is_asked_by_user(frame):
            return of_time(*args, **kwargs)
        return module.UUID(int=clock.number(frame, _UUID1, lambda: of_time(*args, **kwargs).int))

    @functools.wraps(drawn)
    def uuid4(*args: Any, **kwargs: Any) -> Any:
        frame = _getframe(1)
        if args or kwargs or not clock.is_asked_by_user(frame):
            return drawn(*args, **kwargs)
        return module.UUID(int=clock.draw(frame, _UUID4, 16) & (1 << 128) - 1, version=4)

    module.uuid1, module.uuid4 = uuid1, uuid4


# Modules that draw from the operating system on behalf of their caller.
_DRAWERS = ("random", "secrets", "py_hooks.boot.process")


def drawn(clock: Clock) -> Callable[..., Any]:
    """The function that is called before `os.urandom`. It returns the answer, or `NotImplemented`."""

    def before(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 1 or not isinstance(args[0], int) or args[0] <= 0:
            return NotImplemented
        frame = _getframe().f_back
        while frame is not None and frame.f_globals.get("__name__") in _DRAWERS:
            frame = frame.f_back
        if frame is None or not clock.is_asked_by_user(frame):
            return NotImplemented
        size = args[0]
        return clock.draw(frame, f"urandom({size})", size).to_bytes(size, "little")

    return before
