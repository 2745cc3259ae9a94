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
        self._unraised: BaseException | None = None
        self._lock = threading.RLock()

    def run(self, what: str, work: Callable[[], T]) -> T | None:
        """Return what ``work`` returns; None when it failed and failures are only logged."""
        try:
            return work()
        except Exception as error:  # also a fault of ours must not stop a training run
            self._note(what, error)
            if self._raises:
                raise
            return None

    def failed(self, what: str, error: BaseException) -> None:
        """Count and log a failure in another thread; with "raise", the next ``check`` raises it."""
        self._note(what, error)
        with self._lock:
            self._unraised = self._unraised or error

    def check(self) -> None:
        """Raise the first failure of another thread, once; only with "raise"."""
        with self._lock:
            error, self._unraised = self._unraised, None
        if error is not None and self._raises:
            raise error

    def _note(self, what: str, error: BaseException) -> None:
        with self._lock:
            self.errors += 1
        outcome = "training stops" if self._raises else "training goes on"
        log.error("slime_store could not %s (%s: %s); %s", what, type(error).__name__, error, outcome)


def say(message: str, *values: Any) -> None:
    """Log one decision in one plain line."""
    log.info("slime_store: " + message, *values)


def warn(message: str, *values: Any) -> None:
    """Log something that the user should know."""
    log.warning("slime_store: " + message, *values)
