"""The journal: finished groups of a rollout under way, on disk within moments, without holding up the caller."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from slime_store.errors import BackgroundRecordError, StoreError
from slime_store.mapping.encode import RolloutEncoder
from slime_store.mapping.snapshot import snapshot
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import rollout_number
from slime_store.store.recording import write_rollouts
from slime_store.store.requests import RecordRequest
from slime_store.store.sessions import utc_now
from slime_store.store.worker import Worker

_MAX_BATCH = 16
"""Most groups that one transaction takes: one commit costs about as much as writing a few of them."""

_PATIENCE_SECONDS = 1.0
"""A write that fails after longer than this has waited for a lock or a server: what is queued is given up with it."""

_log = logging.getLogger("slime_store")


class Journal:
    """Writes groups in a thread of its own, in the order given. Made by ``Run.journal``; safe from several threads.

    A process that ends by itself, and ``SampleStore.close``, write first what is queued.

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
        self._worker = Worker("slime_store-journal", self._work, self._give_up, most=_MAX_BATCH)
        handle.journals.add(self)

    def put(self, rollout_id: int, group: Any) -> None:
        """Queue one finished group: a list of samples, or of lists of samples where executions were split.

        A snapshot is taken before this returns, so that the group may be changed afterwards; encoding and writing are
        the journal's own thread's. What cannot be kept exactly is stored as a placeholder. A journal that was closed is
        open again.

        Raises:
            InvalidOutputError: the rollout id is no integer of 64 bits.
            RuntimeError: no thread can be started; the group is not queued.
        """
        number, taken = rollout_number(rollout_id), snapshot(group, arrays=True)
        self._worker.put((number, taken))

    def flush(self) -> None:
        """Wait until every group given so far is on disk or has failed; not for those that come meanwhile.

        Raises:
            StoreBusyError: a signal handler has interrupted a transaction of its own thread's, and would wait for it.
        """
        self._handle.check_may_wait()
        self._worker.flush()

    def close(self) -> None:
        """Write what is queued and end the thread.

        Raises:
            StoreBusyError: as `flush`.
        """
        self._handle.check_may_wait()
        self._worker.close()

    def _work(self, groups: list[tuple[int, Any]]) -> bool:
        """Write groups; False to give up what is queued: it would wait as long, and ``flush`` for all of it."""
        started = time.monotonic()
        return self._write(groups) or time.monotonic() - started <= _PATIENCE_SECONDS

    def _give_up(self, groups: list[tuple[int, Any]]) -> None:
        self._report(BackgroundRecordError(f"{len(groups)} more groups", "they waited for the ones that failed"))

    def _write(self, groups: list[tuple[int, Any]]) -> bool:
        """Write groups; False when the store could not take them."""
        now, writable = utc_now(), []
        for number, group in groups:
            try:
                encoded = RolloutEncoder(strict=False).group(group)
            except Exception as error:  # this group's own fault: the others are written
                self._report(error)
            else:
                writable.append((RecordRequest(self._run, self._run_pk, number, "new_attempt", now), encoded))
        if not writable:
            return True
        try:
            write_rollouts(self._handle, writable)
        except StoreError as error:  # the store takes none of them now
            self._report(error)
            return False
        except Exception as error:  # whatever it is, the thread goes on: ``flush`` waits for it
            if len(groups) == 1:
                self._report(error)
            else:  # one group's fault: the others are written
                for group in groups:
                    self._write([group])
        return True

    def _report(self, error: Exception) -> None:
        try:
            self._on_error(error)
        except Exception:
            _log.exception("a failure of the journal (%s) could not be reported", error)


def _log_error(error: Exception) -> None:
    _log.error("journalling a group failed: %s", error)
