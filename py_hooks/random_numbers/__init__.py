"""Random numbers: private streams for items and workers, generators that the script owns, and reads of the system's entropy."""
