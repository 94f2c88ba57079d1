"""`wrap_dataset`, which model definitions call right after they have made a data set (rule K6)."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    _T = TypeVar("_T")


def wrap_dataset(dataset: _T) -> _T:
    """Accepts a `tf.data.Dataset`, right after it is created. Returns it.

    Nothing happens here: if several processes train, the data sets that `make_data_loaders` returns are shared out.
    """
    return dataset
