"""The cost of an imposed order: runs of a session with it and without, in turns, in one process of plain Python.

    python tests/bench/races.py [KIND]... [--turns 60] [--runs 100]

KIND is one of those of tests/scripts/unordered.py that train in sessions. Each turn makes some runs with the fetches of
the script, and as many with those that have an order; both use one thread for operations, as with `--exact`. It prints
medians of a run over all turns, the median of the differences within a turn, and the time to analyse the graph.
"""

import argparse
import os
import runpy
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tests" / "scripts" / "unordered.py"
KINDS = ["average", "spectral", "centre", "target", "counter"]
COLUMNS = "{:<10} {:<10} {:>6} {:>6} {:>10} {:>10} {:>10} {:>10}"


def measure(kind, variables, turns, runs):
    """Prints the line of a kind."""
    import tensorflow.compat.v1 as tf

    from py_hooks.tensorflow.graphs import graphs

    tf.reset_default_graph()
    sys.argv = ["unordered.py", kind, "0", *([variables] if variables == "resource" else [])]
    functions = runpy.run_path(str(SCRIPT), run_name="unordered")
    fetches = []
    functions[kind].__globals__["train"] = lambda *given: fetches.extend(given)
    functions[kind]()
    graph = tf.get_default_graph()
    feeds = [graph.get_tensor_by_name(name) for name in ("x:0", "y:0")]
    begun = time.perf_counter()
    effects = graphs.of(graph).effects(fetches, feeds)
    looked = time.perf_counter() - begun
    pairs = [pair for pairs in effects.races.waiting.values() for pair in pairs]
    effects.substitutes = effects.races.impose(pairs)
    values = dict(zip(feeds, functions["rows"]()))
    with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1)) as session:
        session.run(tf.global_variables_initializer())
        both = [session.make_callable(given, feeds) for given in (fetches, effects.fetched(fetches))]
        for run in both:
            _seconds(run, values, runs)
        pairs_of_seconds = [_turn(both, values, runs, turn) for turn in range(turns)]
    plain, ordered = ([1e6 * turn[place] / runs for turn in pairs_of_seconds] for place in (0, 1))
    difference = statistics.median(after - before for before, after in zip(plain, ordered))
    print(COLUMNS.format(
        kind, variables, len(graph.get_operations()), len(pairs), f"{statistics.median(plain):.1f}",
        f"{statistics.median(ordered):.1f}", f"{difference:+.1f}", f"{looked * 1000:.1f}",
    ), flush=True)


def _turn(both, values, runs, turn):
    """Seconds of both; the first one changes from turn to turn."""
    order = (0, 1) if turn % 2 else (1, 0)
    seconds = {place: _seconds(both[place], values, runs) for place in order}
    return seconds[0], seconds[1]


def _seconds(run, values, runs):
    given = list(values.values())
    begun = time.perf_counter()
    for _ in range(runs):
        run(*given)
    return time.perf_counter() - begun


def main():
    """Measures the kinds, with variables of both kinds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="*", default=KINDS)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--variables", choices=["reference", "resource"], default="reference")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    print(COLUMNS.format("kind", "variables", "ops", "pairs", "µs plain", "ordered", "µs more", "ms to look"))
    for kind in arguments.kind:
        measure(kind, arguments.variables, arguments.turns, arguments.runs)


if __name__ == "__main__":
    main()
