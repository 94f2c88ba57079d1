"""Installs the rows of a generation: all of them or none, and takes them back.

A target is named by its module and its path in it (`"Model.fit"`). The attribute is looked up through the class that
callers instantiate, along its MRO, and the wrapper is set on that class itself, because methods move to base classes
between releases. Functions, methods, class and static methods and properties can be wrapped.
"""
from __future__ import annotations

import functools
import importlib

from py_hooks.border import ExitCode
from py_hooks.engine import guard
from py_hooks.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    from py_hooks.recording.recorder import Calls

    _Function = Callable[..., Any]
    _Advice = TypeVar("_Advice", bound=_Function)
    _BindingAdvice = TypeVar("_BindingAdvice", bound=Callable[[_Function], _Function])


class PatchTargetMissing(Refusal):
    """A row names something that the library does not have. Nothing was patched."""

    exit_code = ExitCode.UNSUPPORTED


def binding(advice: _BindingAdvice) -> _BindingAdvice:
    """Marks advice that is called once, with the original alone, and returns the function that replaces the target.

    This saves one Python call each time, for targets that are called several times per batch. The replacement finds its
    caller two frames above, as other advice does.
    """
    advice.is_binding = True  # type: ignore[attr-defined]  # functions have any attributes
    return advice


def unguarded(advice: _BindingAdvice) -> _BindingAdvice:
    """Marks advice of the same kind that is called for each batch and nearly always does nothing.

    No guard is around it, so it must guard what it does itself (`guard.guarded`).
    """
    advice.is_unguarded = True  # type: ignore[attr-defined]  # as above
    return binding(advice)


def shortcut(make: Callable[[_Function, _Function], _Function]) -> Callable[[_Advice], _Advice]:
    """Marks advice that seldom does anything at a target that is called many times per batch.

    Args:
        make: `make(original, intercepted)` returns the function that replaces the target. It calls `original` while there is
            nothing to do, and otherwise `intercepted`, which enters the advice through its guard. It does nothing that can fail.
    """

    def mark(advice: _Advice) -> _Advice:
        advice.shortcut = make  # type: ignore[attr-defined]  # as above
        return advice

    return mark


class Patch:
    """One interception: the target, the advice that runs in its place, and why.

    Args:
        module: module of the target, absolute.
        attribute: path of the target in it, dotted.
        advice: `(original, *args, **kwargs)`, where the first of `args` is the target's `self` for methods; or advice that
            `binding` marks.
        why: what it is for, in a few words; `pedl-run hooks` and errors print it.
    """

    def __init__(self, module: str, attribute: str, advice: _Function, why: str) -> None:
        self.module = module
        self.attribute = attribute
        self.advice = advice
        self.why = why

    def __repr__(self) -> str:
        return f"{self.module}:{self.attribute}"


class Generation:
    """A version range of a library: its facts and its patches. See `py_hooks/__init__.py`.

    Args:
        distribution, first, last: as in the registry's row.
        facts: the library's facts object, or None.
        patches: rows of `Patch` for every backend.
        backends: rows of `Patch` by backend, if the library has several; others are refused.
        prepare: `prepare(calls)`, called after the patches were installed.
    """

    def __init__(
        self,
        distribution: str,
        first: str,
        last: str,
        facts: Any,
        patches: tuple[Patch, ...],
        backends: Mapping[str, tuple[Patch, ...]] | None = None,
        prepare: Callable[[Calls], object] | None = None,
    ) -> None:
        self.distribution = distribution
        self.first = first
        self.last = last
        self.facts = facts
        self.patches = patches
        self.backends = backends
        self.prepare = prepare


class _Installed:
    """What was at a target before: enough to put the very same object back."""

    def __init__(self, owner: Any, name: str, was_own: bool, before: Any) -> None:
        self.owner = owner
        self.name = name
        self.was_own = was_own
        self.before = before

    def undo(self) -> None:
        if self.was_own:
            setattr(self.owner, self.name, self.before)
        else:
            delattr(self.owner, self.name)


def install(generation: Generation, backend: str | None = None) -> Callable[[], None]:
    """Patches every target of the generation, and those of its backend.

    If the generation of another library has already installed the same advice at a target, it is kept (Keras 2 and tf.keras
    both come with `keras_preprocessing`).

    Args:
        generation: the `Generation`.
        backend: name of the backend in use, for libraries that have several.

    Returns:
        A function that takes everything back, in reverse order.

    Raises:
        PatchTargetMissing: a target does not exist; then nothing was patched.
    """
    patches = _rows(generation, backend)
    resolved = [_resolve(generation, patch) + (patch.advice,) for patch in patches]
    new = [step for step in resolved if _advice_at(step[2]) is not step[3]]
    wrapped = [(owner, name, _wrap(raw, advice)) for owner, name, raw, advice in new]
    installed: list[_Installed] = []
    for owner, name, wrapper in wrapped:
        own = vars(owner)
        installed.append(_Installed(owner, name, name in own, own.get(name)))
        setattr(owner, name, wrapper)

    def uninstall() -> None:
        for step in reversed(installed):
            step.undo()

    return uninstall


def targets(generation: Generation, backend: str | None = None) -> list[tuple[Patch, BaseException | None]]:
    """`(row, error)` for every row of a generation; the error is None if the target exists."""
    found: list[tuple[Patch, BaseException | None]] = []
    for patch in _rows(generation, backend):
        try:
            _resolve(generation, patch)
            found.append((patch, None))
        except PatchTargetMissing as error:
            found.append((patch, error.__cause__))
    return found


def _rows(generation: Generation, backend: str | None) -> tuple[Patch, ...]:
    return generation.patches + (generation.backends[backend] if generation.backends else ())


def _resolve(generation: Generation, patch: Patch) -> tuple[Any, str, Any]:
    """The object that holds the target, its name there, and the raw attribute (descriptors not called)."""
    path = patch.attribute.split(".")
    try:
        owner = importlib.import_module(patch.module)
        for name in path[:-1]:
            owner = getattr(owner, name)
        return owner, path[-1], _raw_attribute(owner, path[-1])
    except (ImportError, AttributeError) as error:
        raise missing(generation, repr(patch), patch.why, error) from error


def missing(generation: Generation, target: str, why: str, error: BaseException) -> PatchTargetMissing:
    """The `PatchTargetMissing` for something that a generation needs, and the library does not have.

    Args:
        generation: the `Generation`.
        target: what is missing.
        why: what it is needed for.
        error: the error of looking it up.
    """
    library = generation.distribution
    return PatchTargetMissing(
        f"cannot patch `{target}`: {error}\n"
        f"  a row of generation {library} {generation.first} - {generation.last}; needed to {why}\n"
        "  nothing was patched; the script was stopped before it trained",
        f"is {library} half installed, or modified? reinstall it, or pass `--no-hooks {library}`",
    )


def _raw_attribute(owner: Any, name: str) -> Any:
    for cls in getattr(owner, "__mro__", (owner,)):
        if name in vars(cls):
            return vars(cls)[name]
    raise AttributeError("{!r} has no attribute {!r}".format(getattr(owner, "__name__", owner), name))


def _wrap(raw: Any, advice: _Function) -> Any:
    if isinstance(raw, property):
        return property(_wrapper(raw.fget, advice), raw.fset, raw.fdel, raw.__doc__)
    if isinstance(raw, (staticmethod, classmethod)):
        return type(raw)(_wrapper(raw.__func__, advice))
    return _wrapper(raw, advice)


def _advice_at(raw: Any) -> object:
    """The advice that a target is wrapped with, or None."""
    function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
    return getattr(function, "_pedl_advice", None)


def _wrapper(original: _Function, advice: _Function) -> Any:
    if getattr(advice, "is_unguarded", False):
        return _named(advice(original), original, advice)
    kept: list[Any] = [0, None]
    known = functools.update_wrapper(guard.watched(original, kept), original)
    bound = advice(known) if getattr(advice, "is_binding", False) else functools.partial(advice, known)

    def intercepted(*args: Any, **kwargs: Any) -> Any:
        entered = kept[0]
        try:
            result = bound(*args, **kwargs)
        except guard.CAUGHT as error:
            again, bare = functools.partial(bound, *args, **kwargs), functools.partial(original, *args, **kwargs)
            result = guard.outcome(error, entered, kept, again, bare)
            if result is guard.PASSES:
                raise
        kept[1] = None
        return result

    make = getattr(advice, "shortcut", None)
    return _named(intercepted if make is None else make(original, intercepted), original, advice)


def _named(wrapper: Any, original: _Function, advice: _Function) -> Any:
    functools.update_wrapper(wrapper, original)
    wrapper._pedl_original = original
    wrapper._pedl_advice = advice
    return wrapper
