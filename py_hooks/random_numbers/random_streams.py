"""Random numbers: private streams for data workers, and global streams that repeat in a replay.

The module-level functions of `random` and `numpy.random` are replaced by dispatchers: if the thread has a private
stream, they draw from that; else from the global generator, as before. So every item a data worker builds draws from a
stream of (trial seed, stream, epoch, index), whatever thread builds it, and only the script itself draws from the global
streams of the main thread. In a worker process, the global generators themselves are set (`worker_streams.py`).

The streams of each generator depend on the state of that generator (`Roots`): a script that seeds numpy, and not `random`,
gets the same numbers from numpy in every trial, as it does under Python.

Numbers that would be drawn from the operating system instead of a seed come from the trial: the first state of the global
generators (torch's too, which it would draw when it is loaded), and the entropy of generators made or seeded without a
seed (`default_rng()`, `RandomState()`, `Random()`, `torch.seed()`). It is chosen at random once for each trial, so a
script without seeds stays as random as it is under Python, and repeats in a replay. A forked child draws other entropy
than its parent and its siblings. What `os.urandom` returns to files of the script is returned again in a replay (`clock.py`).
"""
from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import struct
import sys
import threading

from py_hooks import places
from py_hooks.border import ExitCode
from py_hooks.recording.forks import Forks
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random
    from typing import Any

    import numpy
    from numpy.random import RandomState


class _Thread(threading.local):
    # The private stream that a thread draws from.
    stream: PrivateStream | None = None


# The values of the current thread.
THREAD = _Thread()
_PYTHON_NAMES = (
    "betavariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits", "getstate",
    "lognormvariate", "normalvariate", "paretovariate", "randint", "random", "randrange", "sample", "seed",
    "setstate", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate", "binomialvariate",
    "randbytes",
)


def mix(*key: object) -> int:
    """A 64-bit hash of a key: the same for equal keys, on every machine and Python."""
    return hash_of(repr(key).encode())


def hash_of(data: bytes) -> int:
    """A 64-bit hash of bytes."""
    return struct.unpack("<Q", hashlib.sha256(data).digest()[:8])[0]


class Roots:
    """The part of a key from which each generator's streams are derived: a hash of its state when the key was made.

    Attributes:
        python: of the state of `random`.
        numpy: of the state of numpy's global generator.
        torch: of the state of torch's global generator.
        entropy: of the trial, for generators that are made without a seed.
    """

    __slots__ = ("python", "numpy", "torch", "entropy")

    def __init__(self, python: int, numpy: int, torch: int, entropy: int) -> None:
        self.python = python
        self.numpy = numpy
        self.torch = torch
        self.entropy = entropy

    def __repr__(self) -> str:
        return f"Roots({self.python}, {self.numpy}, {self.torch}, {self.entropy})"

    def __reduce__(self) -> tuple[type[Roots], tuple[int, int, int, int]]:
        return Roots, (self.python, self.numpy, self.torch, self.entropy)


def seed_of(name: str, key: tuple[Any, ...]) -> int:
    """A 64-bit hash of a key for the generator of this name. Of `Roots` in the key, it uses only that generator's root."""
    return mix(name, *[getattr(part, name) if type(part) is Roots else part for part in key])


def without_roots(key: tuple[Any, ...]) -> list[Any]:
    """A key without `Roots`, for a generator whose root is added separately."""
    return [part for part in key if type(part) is not Roots]


# The distance between seeds of a row: odd, so that all are different.
_STRIDE = 0x9E3779B97F4A7C15
_64_BITS = (1 << 64) - 1


def in_row(first: int, number: int) -> int:
    """A 64-bit number of a row that begins with `first`; much faster than `mix`."""
    return first + number * _STRIDE & _64_BITS


class PrivateStream:
    """`with PrivateStream(key...)`: in this thread, the global functions draw from a stream of the key."""

    __slots__ = ("key", "_numpy", "_python", "_entropy", "_outer")

    def __init__(self, *key: Any) -> None:
        self.key = key
        self._numpy: RandomState | None = None
        self._python: Random | None = None
        self._entropy: Random | None = None
        self._outer: PrivateStream | None = None

    def begin(self, key: tuple[Any, ...]) -> None:
        """Becomes the stream of another key."""
        self.key = key
        self._numpy = self._python = self._entropy = None

    def __enter__(self) -> PrivateStream:
        self._outer = THREAD.stream
        THREAD.stream = self
        return self

    def __exit__(self, *exception: object) -> None:
        THREAD.stream = self._outer

    @property
    def is_drawn_from(self) -> bool:
        """Whether anything was drawn from it."""
        return not (self._numpy is self._python is self._entropy is None)

    @property
    def numpy(self) -> RandomState:
        """The stream's numpy generator, made when it is first drawn from."""
        if self._numpy is None:
            import numpy

            # It asks for entropy before it is seeded, which must not come from this stream.
            with PrivateStream("entropy"):
                self._numpy = numpy.random.RandomState(self._seed("numpy") % (1 << 32))
        return self._numpy

    @property
    def python(self) -> Random:
        """The stream's generator for `random`, made when it is first drawn from."""
        if self._python is None:
            import random

            self._python = random.Random(self._seed("python"))
        return self._python

    @property
    def entropy(self) -> Random:
        """Seeds generators that are made without a seed. Its draws do not change those of seeded generators."""
        if self._entropy is None:
            import random

            self._entropy = random.Random(self._seed("entropy"))
        return self._entropy

    def _seed(self, name: str) -> int:
        return seed_of(name, self.key)


class CallStream(PrivateStream):
    """A private stream of one call: its draws depend on the global generators too, which do not change meanwhile.

    The generators are read only if something draws, because that takes longer than a small call.
    """

    __slots__ = ()

    def _seed(self, name: str) -> int:
        return mix(name, _ROOTS[name](), *self.key)


def _root_of_python() -> int:
    """A 64-bit hash of the state of `random`."""
    import random

    return mix(random._inst.getstate())


def _root_of_numpy() -> int:
    """A 64-bit hash of the state of numpy's global generator."""
    import numpy

    _, words, position, has_gauss, cached = numpy.random.mtrand._rand.get_state()
    return mix(words.tolist(), int(position), int(has_gauss), float(cached))


def root_of_torch() -> int | None:
    """A 64-bit hash of the state of torch's global generator; None if torch is not imported."""
    generator = generator_of_torch()
    return None if generator is None else hash_of(generator.get_state().numpy().tobytes())


def _root_of_entropy() -> tuple[int, int]:
    # No key of the trial is needed: both states must repeat, and an unseeded generator has the trial's state.
    return _root_of_python(), _root_of_numpy()


_ROOTS: dict[str, Callable[[], Any]] = {"python": _root_of_python, "numpy": _root_of_numpy, "entropy": _root_of_entropy}


def _caller_place() -> tuple[str, int]:
    """`(file name, line)` of the code that made a generator: the first frame outside `random` and this module."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ("random", __name__):
        frame = frame.f_back
    return os.path.basename(frame.f_code.co_filename), frame.f_lineno


def _numpy_of(stream: PrivateStream) -> RandomState:
    return stream.numpy


def _python_of(stream: PrivateStream) -> Random:
    return stream.python


# The bits of a seed that torch draws on a GPU; on the CPU it has 64, of which its generator uses 32.
# Source: torch 2.6, c10/core/GeneratorImpl.cpp, `getNonDeterministicRandom`.
_BITS_OF_TORCH = 53


def generator_of_torch() -> Any:
    """The global generator of torch; None if that is not imported."""
    return getattr(sys.modules.get("torch"), "default_generator", None)


class Streams:
    """The random streams of this process.

    Attributes:
        draws: calls of the global functions by the main thread so far; part of every record's identity.
        drawn_elsewhere: the calls by other threads, except draws from a private stream.
        passes: the number of passes over data pipelines that were asked for, so far.
        in_array_pipeline: a pipeline over arrays is being built.
        at_pass: called with the number of a pass when its pipeline begins.
    """

    def __init__(self, trial_seed: int, forks: Forks | None = None) -> None:
        self.seed = trial_seed
        self.draws = self.drawn_elsewhere = 0
        self._entropy_drawn: dict[tuple[str, int], int] = {}
        # Which child of which fork this process is.
        self._forks = Forks() if forks is None else forks
        self._keys = 0
        self._has_given_keys = False
        self.passes = 0
        self.in_array_pipeline = False
        self.at_pass: list[Callable[[int], object]] = []
        self._op_seeds = 0
        self._main_thread = threading.main_thread().ident

    # -- first states ------------------------------------------------------------------------------------------

    def seed_python(self, random: Any) -> None:
        """Gives `random` a first state of the trial. Runs right after its import."""
        random.seed(mix(self.seed, "start", "python", *self._forks.descent))
        self._replace_entropy(random.Random)
        # `random` bound it, when it was imported, to the method that draws from the operating system.
        random.seed = random._inst.seed
        # Runs after the handler of `random` itself, which seeds the child from the operating system.
        os.register_at_fork(after_in_child=lambda: self._after_fork(random))

    def _after_fork(self, random: Any) -> None:
        self._entropy_drawn = {}
        random._inst.seed()

    def seed_numpy(self, mtrand: Any) -> None:
        """Gives numpy's global generator a first state of the trial. Runs right after its import."""
        mtrand._rand.seed(mix(self.seed, "start", "numpy", *self._forks.descent) % (1 << 32))
        source: Any = sys.modules.get("numpy.random.bit_generator") or sys.modules.get("numpy.random._bit_generator")
        if hasattr(source, "randbits"):
            source.randbits = self.entropy

    def seed_torch(self, torch: Any, seed: int | None = None) -> None:
        """Gives torch's global generators a first state of the trial. Runs right after its import.

        Args:
            torch: the module.
            seed: of that state, if it is given.
        """
        torch.manual_seed(mix(self.seed, "start", "torch", *self._forks.descent) >> 1 if seed is None else seed)

    def seeding_from_trial(self, original: Callable[..., int]) -> Callable[..., int]:
        """The replacement of `torch.Generator.seed`, which `torch.seed` calls too.

        Args:
            original: the method, which draws a seed from the operating system.
        """

        @functools.wraps(original)
        def seed(generator: Any) -> int:
            drawn = self.entropy(_BITS_OF_TORCH)
            generator.manual_seed(drawn)
            return drawn

        return seed

    def _replace_entropy(self, generator_class: Any) -> None:
        seed = generator_class.seed

        def seed_from_trial(generator: Any, a: Any = None, version: int = 2) -> None:
            return seed(generator, self.entropy(128) if a is None else a, version)

        generator_class.seed = seed_from_trial

    def entropy(self, bits: int) -> int:
        """Entropy for a generator made without a seed: a hash of the trial, the line in the code, and the line's draws so far.

        The line is part of it because calls that a replay does not make (saving a model) draw entropy too, for temporary names.
        """
        stream = THREAD.stream
        if stream is not None:
            return stream.entropy.getrandbits(bits)
        if threading.get_ident() != self._main_thread:
            import secrets

            return secrets.randbits(bits)
        place = _caller_place()
        drawn = self._entropy_drawn[place] = self._entropy_drawn.get(place, 0) + 1
        words = range((bits + 63) // 64)
        key = (self.seed, "entropy", place, drawn) + self._forks.descent
        value = sum(mix(*key, word) << (64 * word) for word in words)
        return value & ((1 << bits) - 1)

    def new_key(self) -> tuple[Roots, int]:
        """The key of a new private stream: `Roots` of the generators as they are, and the number of the stream.

        So a script gets the same numbers in every trial from a generator that it seeds, and the trial's from one it does not.
        """
        self._keys += 1
        self._has_given_keys = True
        torch = root_of_torch()
        # The seed that torch gets when it is imported.
        torch = mix(self.seed, "start", "torch") if torch is None else torch
        return Roots(_root_of_python(), _root_of_numpy(), torch, mix(self.seed, "entropy")), self._keys

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """For passes over data that the script did not ask for: later passes and streams are numbered as without them."""
        numbered = self._keys, self.passes
        try:
            yield
        finally:
            self._keys, self.passes = numbered

    def next_op_seed(self) -> int:
        """A seed for the next random op of a framework that the script gave none."""
        self._op_seeds += 1
        return mix(self.seed, "op", self._op_seeds)

    def begin_pass(self, ordinal: int) -> None:
        """Calls the shuffles inside pipelines with the number of the pass that begins."""
        for step in self.at_pass:
            step(ordinal)

    # -- dispatchers -------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Replaces the global functions by dispatchers, also in modules that bound them by name before."""
        import random

        import numpy

        replaced: dict[Any, Any] = {}
        generator = numpy.random.mtrand._rand
        for name in dir(generator):
            function = getattr(numpy.random, name, None)
            if not name.startswith("_") and getattr(function, "__self__", None) is generator:
                self._replace(replaced, (numpy.random, numpy.random.mtrand), name, function, _numpy_of)
        for name in ("seed", "ranf", "sample"):
            function = getattr(numpy.random, name)
            if function not in replaced:
                target = "random_sample" if name != "seed" else "seed"
                self._replace(
                    replaced, (numpy.random, numpy.random.mtrand), name, function, _numpy_of, target
                )
        for name in _PYTHON_NAMES:
            function = getattr(random, name, None)
            if getattr(function, "__self__", None) is random._inst:
                self._replace(replaced, (random,), name, function, _python_of)
        _rebind(replaced)

    def _replace(
        self,
        replaced: dict[Any, Any],
        modules: tuple[Any, ...],
        name: str,
        function: Callable[..., Any],
        generator_of: Callable[[PrivateStream], Any],
        target: str | None = None,
    ) -> None:
        target = target or name

        def dispatch(*args: Any, **kwargs: Any) -> Any:
            stream = THREAD.stream
            if stream is not None:
                return getattr(generator_of(stream), target)(*args, **kwargs)
            if threading.get_ident() == self._main_thread:
                self.draws += 1
            else:
                self.drawn_elsewhere += 1
            return function(*args, **kwargs)

        dispatch.__name__ = name
        dispatch.__qualname__ = name
        dispatch.__doc__ = function.__doc__
        dispatch.__module__ = getattr(function, "__module__", None) or modules[0].__name__
        dispatch.__wrapped__ = function  # type: ignore[attr-defined]  # `functools.wraps` sets it as well
        replaced[function] = dispatch
        for module in modules:
            if hasattr(module, name):
                setattr(module, name, dispatch)

    # -- state in a checkpoint -----------------------------------------------------------------------------------

    def capture(self) -> tuple[list[tuple[str, numpy.ndarray]], dict[str, Any]]:
        """The state of the global generators: part of a checkpoint."""
        import random

        import numpy

        version, words, gauss = random._inst.getstate()
        kind, keys, position, has_gauss, cached = numpy.random.mtrand._rand.get_state()
        return [("python", numpy.array(words, numpy.uint64)), ("numpy", keys)], {
            "python": [version, gauss],
            "numpy": [kind, int(position), int(has_gauss), float(cached)],
            "draws": self.draws,
            "scheme": _SCHEME,
        }

    def restore(self, tensors: dict[str, numpy.ndarray], state: dict[str, Any]) -> None:
        """Compares the generators with the checkpoint's: the replay must have drawn what the recorded run drew."""
        if state.get("scheme") != _SCHEME and (self._has_given_keys or "torch" in sys.modules):
            raise OtherScheme
        now_tensors: Any
        now_tensors, now = self.capture()
        now_tensors = dict(now_tensors)
        for name in ("python", "numpy"):
            if now[name] != state[name] or (now_tensors[name] != tensors[name]).any():
                raise StreamDiffers(name, self.draws, state["draws"])


# The way in which streams are derived from the generators: a trial continues with the one it began with.
_SCHEME = 2


class OtherScheme(Refusal):
    """The checkpoint is from a trial whose items drew from streams that were derived in another way."""

    exit_code = ExitCode.DIVERGED

    def __init__(self) -> None:
        Refusal.__init__(
            self,
            "the checkpoint was taken by a version of pedl that gave data other random numbers\n"
            f"  expected: streams of scheme {_SCHEME}, each of the state of its own generator\n"
            "  the run was stopped; the checkpoint and the log are kept",
            "continue the trial with the version that began it, or begin a new one with `--fresh`",
        )


class StreamDiffers(Refusal):
    """At the resume point, the state of a global generator differs from the recorded run."""

    exit_code = ExitCode.DIVERGED

    def __init__(self, name: str, draws: int | None, recorded_draws: int | None) -> None:
        module = {"numpy": "numpy.random", "python": "random"}.get(name, name)
        counted = f"  calls of the global functions: recorded {recorded_draws}, now {draws}\n"
        Refusal.__init__(
            self,
            f"the replay differs from the record: `{module}` is in another state at the resume point\n"
            f"{counted if draws is not None else ''}"
            "  the run was stopped; the checkpoint and the log are kept",
            "look for random numbers drawn in threads of the script's own, or by a number that comes from the clock "
            "or the environment; `--fresh` begins a new trial",
        )


def _rebind(replaced: dict[Any, Any]) -> None:
    """Replaces functions that modules bound by name (`from numpy.random import rand`) before the dispatchers existed."""
    by_id = {id(function): dispatch for function, dispatch in replaced.items()}
    for module in list(sys.modules.values()):
        names = places.names_of(module)
        if str(names.get("__name__")).startswith("py_hooks"):
            continue
        for name, value in list(names.items()):
            dispatch = by_id.get(id(value))
            if dispatch is not None and dispatch.__wrapped__ is value:
                names[name] = dispatch
