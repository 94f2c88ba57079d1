"""A standard model definition: `pedl-run --config const.yaml .` trains the trial class that is exposed here."""

from .model_def import IncomeTrial

__all__ = ["IncomeTrial"]
