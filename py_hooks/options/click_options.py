"""click: a command looks up hyperparameters for options that were not typed.

click converts these values as it converts what is typed, and reports a value that does not fit in its usual way.

Source: click 8.1, src/click/core.py: `Parameter.consume_value` asks the command line, the environment, then
`Context.lookup_default`.
"""
from __future__ import annotations

from py_hooks.engine.patch import Generation, Patch, binding, install
from py_hooks.options.offer import is_the_scripts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from py_hooks.options.offer import Offer


def intercept(offer: Offer) -> None:
    """Has the options of the script's commands look up an offer."""

    @binding
    def lookup_default(original: Callable[..., Any]) -> Callable[..., Any]:
        def lookup_hyperparameter(context: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            option, hyperparameter = offer.make(_named, context, name)
            if hyperparameter is not None:
                offer.took(hyperparameter, option)
                return offer.values[hyperparameter]
            return original(context, name, *args, **kwargs)

        return lookup_hyperparameter

    install(Generation("click", "7.0", "on", None, (
        Patch("click.core", "Context.lookup_default", lookup_default, "take hyperparameters as defaults"),
    )))


def _named(offer: Offer, context: Any, name: str) -> tuple[str | None, str | None]:
    """The option of a parameter, and the hyperparameter that names it; None if there is none."""
    import click

    code = getattr(context.command.callback, "__code__", None)
    module = getattr(context.command.callback, "__module__", None)
    if code is None or not is_the_scripts(module, code.co_filename):
        return None, None
    options = [one for one in context.command.params if isinstance(one, click.Option)]
    keys = {one.name: max(one.opts, key=len) for one in reversed(options)}
    for option, hyperparameter in offer.match([(keys[one.name], [one.name] + one.opts) for one in options]):
        if option == keys.get(name):
            return option, hyperparameter
    return None, None
