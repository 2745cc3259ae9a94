"""One line that says how training goes."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

_WIDTH = 12


class Progress:
    """A bar that is redrawn in place on a terminal, and a line for every tenth elsewhere.

    Args:
        total: steps to come.
        stream: where it is drawn.
    """

    def __init__(self, total: int, stream: TextIO = sys.stdout) -> None:
        self._total, self._stream = total, stream
        self._started_at = time.monotonic()
        self._tenths = -1
        self._is_in_line = False

    def show(self, done: int, **figures: float) -> None:
        """Draw the bar at ``done`` steps, with figures between 0 and 1 beside it."""
        filled = _WIDTH * done // self._total
        bar = "█" * filled + "░" * (_WIDTH - filled)
        steps = f"{done:>{len(str(self._total))}}/{self._total}"
        numbers = "  ".join(f"{name} {value:.2f}" for name, value in figures.items())
        line = f"  {bar} {steps} {time.monotonic() - self._started_at:4.0f} s  {numbers}"
        if self._stream.isatty():
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r{line[: columns - 1]}\x1b[K")
            self._is_in_line = True
            if done == self._total:
                self.interrupt()
        elif (tenths := 10 * done // self._total) > self._tenths:
            self._tenths = tenths
            self._stream.write(f"{line}\n")
        self._stream.flush()

    def interrupt(self) -> None:
        """End the line, so that something else can be printed."""
        if self._is_in_line:
            self._stream.write("\n")
        self._is_in_line = False
