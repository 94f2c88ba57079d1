"""Calls a function after a module was imported, without importing anything itself.

A finder at the head of `sys.meta_path` lets the other finders find the module, and puts a loader around theirs that
runs the callbacks once the module's code has run. Modules that are already imported get their callbacks at once.

The callbacks run outside the import system's locks as far as the module's own lock allows: they may import submodules
of the module, and modules it depends on.
"""
import sys

from py_hooks.engine import guard


class PostImportFinder:
    """Finds nothing itself: wraps the loaders of the modules that have callbacks."""

    def __init__(self):
        self._before = {}
        self._callbacks = {}
        self._searching = set()

    def before_import(self, module_name, callback):
        """Has `callback(module_name)` called once, before the module is looked for; never if it is already imported."""
        if module_name not in sys.modules:
            self._before.setdefault(module_name, []).append(callback)

    def when_imported(self, module_name, callback):
        """Has `callback(module)` called once, after `module_name` is imported, or now if it is."""
        module = sys.modules.get(module_name)
        if module is not None and not _is_initializing(module):
            guard.run(callback, module)
            return
        self._callbacks.setdefault(module_name, []).append(callback)

    def find_spec(self, name, path=None, target=None):
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
        spec.loader = _NotifyingLoader(spec.loader, self)
        return spec

    def _notify_without_loader(self, name):
        """A package without `__init__.py` has no loader that runs it, so it counts when something in it is imported."""
        package = sys.modules.get(name)
        if package is not None and getattr(package, "__file__", None) is None and hasattr(package, "__path__"):
            self.notify(package)

    def notify(self, module):
        """Runs the callbacks that wait for a module."""
        for callback in self._callbacks.pop(module.__name__, ()):
            guard.run(callback, module)


class _NotifyingLoader:
    """The module's loader, followed by our callbacks. Everything else is the loader's answer."""

    def __init__(self, loader, finder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        """As the module's loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module):
        """Runs the module, with the original loader visible in it, then the callbacks."""
        module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.notify(module)


def _is_initializing(module):
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _find_without(skipped, name, path, target):
    for finder in list(sys.meta_path):
        find_spec = getattr(finder, "find_spec", None)
        if finder is skipped or find_spec is None:
            continue
        spec = find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def install():
    """Puts a finder in front of the others, and returns it. Called once, by `boot.start`."""
    finder = PostImportFinder()
    sys.meta_path.insert(0, finder)
    return finder
