"""Keeping Python's cycle collector out of bulk work.

Making the objects of a rollout (thousands of lists, dicts and samples, none of them garbage) sets off collections that
walk every element of every long list alive: measured on workload W1, a third of the time of a load.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

_MUCH = 100_000
"""How many objects may be aged before all are counted."""

_lock = threading.RLock()
_is_ours = False
"""Collection is off because of us."""
_aged = 0
_n_before: int | None = None


class _Pause:
    """One pause. It ends with its frame at the latest, if Ctrl-C comes between two lines of this module."""

    def begin(self) -> None:
        global _is_ours
        with _lock:
            if not _pauses and gc.isenabled():
                _is_ours = True
            _pauses.add(self)
            gc.disable()

    def end(self) -> None:
        global _is_ours
        with _lock:
            _pauses.discard(self)
            if not _pauses and _is_ours:
                try:
                    _age()
                finally:
                    gc.enable()
                    _is_ours = False

    def __del__(self) -> None:
        self.end()


_pauses: weakref.WeakSet[_Pause] = weakref.WeakSet()


@contextmanager
def paused() -> Iterator[None]:
    """Suspend automatic collection in this process, and resume it if it was on. May be nested and used by threads."""
    pause = _Pause()
    try:
        pause.begin()
        yield
    finally:
        pause.end()


def _age() -> None:
    """Count what was made meanwhile as old, so that the next collection of young objects does not walk it.

    Freezing and unfreezing moves every object to the oldest generation without a look at it. Objects that the program
    itself has frozen, as before a fork, would be unfrozen with them: then everything stays as it is.

    Python does not know that the oldest generation has grown so, and might never look there for garbage, such as that
    of other threads. So its objects are counted now and then, and walked when a quarter has come on top.
    """
    global _aged, _n_before
    if gc.get_freeze_count():
        return
    _aged += gc.get_count()[0]
    gc.freeze()
    gc.unfreeze()
    if _aged > _MUCH:
        _aged = 0
        n_objects = _n_old()
        if _n_before is None or n_objects < _n_before:
            _n_before = n_objects
        elif 4 * n_objects > 5 * _n_before:
            gc.collect()
            _n_before = _n_old()


def _n_old() -> int:
    return len(gc.get_objects(generation=2))


def _resume_in_child() -> None:
    """A forked child has none of the threads that paused: collect again."""
    global _lock, _pauses, _is_ours
    _lock, _pauses = threading.RLock(), weakref.WeakSet()
    if _is_ours:
        gc.enable()
    _is_ours = False


os.register_at_fork(after_in_child=_resume_in_child)
