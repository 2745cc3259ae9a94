"""Threads that may not hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60.0
"""How long a test waits for what should have happened; only a hanging thread takes so long."""


def in_time(*works: Callable[[], Any]) -> None:
    """Do works at the same time, each in a thread; none of them may hang."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
