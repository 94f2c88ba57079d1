"""Places in the script: where a recorded call was made, as an id of `file:line`."""
from __future__ import annotations

import sys

from py_hooks import places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType

    from _pedl import Trial

# Instructions whose line is known. Finding the line of an instruction takes longer, the further down in its code it is.
MAX_KNOWN_SITES = 10000


class Sites:
    """The places from which the script calls.

    Attributes:
        known: ids of the lines that called before, by `(id(code), instruction)`.
        entered: sites of the script's calls into the framework that are under way, innermost last.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.known: dict[tuple[int, int], int] = {}
        self.entered: list[int] = []
        self._codes: list[CodeType] = []

    def here(self) -> int:
        """Where the script is: the place of the running entry, or else of the innermost user's frame."""
        if self.entered:
            return self.entered[-1]
        frame = sys._getframe(1)
        # Skips the frames of a framework, which are several, without a call for each.
        while frame.f_back is not None and places.KNOWN.get(frame.f_code.co_filename) is False:
            frame = frame.f_back
        return self.of(frame)

    def known_of(self, frame: FrameType) -> int | None:
        """The id of the line that a frame is in; None if that takes longer to find: `here` finds it."""
        return None if self.entered else self.known.get((id(frame.f_code), frame.f_lasti))

    def of(self, frame: FrameType) -> int:
        """The id of the line of the user's code in which a frame is, or the frame that called it, and so on."""
        code, instruction = frame.f_code, frame.f_lasti
        known = self.known.get((id(code), instruction))
        if known is not None:
            return known
        user = places.user_frame(frame)
        if user is not None and user is not frame:
            # The next time that line is known.
            return self.of(user)
        file, line = ("?", 0) if user is None else (user.f_code.co_filename, user.f_lineno)
        site = self._trial.intern(f"{places.display_path(file)}:{line}")
        if user is frame:
            if len(self.known) >= MAX_KNOWN_SITES:
                self.known.clear()
                del self._codes[:]
            self.known[id(code), instruction] = site
            # Kept, so that no other code object gets its id.
            self._codes.append(code)
        return site
