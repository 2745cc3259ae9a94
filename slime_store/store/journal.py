"""The journal: finished groups of a rollout under way, on disk within moments, without holding up the caller."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from slime_store.mapping.encode import RolloutEncoder
from slime_store.mapping.snapshot import snapshot
from slime_store.store.handle import StoreHandle
from slime_store.store.recording import RecordRequest, write_rollouts
from slime_store.store.sessions import utc_now

_MAX_BATCH = 16
"""Most groups that one transaction takes: one commit costs about as much as writing a few of them."""

_PATIENCE_SECONDS = 1.0
"""A write that fails after longer than this has waited for a lock or a server: what is queued is given up with it."""

_log = logging.getLogger("slime_store")


class Journal:
    """Writes groups in a thread of its own, in the order given. Made by ``Run.journal``; safe from several threads.

    Args:
        handle: the open store.
        run: the run's name.
        run_pk: its key.
        on_error: called in the writing thread with each failure; by default it is logged.
    """

    def __init__(
        self, handle: StoreHandle, run: str, run_pk: int, on_error: Callable[[Exception], None] | None = None
    ) -> None:
        self._handle = handle
        self._run = run
        self._run_pk = run_pk
        self._on_error = on_error or _log_error
        self._queue: queue.Queue[tuple[int, Any] | threading.Event | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def put(self, rollout_id: int, group: Any) -> None:
        """Queue one finished group: a list of samples, or of lists of samples where executions were split.

        A snapshot is taken before this returns, so that the group may be changed afterwards; encoding and writing are
        the journal's own thread's. What cannot be kept exactly is stored as a placeholder.
        """
        taken = snapshot(group)
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                self._pid, self._queue = os.getpid(), queue.Queue()
                self._thread = threading.Thread(target=self._work, name="slime_store-journal", daemon=True)
                self._thread.start()
            self._queue.put((rollout_id, taken))

    def flush(self) -> None:
        """Wait until every group given so far is on disk or has failed; not for those that come meanwhile."""
        written = threading.Event()
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                return
            self._queue.put(written)
        written.wait()

    def close(self) -> None:
        """Write what is queued and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            self._queue.put(None)
            thread.join()

    def _work(self) -> None:
        waiting = self._queue
        while True:
            batch = [waiting.get()]
            while len(batch) < _MAX_BATCH:
                try:
                    batch.append(waiting.get_nowait())
                except queue.Empty:
                    break
            groups = [item for item in batch if isinstance(item, tuple)]
            started = time.monotonic()
            try:
                if groups and not self._write(groups) and time.monotonic() - started > _PATIENCE_SECONDS:
                    batch += _emptied(waiting)  # else each batch would wait as long, and ``flush`` for all of them
            finally:
                for item in batch:
                    if isinstance(item, threading.Event):
                        item.set()
            if None in batch:
                return

    def _write(self, groups: list[tuple[int, Any]]) -> bool:
        """Write groups; False when the store could not take them."""
        now, writable = utc_now(), []
        for number, group in groups:
            try:
                encoded = RolloutEncoder(strict=False).group(group)
            except Exception as error:  # this group's own fault: the others are written
                self._on_error(error)
            else:
                writable.append((RecordRequest(self._run, self._run_pk, number, "new_attempt", now), encoded))
        if not writable:
            return True
        try:
            write_rollouts(self._handle, writable)
        except Exception as error:  # whatever it is, the thread goes on: ``flush`` waits for it
            self._on_error(error)
            return False
        return True


def _emptied(waiting: queue.Queue[Any]) -> list[Any]:
    """Take out of a queue what is in it now."""
    taken = []
    while True:
        try:
            taken.append(waiting.get_nowait())
        except queue.Empty:
            return taken


def _log_error(error: Exception) -> None:
    _log.error("journalling a group failed: %s", error)
