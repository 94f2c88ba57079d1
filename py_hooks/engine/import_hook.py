"""Calls a function after a module was imported, without importing anything itself.

A finder at the head of `sys.meta_path` lets the other finders find the module, and puts a loader around theirs that
runs the callbacks once the module's code has run. Modules that are already imported get their callbacks at once.

The callbacks run outside the import system's locks as far as the module's own lock allows: they may import submodules
of the module, and modules it depends on.
"""
from __future__ import annotations

import sys

from py_hooks.engine import guard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class PostImportFinder:
    """Finds nothing itself: wraps the loaders of the modules that have callbacks."""

    def __init__(self) -> None:
        self._before: dict[str, list[Callable[[str], object]]] = {}
        self._callbacks: dict[str, list[Callable[[ModuleType], object]]] = {}
        self._searching: set[str] = set()

    def before_import(self, module_name: str, callback: Callable[[str], object]) -> None:
        """Has `callback(module_name)` called once, before the module is looked for; never if it is already imported."""
        if module_name not in sys.modules:
            self._before.setdefault(module_name, []).append(callback)

    def when_imported(self, module_name: str, callback: Callable[[ModuleType], object]) -> None:
        """Has `callback(module)` called once, after `module_name` is imported, or now if it is."""
        module = sys.modules.get(module_name)
        if module is not None and not _is_initializing(module):
            guard.run(callback, module)
            return
        self._callbacks.setdefault(module_name, []).append(callback)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Called by the import system: the other finders answer, and our loader is put around theirs."""
        for callback in self._before.pop(name, ()):
            guard.run(callback, name)
        if name not in self._callbacks or name in self._searching:
            top = name.partition(".")[0]
            if top != name and top in self._callbacks:
                self._notify_without_loader(top)
            return None
        self._searching.add(name)
        try:
            spec = _find_without(self, name, path, target)
        finally:
            self._searching.discard(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        spec.loader = _NotifyingLoader(spec.loader, self)  # type: ignore[assignment]  # it has the methods, not the base
        return spec

    def _notify_without_loader(self, name: str) -> None:
        """A package without `__init__.py` has no loader that runs it, so it counts when something in it is imported."""
        package = sys.modules.get(name)
        if package is not None and getattr(package, "__file__", None) is None and hasattr(package, "__path__"):
            self.notify(package)

    def notify(self, module: ModuleType) -> None:
        """Runs the callbacks that wait for a module."""
        for callback in self._callbacks.pop(module.__name__, ()):
            guard.run(callback, module)


class _NotifyingLoader:
    """The module's loader, followed by our callbacks. Everything else is the loader's answer."""

    def __init__(self, loader: Loader, finder: PostImportFinder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module, with the original loader visible in it, then the callbacks."""
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.notify(module)


def _is_initializing(module: ModuleType) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _find_without(
    skipped: PostImportFinder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find_spec = getattr(finder, "find_spec", None)
        if finder is skipped or find_spec is None:
            continue
        spec: ModuleSpec | None = find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def install() -> PostImportFinder:
    """Puts a finder in front of the others, and returns it. Called once, by `boot.start`."""
    finder = PostImportFinder()
    sys.meta_path.insert(0, finder)
    return finder
