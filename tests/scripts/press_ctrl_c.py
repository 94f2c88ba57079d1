"""Runs a command in a terminal, presses Ctrl-C when it is ready, then ends it with SIGTERM.

The command counts its signals (count_signals.py); what it printed is printed.
"""
import contextlib
import os
import pty
import signal
import sys

pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])

printed = b""


def read_until(text):
    global printed
    while text not in printed:
        printed += os.read(terminal, 4096)


read_until(b"ready")
os.write(terminal, b"\x03")
read_until(b"SIGINT 1")
os.kill(pid, signal.SIGTERM)
# After the last process that writes to a terminal has ended, and all that it wrote was read, reading fails.
with contextlib.suppress(OSError):
    while True:
        printed += os.read(terminal, 4096)
_, status = os.waitpid(pid, 0)
print(printed.decode().replace("^C", "").replace("\r", ""), end="")
print("exit", os.WEXITSTATUS(status))
