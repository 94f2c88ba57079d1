"""Hyperparameters for scripts that know nothing of pedl: they become defaults of the script's options.

    offer      what is offered: matches names, converts values, reports them
    argparse_options, absl_flags, click_options      where each library is intercepted, and how it takes a default

A hyperparameter named like an option (`lr` or `learning_rate` for `--lr`, `--learning-rate`) replaces the option's
default; a value on the command line wins. Only parsers of the script itself count, not those of libraries. Nothing
of this is installed in a run without hyperparameters.
"""
from __future__ import annotations

import importlib

from py_hooks.options.offer import Offer

# The module that intercepts each library.
_MODULES = {
    "argparse": "py_hooks.options.argparse_options",
    "absl.flags": "py_hooks.options.absl_flags",
    "click": "py_hooks.options.click_options",
}

__all__ = ["Offer", "intercept"]


def intercept(library: str, offer: Offer) -> None:
    """Has a library that reads command lines take its defaults from an offer."""
    importlib.import_module(_MODULES[library]).intercept(offer)
