"""Prints the table of counters; with `--list NAME` the places of those whose name contains it.

The exit code is 1 if a count is above its limit. With `--check` only those are printed, with their places.
"""

import argparse
import sys

from counters import table

# The most places of a counter that `--check` prints.
_MOST_SHOWN = 20


def measure(counter):
    """The count of a counter, which for phrases is a rate, and its places."""
    places = list(counter.find())
    if counter.words is None:
        return len(places), places
    return 1000 * len(places) / counter.words(), places


def _shown(number):
    """A rate has three digits after the point, a count none."""
    return f"{number:.3f}" if isinstance(number, float) else str(number)


def _print_places(counter, places, most=None):
    print(f"{counter.name}: {len(places)}")
    for place in places[:most]:
        print(f"  {place.file}:{place.line}: {place.what}")
    if most and len(places) > most:
        print(f"  and {len(places) - most} more: `cargo dev counters --list '{counter.name}'`")


def main(arguments):
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="cargo dev counters", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print only what is above its limit")
    parser.add_argument("--list", metavar="NAME", help="print the places of these counters")
    options = parser.parse_args(arguments)
    counters = [counter for counter in table.COUNTERS if options.list is None or options.list in counter.name]
    if not counters:
        print(f"no counter has `{options.list}` in its name", file=sys.stderr)
        return 64
    is_table = not options.check and options.list is None
    if is_table:
        print(f"{'':<58} {'count':>8} {'limit':>8} {'goal':>8}")
    is_good = True
    for counter in counters:
        count, places = measure(counter)
        is_above = count > counter.limit
        is_good &= not is_above
        if is_table:
            unit = ", in 1,000 words" if counter.words else ""
            remark = "  ABOVE ITS LIMIT" if is_above else "" if count > counter.goal else "  reached"
            print(f"{counter.name + unit:<58} {_shown(count):>8} {counter.limit!s:>8} {counter.goal!s:>8}{remark}")
        elif options.list is not None or is_above:
            _print_places(counter, places, None if options.list is not None else _MOST_SHOWN)
            if is_above:
                print(f"  {_shown(count)} is above the limit {counter.limit}, which `tests/counters/table.py` has")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
