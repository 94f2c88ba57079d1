"""A standard model definition: `pedl-run --config const.yaml .` trains the trial class that is exposed here."""

from .model_def import SignalsTrial, make_data_loaders

__all__ = ["SignalsTrial", "make_data_loaders"]
