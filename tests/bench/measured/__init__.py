"""The same training as a trial class and as a loop that a user would write; `cargo dev bench` runs both in turns.

A module of each framework has a trial class and `plain(parts)`, the loop. Both train a perceptron of three layers on
batches of `ROWS` rows, and have the loss of each batch; none validates or saves while it is measured. A step of the trial
is a part of what is measured, and so is an epoch. The first is a warm-up, and in no turn.
"""
import json
import sys
import time

ROWS, COLUMNS, HIDDEN, CLASSES = 64, 784, 512, 10
PARTS = 20


def data(batches):
    """Rows of numbers and of labels, as many as there are batches in a part."""
    import numpy

    random = numpy.random.RandomState(1)
    rows = random.rand(ROWS * batches, COLUMNS).astype("float32")
    return rows, random.randint(CLASSES, size=len(rows)).astype("int64")


class Parts:
    """The time of each part; a part is a turn.

    Args:
        turns: of two processes.
        batches: in a part.
    """

    def __init__(self, turns, batches):
        self.batches = batches
        self._turns = turns
        self._number = 0
        self._begun = None
        self._seconds = []

    def begins(self):
        """A part begins."""
        if self._number:
            self._turns.take()
        self._begun = time.perf_counter()

    def ended(self):
        """A part is over. Prints the seconds of a batch in each after the last."""
        seconds = (time.perf_counter() - self._begun) / self.batches
        if self._number:
            self._seconds.append(seconds)
            self._turns.give()
        self._number += 1
        if self._number == PARTS + 1:
            sys.stdout.write(json.dumps({"trial": self._seconds}) + "\n")


def of_trial():
    """The callback of a trial that times its steps, in a list."""
    import pedl
    from pedl.callback import Callback
    from turns import Turns

    given = [pedl.get_hyperparameter(name) for name in ("mine", "other", "batches")]
    parts = Parts(Turns(*given[:2]), given[2])

    class OfSteps(Callback):
        def on_train_step_begin(self, step_id):
            parts.begins()

        def on_train_step_end(self, step_id, metrics):
            parts.ended()

    return [OfSteps()]
