"""absl.flags: hyperparameters become defaults of the flags when the command line is parsed.

Flags that libraries define, including absl's `--verbosity`, are not the script's.

Source: absl-py 2.5.1, absl/flags/_flagvalues.py.
"""
from __future__ import annotations

import sys

from py_hooks.engine.patch import Generation, Patch, binding, install
from py_hooks.options.offer import as_text, is_the_scripts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from py_hooks.options.offer import Offer


def intercept(offer: Offer) -> None:
    """Has the flags of the script take their defaults from an offer."""

    @binding
    def parse(original: Callable[..., Any]) -> Callable[..., Any]:
        def parse_with_hyperparameters(flags: Any, argv: Sequence[str], known_only: bool = False) -> Any:
            offer.make(_set_defaults, flags)
            return original(flags, argv, known_only)

        return parse_with_hyperparameters

    install(Generation("absl-py", "0.1", "on", None, (
        Patch("absl.flags", "FlagValues.__call__", parse, "take hyperparameters as defaults"),
    )))


def _set_defaults(offer: Offer, flags: Any) -> None:
    from absl.flags import IllegalFlagValueError

    names = {f"--{name}": name for name in flags if _defines(flags.find_module_defining_flag(name))}
    for option, hyperparameter in offer.match([(option, [name]) for option, name in names.items()]):
        try:
            # `set_default` would ask validators, which may ask for flags that are not parsed yet.
            flags[names[option]]._set_default(_default(offer.values[hyperparameter]))
        except IllegalFlagValueError as error:
            raise offer.unfit(hyperparameter, option, f"a value that the flag takes: {error}") from error
        offer.took(hyperparameter, option)


def _defines(name: str) -> bool:
    """Whether flags of this module are the script's. absl names the script as it was started."""
    module = sys.modules.get(name)
    return module is None or is_the_scripts(name, getattr(module, "__file__", None))


def _default(value: object) -> list[str] | bool | str | None:
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return value if value is None or isinstance(value, bool) else as_text(value)
