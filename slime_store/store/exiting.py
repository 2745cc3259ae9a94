"""Work that is done when the process ends by itself: at its end, after an exception, after ``sys.exit``."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any

_finalizers: dict[Callable[[], None], Any] = {}


def at_exit(work: Callable[[], None]) -> None:
    """Do this work when the process ends by itself. It may be done twice then.

    A child of multiprocessing ends without what `atexit` has; multiprocessing has finalizers of its own.
    """
    atexit.unregister(work)
    atexit.register(work)
    if "multiprocessing" in sys.modules:
        from multiprocessing.util import Finalize

        former = _finalizers.pop(work, None)
        if former is not None:
            former.cancel()
        _finalizers[work] = Finalize(None, work, exitpriority=100)
