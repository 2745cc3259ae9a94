"""One training process and its run: what the rollout function and the data source share."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Any

from slime_store.config import StoreConfig
from slime_store.database import tell_after_fork
from slime_store.errors import RolloutNotFoundError, StoreBusyError, StoreError
from slime_store.plugins.frameworks import Framework
from slime_store.plugins.guard import Guard, say, warn
from slime_store.plugins.lineage import describe_args, lineage_of
from slime_store.plugins.recorder import Recorder, WeightVersionNote
from slime_store.plugins.settings import PluginSettings
from slime_store.plugins.spool import Spool
from slime_store.plugins.tracker import GroupTracker
from slime_store.store import Run, SampleStore
from slime_store.store.infos import rollout_number
from slime_store.store.journal import Journal
from slime_store.store.operations import Operations
from slime_store.types import RolloutInfo

RETRY_SECONDS = 30.0
"""After a store could not be opened, how long nobody tries again: a lost server can take minutes to say so."""

_sessions: dict[tuple[int, str, str], PluginSession] = {}


class _Lock:
    """The lock of all sessions; a forked child has one of its own."""

    def __init__(self) -> None:
        self.after_fork()
        tell_after_fork(self)

    def after_fork(self) -> None:
        self.held = threading.RLock()


_lock = _Lock()


class PluginSession:
    """The plug-in's memory in one process. Get it by ``session_of``."""

    def __init__(self, settings: PluginSettings, framework: Framework, args: Any) -> None:
        self.settings = settings
        self.framework = framework
        self.args = args
        self.guard = Guard(settings.on_error)
        self.spool = Spool(settings)
        self._operations = Operations()
        self.recorder = Recorder(self._recording_run, self.guard, self.spool, self._operations)
        self.tracker = GroupTracker(self.guard, carry_over=settings.carry_over)
        self.adoptable: dict[int, RolloutInfo] = {}
        self.begun = False
        self.has_generated = False
        self.is_used = False
        self._said_not_resumable = False
        self._start: dict[str, Any] | None = None
        self._is_start_noted = False
        self._handed: deque[RolloutInfo] = deque()
        self._saved: deque[int] = deque()
        self._weight_version: str | None = None
        self._stores: list[SampleStore] = []
        self._run: Run | None = None
        self._replayed: Run | None = None
        self._journal: Journal | None = None
        self._failure: tuple[float, StoreError] | None = None
        self._lock = threading.RLock()
        self._noting = threading.RLock()

    @property
    def data_source_path(self) -> str:
        """Path of the data source that is wrapped."""
        path = self.settings.data_source_path
        return self.framework.data_source_path if path is None else path

    @property
    def run(self) -> Run:
        """The run that is recorded; opened on first use, and again some time after a failure.

        Raises:
            StoreError: the store cannot be opened.
        """
        if self._run is not None:
            return self._run
        with self._operations.under_way(), self._lock:
            if self._run is None:
                if self._failure is not None and timer() < self._failure[0] + RETRY_SECONDS:
                    raise self._failure[1]
                try:
                    store = SampleStore.open(self.settings.url)
                    self._stores.append(store)
                    self._run = store.run(
                        self.settings.run, config=None if self.args is None else describe_args(self.args)
                    )
                except StoreError as error:
                    self._failure = (timer(), error)
                    raise
            return self._run

    @property
    def replayed(self) -> Run:
        """The run that replay mode serves; it is only read.

        Raises:
            RunNotFoundError, StoreNotFoundError: it is not there.
        """
        with self._lock:
            if self._replayed is None:
                store = SampleStore.open(self.settings.url, read_only=True)
                self._stores.append(store)
                self._replayed = store.run(self.settings.replay_run or self.settings.run, create=False)
            return self._replayed

    @property
    def n_replayed_groups(self) -> int:
        """How many groups the recorded train rollouts of the replayed run have: the prompts of replay mode."""
        return sum(info.n_groups for info in self.replayed.rollouts("train"))

    def journal(self) -> Journal | None:
        """The journal, unless it is switched off.

        Raises:
            StoreError: the store cannot be opened.
        """
        if self._journal is None and self.settings.journal:
            self._journal = self._noted_run().recovery.journal(
                on_error=lambda error: self.guard.failed("journal groups", error)
            )
        return self._journal

    def flush_journal(self) -> None:
        """Wait until every finished group so far is in the journal."""
        if self._journal is not None:
            self._journal.flush()

    def begin(self, source: Any, checkpoint_rollout_id: int | None) -> bool:
        """Note where this session starts, and find what may be adopted, unless it has generated already.

        Args:
            source: the user's data source.
            checkpoint_rollout_id: the rollout of the checkpoint; -1: from the start; None: not known.

        Returns:
            Whether the data source is to be put back to where the checkpoint's rollout ended.

        Raises:
            StoreError: the store cannot be read or written.
        """
        if self.has_generated:
            self.flush()  # it is of the session before
        if self._handed or self._saved:
            self.guard.run("note what was handed out and saved before", lambda: self._note_saved(self._noted_run()))
            self._handed.clear()
            self._saved.clear()
        ignore = self.settings.lineage_ignore
        lineage = lineage_of(self.args, source, ignore)
        if "data_source_path" not in ignore:
            lineage["data_source_path"] = self.data_source_path
        self._start, self._is_start_noted = {"checkpoint_rollout_id": checkpoint_rollout_id, "lineage": lineage}, False
        self.spool.start = self._start
        run = self.run
        self.guard.run("note where the session starts", self._noted_run)  # resuming itself only reads
        if self.settings.mode == "resume" and checkpoint_rollout_id is not None and not self.has_generated:
            self._find_adoptable(run, checkpoint_rollout_id, lineage)
            self.begun = True
            return True
        self.begun = True
        return False

    def _noted_run(self) -> Run:
        """Return the run, once it is noted what this session goes on from: nothing is recorded without that.

        Raises:
            StoreError: not now; to a signal handler that has interrupted this very method, which notes the rest, too.
        """
        if self._operations.is_here():
            detail = "a signal handler records, and has interrupted what must be noted before that"
            raise StoreBusyError(StoreConfig.parse(self.settings.url).display_url, detail)
        with self._operations.under_way(), self._noting:
            run = self.run
            while (start := self._start) is not None and not self._is_start_noted:
                run.recovery.begin_session(**start)
                self._is_start_noted = self._start is start  # a thread, or a signal handler, may have begun anew
            while self._handed:
                with contextlib.suppress(RolloutNotFoundError):  # it was deleted meanwhile
                    run.recovery.adopt(self._handed[0])
                self._handed.popleft()
        return run

    def _recording_run(self) -> Run:
        """Return the run as ``_noted_run`` does, once it was tried to note the checkpoints that wait for it."""
        run = self._noted_run()
        with contextlib.suppress(StoreError):
            self._note_saved(run)
        return run

    def _note_saved(self, run: Run) -> None:
        with self._operations.under_way(), self._noting:
            while self._saved:
                run.recovery.record_checkpoint(self._saved[0])
                self._saved.popleft()

    def note_adoption(self, info: RolloutInfo) -> None:
        """Note that a recorded rollout was handed out, now or before anything else is recorded.

        Raises:
            StoreError: not now.
        """
        self._handed.append(info)
        if self._start is not None:  # what is spooled follows this one
            self.spool.start = {**self._start, "checkpoint_rollout_id": info.rollout_id}
        self._noted_run()

    def note_checkpoint(self, rollout_id: int) -> None:
        """Note that a checkpoint was saved after a rollout, now or with one of the next, which do not depend on it.

        Raises:
            StoreError: not now.
            TypeError, ValueError: the number is none.
        """
        self._saved.append(rollout_number(rollout_id))
        self._note_saved(self._noted_run())

    def goes_on(self) -> bool:
        """Begin, if the store could not be reached before this process generated: it started where it then was."""
        self.begun = self.begun or (self.has_generated and self._start is not None)
        return self.begun

    def _find_adoptable(self, run: Run, checkpoint: int, lineage: dict[str, Any]) -> None:
        point = run.resume(
            checkpoint_rollout_id=checkpoint,
            lineage=lineage,
            max_adopted=self.settings.max_adopted,
            sample_type=self.framework.sample_type,
        )
        self.adoptable = {info.rollout_id: info for info in point.complete}
        if point.journalled_groups:
            self.tracker.take_over(point.journalled_groups, run.recovery.journal_sessions(point))
        if point.complete:
            last = point.next_rollout_id - 1
            say("rollouts %d to %d are recorded and are not generated again", checkpoint + 1, last)
        if point.refused:
            say("generating from rollout %d on: %s", point.next_rollout_id, point.refused)
        if point.journalled_groups:
            n, number = len(point.journalled_groups), point.next_rollout_id
            say("%d groups were finished when rollout %d was interrupted; they are not generated again", n, number)

    def note_weight_version(self, label: Any, rollout_id: int) -> None:
        """Record the engine's weight version, when it is a new one."""
        if label is not None and str(label) != self._weight_version:
            self._weight_version = str(label)
            self.recorder.put(WeightVersionNote(str(label), rollout_id))

    def say_not_resumable(self, why: str) -> None:
        """Warn, once, that rollouts are recorded without the data source's state."""
        if self.settings.mode == "resume" and not self._said_not_resumable:
            self._said_not_resumable = True
            warn("rollouts are recorded, but none can be resumed from without the data source's state: %s", why)

    def metrics(self, seconds: float, **counts: float) -> dict[str, float]:
        """Return the counters that appear among the rollout's metrics."""
        return {
            "store/record_seconds": seconds,
            "store/bytes": self.recorder.n_bytes,
            "store/errors": self.guard.errors,
            "store/spooled": self.spool.n_kept,
            **{f"store/{name}": value for name, value in counts.items()},
        }

    def flush(self) -> None:
        """Wait until everything handed over so far is stored; not in a signal handler, where that may wait for this."""
        self.recorder.flush()
        self.flush_journal()

    def close(self) -> None:
        """Finish everything and let go of the stores.

        A signal handler that interrupted its own thread while that noted something does so when that has ended.
        """
        if self._operations.is_here():
            self._operations.when_done(self.close)
            return
        self.flush()
        if self._journal is not None:
            self._journal.close()
        self.spool.close()
        for store in self._stores:
            store.close()


def with_counters(metrics: Any, counters: dict[str, float]) -> Any:
    """Return a rollout's metrics with the store's counters; metrics that are no dict are the user's own affair."""
    return {**(metrics or {}), **counters} if metrics is None or isinstance(metrics, dict) else metrics


def session_of(args: Any, framework: Framework) -> PluginSession:
    """Return this process's session for the settings in ``args``.

    Raises:
        SettingsError: the settings are wrong, or the store's directory is missing at the first call; this is never let
            pass, whatever ``on_error`` says.
    """
    settings = PluginSettings.from_args(args)
    key = (os.getpid(), settings.url, settings.run)
    with _lock.held:
        session = _sessions.get(key)
        if session is None or session.settings != settings:
            settings.check_place()
            session = _sessions[key] = PluginSession(settings, framework, args)
            say("%s run %r in %s", settings.mode, settings.run, StoreConfig.parse(settings.url).display_url)
    return session


def forget_sessions() -> None:
    """Finish and forget every session of this process; the next call of a plug-in starts afresh."""
    with _lock.held:
        sessions = list(_sessions.values())
        _sessions.clear()
    for session in sessions:
        session.close()


def timer() -> float:
    """Seconds of a clock that only goes forward."""
    return time.perf_counter()
