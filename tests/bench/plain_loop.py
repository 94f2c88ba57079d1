"""The loop that trial classes of `measured` are compared with.

`plain_loop.py MODULE BATCHES MINE OTHER`, with BATCHES in a part; the rest as in batches.py.
"""
import importlib
import sys

from measured import Parts
from turns import Turns


def main():
    module, batches, mine, other = sys.argv[1:]
    importlib.import_module(f"measured.{module}").plain(Parts(Turns(mine, other), int(batches)))


if __name__ == "__main__":
    main()
