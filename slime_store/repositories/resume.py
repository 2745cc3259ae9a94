"""What a resumed run needs to know: checkpoints, adoptable rollouts, the journal, data-source states."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, or_, select
from sqlalchemy.orm import aliased

from slime_store.models import (
    AdoptionRow,
    CheckpointRow,
    ImportRow,
    RolloutRow,
    RolloutStateRow,
    SampleGroupRow,
    SessionRow,
)
from slime_store.repositories.digests import update_row, with_digest
from slime_store.repositories.histories import MADE, Histories, Lost, is_dump, is_of
from slime_store.repositories.rollouts import is_newest_attempt

JOURNAL = "journal"
"""Kind of a rollout row that holds one finished group of a rollout under way."""


class ResumeRepository:
    """Reads and writes what resuming one run needs.

    Args:
        connection: inside a transaction.
        run_pk: the run's key.
    """

    def __init__(self, connection: Connection, run_pk: int) -> None:
        self._connection = connection
        self._run_pk = run_pk
        self.histories = Histories(connection, run_pk)

    def describe_session(self, session_pk: int, checkpoint_rollout_id: int | None, lineage: str | None) -> None:
        """Note where a session started and what its rollouts depend on."""
        values = {"checkpoint_rollout_id": checkpoint_rollout_id, "lineage": lineage}
        update_row(self._connection, SessionRow, (SessionRow.id == session_pk,), values)

    def has_trained(self, session_pk: int) -> bool:
        """Return whether a session has recorded or journalled a train rollout itself."""
        imported = select(ImportRow.rollout_pk).where(ImportRow.rollout_pk == RolloutRow.id).exists()
        recorded = select(RolloutRow.id).where(
            RolloutRow.session_pk == session_pk, RolloutRow.kind.in_(("train", JOURNAL)), ~imported
        )
        return self._connection.execute(recorded.limit(1)).first() is not None

    def add_checkpoint(self, session_pk: int, rollout_id: int, now: datetime) -> None:
        """Note that a checkpoint was saved after a rollout; saying it again moves the time."""
        same = (CheckpointRow.session_pk == session_pk, CheckpointRow.rollout_id == rollout_id)
        self._connection.execute(delete(CheckpointRow).where(*same))
        values = {"session_pk": session_pk, "rollout_id": rollout_id, "saved_at": now}
        self._connection.execute(insert(CheckpointRow).values(with_digest(CheckpointRow, values)))

    def last_checkpoint(self) -> int | None:
        """Return the rollout of the checkpoint that the last session to save any saved last, or None.

        Of a rollout that the store could not take it is not known where the data source was, so the checkpoint before
        counts, if there is one; but not one of the same number, which is no more.
        """
        again, later = aliased(CheckpointRow), aliased(SessionRow)
        is_no_more = (
            select(again.rollout_id)
            .join(later, later.id == again.session_pk)
            .where(
                later.run_pk == self._run_pk,
                later.ordinal > SessionRow.ordinal,
                again.rollout_id == CheckpointRow.rollout_id,
            )
            .exists()
        )
        query = (
            select(CheckpointRow.rollout_id)
            .join(SessionRow, SessionRow.id == CheckpointRow.session_pk)
            .where(SessionRow.run_pk == self._run_pk, ~is_no_more)
            .order_by(SessionRow.ordinal.desc(), CheckpointRow.saved_at.desc(), CheckpointRow.rollout_id.desc())
            .limit(1)
        )
        own = select(RolloutRow.id).where(
            RolloutRow.run_pk == self._run_pk,
            RolloutRow.kind == "train",
            RolloutRow.status == "complete",
            RolloutRow.rollout_id == CheckpointRow.rollout_id,
            is_of(SessionRow.id, RolloutRow),
        )
        start = SessionRow.checkpoint_rollout_id
        may_be_here = or_(start.is_(None), start >= CheckpointRow.rollout_id, own.exists())
        found: int | None = self._connection.execute(query.where(may_be_here)).scalar()
        return self._connection.execute(query).scalar() if found is None else found

    def adopt(self, session_pk: int, rollout_pk: int, now: datetime) -> None:
        """Note that a session was handed a recorded rollout; once is enough."""
        same = (AdoptionRow.session_pk == session_pk, AdoptionRow.rollout_pk == rollout_pk)
        self._connection.execute(delete(AdoptionRow).where(*same))
        values = {"session_pk": session_pk, "rollout_pk": rollout_pk, "adopted_at": now}
        self._connection.execute(insert(AdoptionRow).values(with_digest(AdoptionRow, values)))

    def complete_after(self, rollout_id: int) -> list[Row[Any]]:
        """Return the newest complete train rollouts after one, in order; imported dumps, which have no state, apart.

        Columns: ``MADE``, pruned_at, lineage (document) and has_state.
        """
        has_state = select(RolloutStateRow.rollout_pk).where(RolloutStateRow.rollout_pk == RolloutRow.id).exists()
        query = (
            select(
                *MADE,
                RolloutRow.pruned_at,
                SessionRow.lineage,
                has_state.label("has_state"),
            )
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .where(
                RolloutRow.run_pk == self._run_pk,
                RolloutRow.kind == "train",
                RolloutRow.status == "complete",
                RolloutRow.rollout_id > rollout_id,
                ~is_dump(RolloutRow.id),
                is_newest_attempt(lambda later: ~is_dump(later.id)),
            )
            .order_by(RolloutRow.rollout_id)
        )
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows

    def state(self, kind: str, rollout_id: int, attempt: int | None) -> Row[Any] | None:
        """Return state (document, or None), kind, rollout_id, attempt, pruned_at and pruned_by of a rollout, or None.

        Of the attempt after which a checkpoint was saved last; where none was, of the newest complete one, dumps apart,
        also where an earlier one has a state: that is of another history. None where a checkpoint was saved after one
        that is not here.
        """
        if attempt is None and kind == "train":
            saved = self.histories.checkpointed(rollout_id)
            if isinstance(saved, Lost):
                return None
            attempt = None if saved is None else saved.attempt
        which = ~is_dump(RolloutRow.id) if attempt is None else RolloutRow.attempt == attempt
        query = (
            select(
                RolloutStateRow.state,
                RolloutRow.kind,
                RolloutRow.rollout_id,
                RolloutRow.attempt,
                RolloutRow.pruned_at,
                RolloutRow.pruned_by,
            )
            .select_from(RolloutRow)
            .outerjoin(RolloutStateRow, RolloutStateRow.rollout_pk == RolloutRow.id)
            .where(
                RolloutRow.run_pk == self._run_pk,
                RolloutRow.kind == kind,
                RolloutRow.status == "complete",
                RolloutRow.rollout_id == rollout_id,
                which,
            )
            .order_by(RolloutRow.attempt.desc())
            .limit(1)
        )
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows[0] if rows else None

    def journal(self) -> list[Row[Any]]:
        """Return the journalled groups, oldest first.

        Columns: pk, rollout_id, nesting, layouts, group_index, session_pk, session (ordinal), its start and
        lineage (document).
        """
        query = (
            select(
                RolloutRow.id.label("pk"),
                RolloutRow.rollout_id,
                RolloutRow.nesting,
                RolloutRow.layouts,
                SampleGroupRow.group_index,
                RolloutRow.session_pk,
                SessionRow.ordinal.label("session"),
                SessionRow.checkpoint_rollout_id.label("start"),
                SessionRow.lineage,
            )
            .join(SampleGroupRow, SampleGroupRow.rollout_pk == RolloutRow.id)
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .where(RolloutRow.run_pk == self._run_pk, RolloutRow.kind == JOURNAL)
            .order_by(RolloutRow.id)
        )
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows

    def recording_since(self, rollout_pk: int) -> set[int]:
        """Return the sessions that have recorded or journalled anything after a rollout of this key; imports apart."""
        imported = select(ImportRow.rollout_pk).where(ImportRow.rollout_pk == RolloutRow.id).exists()
        query = select(RolloutRow.session_pk).where(
            RolloutRow.run_pk == self._run_pk, RolloutRow.id > rollout_pk, ~imported
        )
        return set(self._connection.execute(query.distinct()).scalars())
