"""click: hyperparameters are what a command looks up for options that were not typed.

click converts what it looks up as it converts what is typed, and reports what does not fit in its own way.

Source: click 8.1, src/click/core.py: `Parameter.consume_value` asks the command line, the environment, then
`Context.lookup_default`.
"""
from py_hooks.engine.patch import Generation, Patch, binding, install


def intercept(offer):
    """Has the options of the script's commands look up an offer."""

    @binding
    def lookup_default(original):
        def lookup_hyperparameter(context, name, *args, **kwargs):
            option, hyperparameter = offer.make(_named, context, name)
            if hyperparameter is not None:
                offer.took(hyperparameter, option)
                return offer.values[hyperparameter]
            return original(context, name, *args, **kwargs)

        return lookup_hyperparameter

    install(Generation("click", "7.0", "on", None, (
        Patch("click.core", "Context.lookup_default", lookup_default, "take hyperparameters as defaults"),
    )))


def _named(offer, context, name):
    """The option of a parameter, and the hyperparameter that it is named by; None where there is none."""
    import click

    options = {max(one.opts, key=len): one for one in context.command.params if isinstance(one, click.Option)}
    for option, hyperparameter in offer.match([(key, [one.name] + one.opts) for key, one in options.items()]):
        if options[option].name == name:
            return option, hyperparameter
    return None, None
