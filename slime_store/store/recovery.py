"""What a recording loop does so that its run can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slime_store.database import reconnecting
from slime_store.repositories.imports import ImportRepository, SessionOrigin
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import lineage_text, rollout_number
from slime_store.store.journal import Journal
from slime_store.store.loading import sample_class
from slime_store.store.resume import load_state
from slime_store.store.sessions import utc_now
from slime_store.types import ResumePoint, RolloutInfo


@dataclass(frozen=True)
class Recovery:
    """The recovery side of one run; from ``Run.recovery``."""

    name: str
    _pk: int
    _handle: StoreHandle

    @reconnecting
    def begin_session(self, *, checkpoint_rollout_id: int | None, lineage: dict[str, Any] | None = None) -> None:
        """Note where this process's session starts; one that has recorded train rollouts ends by it.

        Waits for what was recorded and journalled in the background before, which belongs to the session before.

        Args:
            checkpoint_rollout_id: the rollout of the checkpoint that it starts from; -1: from the start.
            lineage: what must agree for its rollouts to be adopted later, e.g. the arguments that shape them.
        """
        text = lineage_text(lineage)
        number = None if checkpoint_rollout_id is None else rollout_number(checkpoint_rollout_id)
        if number is not None:
            self._handle.settle()
        session_pk = self._session()
        with self._handle.reading() as connection:
            goes_back = number is not None and ResumeRepository(connection, self._pk).has_trained(session_pk)
        if goes_back:  # what it records from here on is of another history
            self._handle.sessions.end_run(self._pk)
            session_pk = self._session()
        with self._handle.writing("begin a session") as connection:
            RunRepository(connection).lock(self._pk)  # what is being pruned has gone, the rest stays for this session
            ResumeRepository(connection, self._pk).describe_session(session_pk, number, text)

    def record_checkpoint(self, rollout_id: int) -> None:
        """Note that the training state after a rollout was saved, so that ``resume`` starts there by default.

        To be called by the process that records the rollouts, or by one that has begun no session: of a session that
        began before this rollout, and neither recorded nor was handed it, it is taken to be missing.
        """
        self._record_checkpoint(rollout_number(rollout_id), utc_now())

    @reconnecting
    def _record_checkpoint(self, rollout_id: int, now: datetime) -> None:
        session_pk = self._session()
        with self._handle.writing("note a checkpoint") as connection:
            RunRepository(connection).lock(self._pk)
            ResumeRepository(connection, self._pk).add_checkpoint(session_pk, rollout_id, now)

    def adopt(self, info: RolloutInfo) -> None:
        """Note that this session was handed a recorded rollout, of this or another run, instead of generating it."""
        self._adopt(info, utc_now())

    @reconnecting
    def _adopt(self, info: RolloutInfo, now: datetime) -> None:
        session_pk = self._session()
        with self._handle.writing("adopt a rollout") as connection:
            RunRepository(connection).lock(self._pk)
            source = RunRepository(connection).get(info.run)
            row = RolloutRepository(connection, source.id).find(info.run, info.kind, info.rollout_id, info.attempt)
            ResumeRepository(connection, self._pk).adopt(session_pk, row.id, now)

    def journal(self, *, on_error: Callable[[Exception], None] | None = None) -> Journal:
        """Return a writer for the finished groups of rollouts under way; see ``Journal``."""
        return Journal(self._handle, self.name, self._pk, on_error)

    @reconnecting
    def load_state(self, rollout_id: int, *, attempt: int | None = None, sample_type: type[Any] | None = None) -> Any:
        """Return the data source's state that was recorded with a train rollout, or None.

        Where no attempt is given: of the one after which a checkpoint was saved last, else of the newest.

        Raises:
            ArraysPrunedError: it held tensors or samples, which were pruned.
        """
        number, kind = rollout_number(rollout_id), sample_class(sample_type)
        return load_state(self._handle, self.name, self._pk, "train", number, attempt, kind)

    @reconnecting
    def journal_sessions(self, point: ResumePoint) -> dict[int, SessionOrigin]:
        """Return the sessions that generated the journalled groups of a resume point, by group index."""
        with self._handle.reading() as connection:
            sessions = ImportRepository(connection, self._pk).numbered_sessions()
        return {index: sessions[number] for index, number in point.journalled_sessions.items()}

    def _session(self) -> int:
        return self._handle.session(self.name, self._pk)
