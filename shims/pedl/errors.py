"""The exceptions of `pedl`."""


class Error(Exception):
    """Every error of this package."""


class NotUnderHost(Error):
    """The script does not run under `pedl-run`, so there is no trial to ask about."""


class HyperparameterNotFound(Error):
    """The trial has no hyperparameter of this name."""


class NothingDownloaded(Error):
    """The model definition has no `download_data`, or it was not called."""
