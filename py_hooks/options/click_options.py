"""click: hyperparameters are what a command looks up for options that were not typed.

click converts what it looks up as it converts what is typed, and reports what does not fit in its own way.

Source: click 8.1, src/click/core.py: `Parameter.consume_value` asks the command line, the environment, then
`Context.lookup_default`.
"""
from py_hooks.engine.patch import Generation, Patch, binding, install
from py_hooks.options.offer import AmbiguousOption


def intercept(offer):
    """Has the options of the script's commands look up an offer."""

    @binding
    def lookup_default(original):
        def lookup_hyperparameter(context, name, *args, **kwargs):
            import click

            options = {option.name: option for option in context.command.params if isinstance(option, click.Option)}
            if name in options:
                longest = {name: max(option.opts, key=len) for name, option in options.items()}
                names = [(key, [name] + options[name].opts) for name, key in longest.items()]
                try:
                    found = dict(offer.match(names))
                except AmbiguousOption as error:
                    offer.stop(error)
                if longest[name] in found:
                    hyperparameter = found[longest[name]]
                    offer.took(hyperparameter, longest[name])
                    return offer.values[hyperparameter]
            return original(context, name, *args, **kwargs)

        return lookup_hyperparameter

    install(Generation("click", "7.0", "on", None, (
        Patch("click.core", "Context.lookup_default", lookup_default, "take hyperparameters as defaults"),
    )))
