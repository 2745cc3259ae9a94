"""What threads are in the middle of, so that a signal handler does not wait for what its own thread holds."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator

from slime_store.database import closed_if_interrupted, members, tell_after_fork


class _Operation:
    """Counts while its frame lives: no interrupt between two lines leaves it behind."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class Operations:
    """The transactions of one open store, the starts of sessions, and its opening, by thread.

    Other threads wait for what they hold: a signal handler that waits for those threads would wait for itself.
    """

    _under_way: weakref.WeakSet[_Operation]
    _later: dict[int, Callable[[], None]]

    def __init__(self) -> None:
        self.after_fork()
        tell_after_fork(self)

    @closed_if_interrupted
    def under_way(self) -> Iterator[None]:
        """Be in the middle of something while the body runs; may be nested."""
        operation = _Operation()
        self._under_way.add(operation)
        try:
            yield
        finally:
            self._under_way.discard(operation)
            if self._later and not self.is_here():
                self._later.pop(operation.thread, _nothing)()

    def is_here(self) -> bool:
        """Tell whether the current thread is in the middle of something."""
        thread = threading.get_ident()
        return any(operation.thread == thread for operation in members(self._under_way))

    def when_done(self, work: Callable[[], None]) -> None:
        """Do something when the current thread is through."""
        self._later[threading.get_ident()] = work

    def after_fork(self) -> None:
        """Forget what other threads of the parent do."""
        here = threading.get_ident()
        before = members(self._under_way) if hasattr(self, "_under_way") else []
        self._under_way = weakref.WeakSet(operation for operation in before if operation.thread == here)
        self._later = {}


def _nothing() -> None:
    pass
