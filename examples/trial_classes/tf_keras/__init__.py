"""A standard model definition: `pedl-run --config const.yaml .` trains the trial class that is exposed here."""

from .model_def import ReviewsTrial, make_data_loaders

__all__ = ["ReviewsTrial", "make_data_loaders"]
