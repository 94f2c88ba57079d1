"""The words of the border to the extension module: states of a replay, kinds of calls, what is due, exit codes.

Each has one definition, in Rust (`src/native/replay.rs`, `src/core/exit_codes.rs`); this is the one place that imports them.
"""
from __future__ import annotations

from _pedl import Due, ExitCode, Kind, Next, State

__all__ = ["Due", "ExitCode", "Kind", "Next", "State"]
