"""The directory that `download_data` of a model definition has returned."""
from __future__ import annotations

from pedl._context import context
from pedl.errors import NothingDownloaded


def get_download_data_dir() -> str:
    """The path that `download_data` of the model definition has returned.

    Raises:
        NothingDownloaded: there is no such function; a script without a model definition has none.
        NotUnderHost: the script does not run under pedl-run.
    """
    directory = context().get("download_data_dir")
    if directory is None:
        raise NothingDownloaded(
            "this trial has no directory of downloaded data\n"
            "  it is what `download_data()` of a model definition with a trial class returns\n"
            "  in a script, name the directory in the configuration and read it with `pedl.get_data_config()`"
        )
    return directory
