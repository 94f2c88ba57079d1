"""The double of the package `requests` for the public examples: `get` of a URL that `public_data.py` has a file for."""

import stored


class Response:
    """What `get` returns."""

    def __init__(self, path):
        self._path = path

    @property
    def content(self):
        """All of it."""
        return self._path.read_bytes()

    def iter_content(self, chunk_size=1):
        """All of it, in parts of so many bytes."""
        with self._path.open("rb") as file:
            yield from iter(lambda: file.read(chunk_size), b"")


def get(url, stream=False):
    """The file of a URL."""
    return Response(stored.file_of(url))
