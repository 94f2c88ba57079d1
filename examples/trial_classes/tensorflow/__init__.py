"""A standard model definition: `pedl-run --config const.yaml .` trains the trial class that is exposed here."""

from .model_def import ShapesTrial, make_data_loaders

__all__ = ["ShapesTrial", "make_data_loaders"]
