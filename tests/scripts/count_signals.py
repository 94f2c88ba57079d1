"""Counts the signals it gets until SIGTERM; says `ready` when it listens."""
import os
import signal
import sys

counts = {}


def say(*words):
    # `print` cannot be entered again by a handler that interrupts it.
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def count(number, frame):
    name = signal.Signals(number).name
    counts[name] = counts.get(name, 0) + 1
    say(name, counts[name])
    if number == signal.SIGTERM:
        sys.exit(5)


for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGQUIT"):
    if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:
        signal.signal(getattr(signal, name), count)
    else:
        say(name, "is ignored")
say("ready")
while True:
    # A signal between two calls of `pause` would wait for the next one; a short timeout does not.
    signal.sigtimedwait([], 0.05)
