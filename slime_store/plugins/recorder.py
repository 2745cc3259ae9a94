"""Recording in the background, in order, with the spool behind it."""

from __future__ import annotations

import atexit
import os
import queue
import threading

from slime_store.plugins.guard import Guard
from slime_store.plugins.spool import Spool
from slime_store.store.prepared import PreparedRollout
from slime_store.types import RolloutInfo

MAX_PENDING = 2
"""Rollouts that may wait; one more, and the training loop waits for the store."""


class Recorder:
    """Stores prepared rollouts in a thread of its own. What the store refuses goes to the spool.

    Args:
        guard: counts and logs failures.
        spool: where refused rollouts go.
        raises: raise the first failure at the next call instead.
    """

    def __init__(self, guard: Guard, spool: Spool, *, raises: bool) -> None:
        self.n_bytes = 0
        self._guard = guard
        self._spool = spool
        self._raises = raises
        self._failure: BaseException | None = None
        self._queue: queue.Queue[PreparedRollout] = queue.Queue(MAX_PENDING)
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def put(self, prepared: PreparedRollout) -> None:
        """Queue a rollout; waits while too many are queued.

        Raises:
            StoreError: with ``raises``, an earlier rollout could not be stored.
        """
        self.check()
        if self._thread is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._work, name="slime_store-recorder", daemon=True)
            self._thread.start()
            atexit.register(self.flush)  # the last rollout is not lost when the process ends by itself
        self._queue.put(prepared)

    def flush(self) -> None:
        """Wait until every queued rollout is stored, spooled or lost with a log line."""
        if self._thread is not None and self._pid == os.getpid():
            self._queue.join()

    def check(self) -> None:
        """Raise an earlier failure, with ``raises``; once."""
        failure, self._failure = self._failure, None
        if failure is not None and self._raises:
            raise failure

    def _work(self) -> None:
        while True:
            prepared = self._queue.get()
            try:
                self._store(prepared)
            finally:
                self._queue.task_done()

    def _store(self, prepared: PreparedRollout) -> RolloutInfo | None:
        try:
            info = prepared.store()
        except Exception as error:
            self._guard.failed(f"record {prepared.what}", error)
            self._failure = error
        else:
            self.n_bytes = info.n_bytes
            return info
        try:
            self._spool.keep(prepared)
        except Exception as error:
            self._guard.failed(f"spool {prepared.what}, which is lost", error)
        return None
