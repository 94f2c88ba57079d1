"""Kills a run while it writes below one directory, in the middle of a write, after a given number of bytes.

    kill = KillAtByte(tmp_path / "control", below=tmp_path / "run" / ".pedl")
    run = support.ScriptRun(tmp_path / "run", script, environment=kill.environment)
    running = run.start()
    kill.arm(1000, "everything")
    running.ends_before(lambda: kill.hit is not None)
    assert kill.hit == ("write", 12, 80, "train/events.jsonl")

support/kill_at_byte.c does the kill, within each process of the run. This module compiles it with the C compiler of the
machine, which Rust needs too, and sets the moment. No part of pedl-run knows of it.
"""

import collections
import ctypes
import mmap
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "support" / "kill_at_byte.c"

# The place of a kill: the call, how many of how many bytes it had written (if the call cannot be torn: whether
# it was made, of 1), and the path below the directory.
Hit = collections.namedtuple("Hit", "call done size path")


class _Control(ctypes.Structure):
    """`struct control` of the library."""

    _fields_ = [
        ("left", ctypes.c_int64),
        ("counted", ctypes.c_int64),
        ("only_writer", ctypes.c_int32),
        ("killer", ctypes.c_int32),
        ("below", ctypes.c_char * 4096),
        ("what", ctypes.c_char * 512),
    ]


class KillAtByte:
    """Kills one run at bytes, any number of times.

    Args:
        path: a file that is made, and that the processes of the run share with this one. The library is made beside it.
        below: only what is written into this directory counts.
    """

    def __init__(self, path, below):
        with open(str(path), "wb+") as file:
            file.truncate(ctypes.sizeof(_Control))
            self._control = _Control.from_buffer(mmap.mmap(file.fileno(), 0))
        self._control.below = os.path.realpath(str(below)).encode()
        self.environment = {"LD_PRELOAD": _library(f"{path}.so"), "KILL_AT_BYTE": str(path)}

    def arm(self, count, target):
        """From now on the run may write this many bytes until it is killed.

        Args:
            count: 1 or more.
            target: `everything`; or `trial`, the process that trains, if that process writes then.
        """
        self._control.killer = 0
        self._control.only_writer = target == "trial"
        self._control.left = count

    def disarm(self):
        """Kills nothing from now on. A kill may have come before."""
        self._control.left = 0

    @property
    def counted(self):
        """Bytes written so far, by all processes since this was made."""
        return self._control.counted

    @property
    def killer(self):
        """The process that wrote when the kill came; None before the kill."""
        return self._control.killer or None

    @property
    def hit(self):
        """The place of the kill, a `Hit`; None before the kill."""
        if not self._control.killer:
            return None
        call, part, path = self._control.what.decode("utf-8", "replace").split(" ", 2)
        done, size = part.split("/")
        return Hit(call, int(done), int(size), path)


def _library(path):
    """Compiles the library; returns its path."""
    compiler = shutil.which("cc")
    assert compiler is not None, "there is no C compiler `cc`"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path, str(SOURCE)], check=True)
    return path
