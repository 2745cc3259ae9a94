"""Work that is done when the process ends by itself: at its end, after an exception, after ``sys.exit``."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any

_known: set[Callable[[], None]] = set()
_known_to_multiprocessing: set[Callable[[], None]] = set()
_finalizers: dict[Callable[[], None], Any] = {}


def at_exit(work: Callable[[], None]) -> None:
    """Do this work, a function of a module, when the process ends by itself; saying it again changes nothing.

    A child of multiprocessing ends without what `atexit` has. Multiprocessing has finalizers of its own, which a child
    begins without: they are made anew there.
    """
    if work not in _known:
        atexit.register(work)
        _known.add(work)
    if "multiprocessing" in sys.modules:
        from multiprocessing import util

        if work not in _known_to_multiprocessing:
            util.register_after_fork(work, at_exit)
            _known_to_multiprocessing.add(work)
        former = _finalizers.get(work)
        if former is None or not former.still_active():
            _finalizers[work] = util.Finalize(None, work, exitpriority=100)
