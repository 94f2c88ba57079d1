"""`DataLoader`, a drop-in for torch's, and `TorchData`, the type of its batches."""
from __future__ import annotations

import importlib
from typing import Any, Dict, List, Tuple, Union

TYPE_CHECKING = False
if TYPE_CHECKING:
    class DataLoader(Any):
        """A `torch.utils.data.DataLoader` for the loaders of a `PyTorchTrial`."""

# An array or a tensor, or tuples, lists and dicts of these, in any nesting. torch is imported by whoever uses it.
TorchData = Union[Dict[str, Any], List[Any], Tuple[Any, ...], Any]


def __getattr__(name: str) -> Any:
    """`DataLoader`, which is made at its first use, because its base is torch's."""
    if name != "DataLoader":
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    base: Any = importlib.import_module("torch.utils.data").DataLoader

    class DataLoader(base):
        """A `torch.utils.data.DataLoader` for the loaders of a `PyTorchTrial`.

        It takes the same arguments. In a trial its batches are the same with any number of workers, and a resumed trial
        continues at the batch where it ended.
        """

    DataLoader.__module__ = __name__
    DataLoader.__qualname__ = "DataLoader"
    globals()["DataLoader"] = DataLoader
    return DataLoader
