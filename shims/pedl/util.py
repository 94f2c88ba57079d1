"""Functions that model code of PEDL imports from here: some of `pedl` itself, and checks of input."""
from __future__ import annotations

from urllib.parse import urlparse

from pedl.experiment import get_data_config as get_data_config
from pedl.experiment import get_experiment_config as get_experiment_config
from pedl.hyperparameters import get_hyperparameter as get_hyperparameter
from pedl.hyperparameters import get_hyperparameters as get_hyperparameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def is_valid_url(url: Any) -> bool:
    """Whether a text is an address: it has a scheme and a host, like `https://example.com/data.csv`."""
    try:
        parts = urlparse(url)
    except (AttributeError, TypeError, ValueError):
        return False
    return bool(parts.scheme and parts.netloc)
