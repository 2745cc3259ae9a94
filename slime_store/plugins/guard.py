"""Training goes on: what happens to store errors inside a training run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger("slime_store.plugin")


class Guard:
    """Runs store operations, and lets their failures through, or logs and counts them.

    Args:
        on_error: "raise" or "warn".
    """

    def __init__(self, on_error: str) -> None:
        self.errors = 0
        self._raises = on_error == "raise"
        self._lock = threading.Lock()

    def run(self, what: str, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns; None when it failed and failures are only logged."""
        try:
            return work()
        except Exception as error:  # also a fault of ours must not stop a training run
            self.failed(what, error)
            if self._raises:
                raise
            return None

    def failed(self, what: str, error: BaseException) -> None:
        """Count and log a failure."""
        with self._lock:
            self.errors += 1
        log.error("slime_store could not %s (%s: %s); training goes on", what, type(error).__name__, error)


def say(message: str, *values: Any) -> None:
    """Log one decision in one plain line."""
    log.info("slime_store: " + message, *values)
