"""A data set whose module does more than define when it is imported."""

from sent_rows import Rows

print("IMPORTED")


class Busy(Rows):
    """As its base."""
