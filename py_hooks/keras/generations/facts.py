"""The differences between generations of Keras that need code, each with a name and its evidence."""
from __future__ import annotations


class KerasFacts:
    """Facts of one generation that has several backends.

    Args:
        backend_module: module whose `backend()` names the backend in use (keras 3, keras/src/backend/config.py; keras 2.3.1,
            keras/backend/__init__.py).
    """

    def __init__(self, backend_module: str) -> None:
        self.backend_module = backend_module
