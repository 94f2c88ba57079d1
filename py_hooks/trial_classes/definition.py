"""Imports a model definition: a directory that is a Python package, whatever its name, or one file.

    entrypoint: model_def:MNistTrial        NAME.model_def, where NAME is the directory's
    entrypoint: :MNistTrial                 NAME itself, which is `__init__.py`
    no entrypoint                           the one trial class that NAME, or the file, exposes

Every file of the definition is a module of the package NAME, so that relative imports work. A top-level import of the
same file (`from model_def import MNistTrial`, as in a script) gives the same module, which runs once (`_Finder`). Files
of the definition come before installed packages of the same name, as files beside a script do; modules that are imported
already stay as they are. A directory without `__init__.py` is a package too.
"""
from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types

from pedl._loops.trial_class import check_class, listed
from pedl.errors import DefinitionError
from pedl.trial import Trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_INIT = "__init__.py"


class Definition:
    """A model definition that is imported.

    Args:
        root: its directory, without symbolic links.
        module: the name of its one module, if the command named a file; else None.
        configuration: the whole experiment configuration.

    Attributes:
        trial_class: the class.

    Raises:
        DefinitionError: there is no such class.
    """

    def __init__(self, root: str, module: str | None, configuration: dict[str, Any]) -> None:
        self._root = root
        self._given = configuration.get("entrypoints") or {}
        entrypoint: Any = self._given.get("trial_class") or configuration.get("entrypoint")
        is_discovered = not isinstance(entrypoint, str)
        self._package = _import_package(root, runs_init=module is None or not is_discovered)
        if is_discovered:
            self._module = self._import(module or "")
            self.trial_class: type[Trial] = self._exposed()
        else:
            self._module, self.trial_class = self._resolve(entrypoint)
        check_class(self.trial_class, entrypoint)

    def function(self, name: str, is_required: bool) -> Any:
        """A function beside the class: of its module, or else of the package, or what `entrypoints` names.

        Args:
            name: `make_data_loaders` or `download_data`.
            is_required: whether there has to be one.

        Raises:
            DefinitionError: there is none.
        """
        given = self._given.get({"make_data_loaders": "data_loaders_function"}.get(name, name + "_function"))
        if given is not None:
            return self._resolve(given)[1]
        places = (sys.modules.get(self.trial_class.__module__), self._module, self._package)
        for place in places:
            found = getattr(place, name, None)
            if callable(found):
                return found
        if not is_required:
            return None
        raise DefinitionError(
            f"the model definition `{self._root}` has no function `{name}`\n"
            f"  expected: `{name}(experiment_config, hparams)` beside the class `{self.trial_class.__name__}`, "
            f"or exposed in `{_INIT}`",
            f"define it in `{self._module_file()}`",
        )

    def _module_file(self) -> str:
        return os.path.basename(getattr(self._module, "__file__", None) or _INIT)

    def _import(self, module: str) -> types.ModuleType:
        canonical = f"{self._package.__name__}.{module}" if module else self._package.__name__
        try:
            return importlib.import_module(canonical)
        except ImportError as error:
            # An import that fails inside the module is the user's error.
            if error.name is None or not (canonical + ".").startswith(error.name + "."):
                raise
        raise DefinitionError(
            f"there is no module `{module}` in the model definition `{self._root}`\n"
            f"  there is: {listed(self._files())}",
            "correct `entrypoint`",
        )

    def _files(self) -> list[str]:
        return sorted(name[:-3] for name in os.listdir(self._root) if name.endswith(".py") and name != _INIT)

    def _resolve(self, entrypoint: str) -> tuple[types.ModuleType, Any]:
        """The module and the object of a text `module:object`."""
        module_name, _, names = (part.strip() for part in entrypoint.partition(":"))
        module = self._import(module_name)
        value: Any = module
        for name in names.split("."):
            if not hasattr(value, name):
                where = f"the module `{module_name}`" if module_name else f"`{_INIT}`"
                raise DefinitionError(
                    f"`{entrypoint}`: there is no `{name}` in {where} of the model definition `{self._root}`\n"
                    f"  trial classes there: {listed(sorted(one.__name__ for one in _classes(module)))}",
                    "correct `entrypoint`",
                )
            value = getattr(value, name)
        return module, value

    def _exposed(self) -> type[Trial]:
        """The one trial class that the module exposes."""
        found = _classes(self._module)
        if len(found) == 1:
            return found[0]
        if found:
            raise DefinitionError(
                f"`{self._module_file()}` of the model definition `{self._root}` exposes several trial classes: "
                f"{listed(sorted(one.__name__ for one in found))}\n  expected: one",
                f'name one in the configuration, as in `entrypoint: ":{found[0].__name__}"`',
            )
        exposed = sorted(name for name in vars(self._module) if not name.startswith("_"))
        raise DefinitionError(
            f"`{self._module_file()}` of the model definition `{self._root}` exposes no trial class\n"
            f"  it has: {listed(exposed)}\n  expected: a class that is derived from one of `pedl.frameworks`",
            "import it there, or name it in the configuration as `entrypoint: module:TrialClass`",
        )


def _classes(module: types.ModuleType) -> list[type[Trial]]:
    """The trial classes that a module exposes and that are not part of `pedl`, each once."""
    found: dict[int, type[Trial]] = {}
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Trial) and value.__module__.partition(".")[0] != "pedl":
            found.setdefault(id(value), value)
    complete = [one for one in found.values() if not getattr(one, "__abstractmethods__", ())]
    # A base class with abstract methods is no candidate if there is a complete class.
    return complete or list(found.values())


# -- the package -------------------------------------------------------------------------------------------------------


def _import_package(root: str, runs_init: bool) -> types.ModuleType:
    """Imports the package of a definition, and has its files found by short names too."""
    # Replaces the current directory, which is not in the path in Python's safe mode.
    sys.path[:1] = [root] if sys.path[:1] in ([""], [root]) else [root, *sys.path[:1]]
    name = _free_name(root, os.path.basename(root).replace(".", "_") or "definition")
    init = os.path.join(root, _INIT)
    if runs_init and os.path.isfile(init):
        spec: Any = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[root])
        package = importlib.util.module_from_spec(spec)
    else:
        spec, package = None, types.ModuleType(name, "A model definition without `__init__.py`.")
        package.__path__ = [root]
    sys.modules[name] = package
    sys.meta_path.insert(0, _Finder(root, name))
    if spec is not None:
        spec.loader.exec_module(package)
    return package


def _free_name(root: str, name: str) -> str:
    """The directory's name, or a similar one if that is the name of another module."""
    there = [entry for entry in sys.path if entry != root]
    finder = importlib.machinery.PathFinder
    # If a file or folder of the definition has the same name, the name refers to it.
    if name in sys.modules or finder.find_spec(name, [root]) or finder.find_spec(name, there):
        return name + "_definition"
    return name


class _Finder:
    """Finds files of a definition by the names that a script beside them would import, as modules of its package.

    Args:
        root: the directory.
        name: of the package.
    """

    def __init__(self, root: str, name: str) -> None:
        self._root = root
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """For `model_def` and `library.part`, if the package has `NAME.model_def` and `NAME.library.part`."""
        first, _, rest = fullname.partition(".")
        if first == self._name:
            return None
        canonical = f"{self._name}.{fullname}"
        if rest:
            is_ours = first in sys.modules and sys.modules[first] is sys.modules.get(f"{self._name}.{first}")
        else:
            is_ours = self._is_file(first)
        return (
            importlib.machinery.ModuleSpec(fullname, _Alias(canonical))  # type: ignore[arg-type]  # it has the methods of one
            if is_ours
            else None
        )

    def _is_file(self, name: str) -> bool:
        here = importlib.machinery.PathFinder.find_spec(name, [self._root])
        if here is None:
            return False
        # A package of the same name, wherever it is, comes before a folder without `__init__.py`.
        elsewhere = None if here.loader is not None else importlib.machinery.PathFinder.find_spec(name, sys.path[1:])
        return elsewhere is None or elsewhere.loader is None


class _Alias:
    """Loads a module by returning the module of another name."""

    def __init__(self, canonical: str) -> None:
        self._canonical = canonical
        self._spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The module of the other name, which is imported if it was not yet."""
        try:
            module = importlib.import_module(self._canonical)
        except ImportError as error:
            if error.name == self._canonical:
                # The error names the module that was asked for.
                raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name) from None
            raise
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing runs: the module ran already. The import has set the other spec; this puts its spec back."""
        module.__spec__ = self._spec
