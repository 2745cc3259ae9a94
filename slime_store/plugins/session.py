"""One training process and its run: what the rollout function and the data source share."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from slime_store.errors import StoreError
from slime_store.plugins.frameworks import Framework
from slime_store.plugins.guard import Guard, say
from slime_store.plugins.lineage import lineage_of
from slime_store.plugins.recorder import Recorder
from slime_store.plugins.settings import PluginSettings
from slime_store.plugins.spool import Spool
from slime_store.plugins.tracker import GroupTracker
from slime_store.store import Run, SampleStore
from slime_store.store.journal import Journal
from slime_store.types import ResumePoint, RolloutInfo

_sessions: dict[tuple[int, str, str], PluginSession] = {}
_lock = threading.Lock()
_SECRETS = ("api_key", "wandb_key", "password", "secret", "auth_token", "access_token")


class PluginSession:
    """The plug-in's memory in one process. Get it by ``session_of``."""

    def __init__(self, settings: PluginSettings, framework: Framework, args: Any) -> None:
        self.settings = settings
        self.framework = framework
        self.args = args
        self.guard = Guard(settings.on_error)
        self.spool = Spool(settings)
        self.recorder = Recorder(self.guard, self.spool, raises=settings.on_error == "raise")
        self.tracker = GroupTracker(self.guard, carry_over=bool(settings.carry_over))
        self.tracking: bool | None = None
        self.adoptable: dict[int, RolloutInfo] = {}
        self._run: Run | None = None
        self._journal: Journal | None = None
        self._begun = False

    @property
    def run(self) -> Run:
        """The run; opened on first use, and again after a failure.

        Raises:
            StoreError: the store cannot be opened; in replay mode also when the run is not there.
        """
        if self._run is None:
            replays = self.settings.mode == "replay" and self.settings.replay_run is None
            store = SampleStore.open(self.settings.url)
            try:
                config = None if self.args is None else describe_args(self.args)
                self._run = store.run(self.settings.run, config=None if replays else config, create=not replays)
            except StoreError:
                store.close()
                raise
        return self._run

    def journal(self) -> Journal | None:
        """The journal, unless it is switched off."""
        if self._journal is None and self.settings.journal:
            self._journal = self.run.recovery.journal(on_error=lambda error: self.guard.failed("journal groups", error))
        return self._journal

    def begin(self, source: Any, checkpoint_rollout_id: int | None) -> ResumePoint | None:
        """The framework loads its checkpoint: note where this session starts, and find what may be adopted."""
        self._begun = True
        lineage = lineage_of(self.args, source, self.settings.lineage_ignore)
        recovery = self.run.recovery
        recovery.begin_session(checkpoint_rollout_id=checkpoint_rollout_id, lineage=lineage)
        if self.settings.mode != "resume" or checkpoint_rollout_id is None:
            return None
        point = self.run.resume(
            checkpoint_rollout_id=checkpoint_rollout_id,
            lineage=lineage,
            max_adopted=self.settings.max_adopted,
            sample_type=self.framework.sample_type,
        )
        self.adoptable = {info.rollout_id: info for info in point.complete}
        self.tracker.serve_later(point.journalled_groups)
        last = point.next_rollout_id - 1
        if point.complete:
            say("rollouts %d to %d are recorded and are not generated again", checkpoint_rollout_id + 1, last)
        if point.refused:
            say("generating from rollout %d on: %s", point.next_rollout_id, point.refused)
        n = len(point.journalled_groups)
        if n:
            say("%d finished groups of rollout %d are served from the journal", n, point.next_rollout_id)
        return point

    @property
    def begun(self) -> bool:
        """Whether ``begin`` was called."""
        return self._begun

    def metrics(self, seconds: float, **counts: float) -> dict[str, float]:
        """Return the counters that appear among the rollout's metrics."""
        return {
            "store/record_seconds": seconds,
            "store/bytes": self.recorder.n_bytes,
            "store/errors": self.guard.errors,
            "store/spooled": self.spool.n_rollouts,
            **{f"store/{name}": value for name, value in counts.items()},
        }


def session_of(args: Any, framework: Framework) -> PluginSession:
    """Return this process's session for the settings in ``args``.

    Raises:
        SettingsError: the settings are wrong; this is never let pass, whatever ``on_error`` says.
    """
    settings = PluginSettings.from_args(args)
    key = (os.getpid(), settings.url, settings.run)
    with _lock:
        session = _sessions.get(key)
        if session is None or session.settings != settings:
            session = _sessions[key] = PluginSession(settings, framework, args)
            say("%s run %r in %s", settings.mode, settings.run, _shown(settings.url))
    return session


def forget_sessions() -> None:
    """Finish and forget every session of this process; the next call of a plug-in starts afresh."""
    with _lock:
        sessions = list(_sessions.values())
        _sessions.clear()
    for session in sessions:
        session.recorder.flush()
        if session._journal is not None:
            session._journal.close()


def describe_args(args: Any) -> dict[str, Any]:
    """Return the framework's plain arguments, without those whose name says that they hold a secret."""
    plain = (bool, int, float, str, type(None))
    described = {}
    for name, value in sorted(vars(args).items()):
        if any(word in name.lower() for word in _SECRETS) or name == "slime_store_url":
            continue
        if isinstance(value, plain) or (isinstance(value, (list, tuple)) and all(isinstance(v, plain) for v in value)):
            described[name] = list(value) if isinstance(value, tuple) else value
    return described


def timer() -> float:
    """Seconds of a clock that only goes forward."""
    return time.perf_counter()


def _shown(url: str) -> str:
    from slime_store.config import StoreConfig

    return StoreConfig.parse(url).display_url
