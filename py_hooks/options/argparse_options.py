"""argparse: hyperparameters become defaults of a parser when it parses.

Source: Lib/argparse.py of CPython 3.7 to 3.13: `parse_args` and the parsers of subcommands call `parse_known_args`.
"""
from __future__ import annotations

import argparse

from py_hooks.engine.patch import Generation, Patch, binding, install
from py_hooks.options.offer import as_text, called_by_the_script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from py_hooks.options.offer import Offer


def intercept(offer: Offer) -> None:
    """Has the parsers of the script take their defaults from an offer."""

    @binding
    def parse(original: Callable[..., Any]) -> Callable[..., Any]:
        def parse_with_hyperparameters(
            parser: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: Any = None
        ) -> Any:
            if called_by_the_script("argparse"):
                offer.make(_set_defaults, parser)
            return original(parser, args, namespace)

        return parse_with_hyperparameters

    install(Generation("argparse", "3.7", "on", None, (
        Patch("argparse", "ArgumentParser.parse_known_args", parse, "take hyperparameters as defaults"),
    )))


def _set_defaults(offer: Offer, parser: argparse.ArgumentParser) -> None:
    options: list[tuple[str, list[str]]]
    actions, options, destinations = {}, [], set()
    for action in parser._actions:
        if not action.option_strings or action.dest in ("help", "version", "==SUPPRESS=="):
            continue
        # If one action has `--augment` and `--no-augment`, the first names it.
        longest = max(action.option_strings, key=lambda name: (not name.startswith("--no-"), len(name)))
        actions[longest] = action
        options.extend((longest, [name]) for name in action.option_strings)
        if action.dest not in destinations:
            destinations.add(action.dest)
            options.append((longest, ["", action.dest]))
    for option, hyperparameter in offer.match(options):
        action = actions[option]
        default = _default(offer, parser, action, option, hyperparameter)
        parser.set_defaults(**{action.dest: default})
        action.required = False
        offer.took(hyperparameter, option)


def _default(offer: Offer, parser: argparse.ArgumentParser, action: argparse.Action, option: str, hyperparameter: str) -> Any:
    """A value as the default of an action: the result of parsing it."""
    value = offer.values[hyperparameter]
    if action.nargs == 0:
        return _switched(offer, action, option, hyperparameter)
    if value is None:
        return None
    if isinstance(value, dict):
        raise offer.unfit(hyperparameter, option, "a value that can be typed")
    if action.nargs not in (None, "?") or type(action).__name__ in ("_AppendAction", "_ExtendAction"):
        items = value if isinstance(value, list) else [value]
        return [_converted(offer, parser, action, option, hyperparameter, item) for item in items]
    if isinstance(value, list):
        raise offer.unfit(hyperparameter, option, "one value, as the option takes")
    if action.choices is not None or action.type in (None, bool, int, float):
        return _converted(offer, parser, action, option, hyperparameter, value)
    # A type that the script defines may do more than convert: argparse calls it once, for the default that is used, and
    # reports a value that does not fit as it does for the command line.
    return as_text(value)


def _switched(offer: Offer, action: argparse.Action, option: str, hyperparameter: str) -> Any:
    """The default of an option that takes no value."""
    value = offer.values[hyperparameter]
    if isinstance(value, bool) and type(action).__name__ == "BooleanOptionalAction":
        wanted = "--" + hyperparameter.replace("_", "-")
        return value != (wanted.startswith("--no-") and wanted in action.option_strings)
    if isinstance(value, bool):
        # `--no-augment` may set `augment` to False. If the option itself is named, true means that it is given.
        is_named_by_option = hyperparameter.replace("-", "_") != action.dest and action.const is not None
        return (action.const if value else action.default) if is_named_by_option else value
    if type(action).__name__ == "_CountAction" and isinstance(value, int):
        return value
    raise offer.unfit(hyperparameter, option, "true or false")


def _converted(
    offer: Offer, parser: argparse.ArgumentParser, action: argparse.Action, option: str, hyperparameter: str, value: Any
) -> Any:
    if action.type is None:
        # A script that converts nothing expects text, or the type of its default.
        converted = value if type(value) is type(action.default) else as_text(value)
    elif action.type is bool:
        converted = value
    else:
        try:
            # This also knows types that were registered by a name.
            converted = parser._get_value(action, as_text(value))
        except argparse.ArgumentError as error:
            raise offer.unfit(hyperparameter, option, f"a value that it takes: {error.message}") from error
    if action.choices is not None and converted not in action.choices:
        raise offer.unfit(hyperparameter, option, "one of " + ", ".join(map(repr, action.choices)))
    return converted
