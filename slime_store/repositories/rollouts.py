"""Rollouts: finding, adding and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, select, update
from sqlalchemy.orm import aliased

from slime_store.errors import RolloutNotFoundError
from slime_store.models import (
    BlobReferenceRow,
    EvalDatasetRow,
    RolloutRow,
    RolloutStateRow,
    RunRow,
    SampleRow,
    SessionRow,
)
from slime_store.repositories.digests import RolloutDigests

INFO_COLUMNS: tuple[Any, ...] = (
    RolloutRow.id,
    RunRow.name.label("run"),
    SessionRow.ordinal.label("session"),
    RolloutRow.kind,
    RolloutRow.rollout_id,
    RolloutRow.attempt,
    RolloutRow.status,
    RolloutRow.n_groups,
    RolloutRow.n_samples,
    RolloutRow.n_trajectories,
    RolloutRow.n_tokens,
    RolloutRow.n_bytes,
    RolloutRow.metrics,
    RolloutRow.placeholders,
    RolloutRow.started_at,
    RolloutRow.finished_at,
    RolloutRow.pruned_at,
)


_INFOS: Any = (
    select(*INFO_COLUMNS)
    .join(RunRow, RunRow.id == RolloutRow.run_pk)
    .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
)


def is_newest_attempt(counts: Callable[[Any], ColumnElement[bool]] | None = None) -> ColumnElement[bool]:
    """Condition on ``rollouts``: no later complete attempt of the same rollout, of those that count."""
    later = aliased(RolloutRow)
    return ~(
        select(later.id)
        .where(
            later.run_pk == RolloutRow.run_pk,
            later.kind == RolloutRow.kind,
            later.rollout_id == RolloutRow.rollout_id,
            later.attempt > RolloutRow.attempt,
            later.status == "complete",
            *(() if counts is None else (counts(later),)),
        )
        .exists()
    )


class RolloutRepository:
    """Reads and writes rollouts of one run.

    Args:
        connection: inside a transaction.
        run_pk: the run's key.
    """

    def __init__(self, connection: Connection, run_pk: int) -> None:
        self._connection = connection
        self._run_pk = run_pk

    def attempts(self, kind: str, rollout_id: int) -> list[tuple[int, int]]:
        """Return (key, attempt) of every recording of this rollout, oldest first."""
        query = (
            select(RolloutRow.id, RolloutRow.attempt)
            .where(RolloutRow.run_pk == self._run_pk, RolloutRow.kind == kind, RolloutRow.rollout_id == rollout_id)
            .order_by(RolloutRow.attempt)
        )
        return [(row[0], row[1]) for row in self._connection.execute(query)]

    def add(self, state: str | None, digests: RolloutDigests, **values: Any) -> int:
        """Add a rollout row and its state; return the key. ``digests`` takes those of both."""
        values["run_pk"] = self._run_pk
        digests.take(RolloutRow, tuple(values), [tuple(values.values())])
        key = self._connection.execute(insert(RolloutRow).values(values)).inserted_primary_key
        assert key is not None
        if state is not None:
            digests.take(RolloutStateRow, ("rollout_pk", "state"), [(key[0], state)])
            self._connection.execute(insert(RolloutStateRow).values(rollout_pk=key[0], state=state))
        return int(key[0])

    def is_stored(self, pk: int, session_pk: int, finished_at: datetime) -> bool:
        """Return whether this very recording is there: after a crash PostgreSQL may give a key a second time."""
        same = RolloutRow.session_pk == session_pk, RolloutRow.finished_at == finished_at
        return self._connection.execute(select(RolloutRow.id).where(RolloutRow.id == pk, *same)).first() is not None

    def find(self, run: str, kind: str, rollout_id: int, attempt: int | None) -> Row[Any]:
        """Return the rollout's whole row: this attempt, or the newest complete one.

        Raises:
            RolloutNotFoundError: there is none; it lists the nearest recorded ids.
        """
        query = select(RolloutRow.__table__).where(
            RolloutRow.run_pk == self._run_pk,
            RolloutRow.kind == kind,
            RolloutRow.rollout_id == rollout_id,
            RolloutRow.status == "complete",
        )
        if attempt is not None:
            query = query.where(RolloutRow.attempt == attempt)
        row = self._connection.execute(query.order_by(RolloutRow.attempt.desc()).limit(1)).one_or_none()
        if row is None:
            raise RolloutNotFoundError(run, kind, rollout_id, attempt, self._nearest(kind, rollout_id))
        return row

    def infos(self, kind: str | None, *, all_attempts: bool) -> Sequence[Row[Any]]:
        """Return INFO_COLUMNS of the run's complete rollouts, ordered by kind (train first), id and attempt."""
        query = _INFOS.where(RolloutRow.run_pk == self._run_pk, RolloutRow.status == "complete")
        if kind is not None:
            query = query.where(RolloutRow.kind == kind)
        if not all_attempts:
            query = query.where(is_newest_attempt())
        order = (RolloutRow.kind.desc(), RolloutRow.rollout_id, RolloutRow.attempt)
        return self._connection.execute(query.order_by(*order)).all()

    def info(self, pk: int) -> Row[Any]:
        """Return INFO_COLUMNS of one rollout."""
        return self._connection.execute(_INFOS.where(RolloutRow.id == pk)).one()

    def datasets(self, pk: int) -> Sequence[Row[Any]]:
        """Return the eval datasets of a rollout, in order."""
        query = select(EvalDatasetRow.__table__).where(EvalDatasetRow.rollout_pk == pk)
        return self._connection.execute(query.order_by(EvalDatasetRow.position)).all()

    def contents(self, pks: Sequence[int]) -> tuple[set[int], set[int]]:
        """Return the keys of the (prompts, blobs) that these rollouts use."""
        prompts: set[int] = set()
        blobs: set[int] = set()
        for pk in pks:
            used = select(SampleRow.prompt_pk).where(SampleRow.rollout_pk == pk, SampleRow.prompt_pk.is_not(None))
            prompts |= set(self._connection.execute(used.distinct()).scalars())  # type: ignore[arg-type]
            needed = select(BlobReferenceRow.blob_pk).where(BlobReferenceRow.rollout_pk == pk)
            blobs |= set(self._connection.execute(needed).scalars())
        return prompts, blobs

    def set_bytes(self, pk: int, n_bytes: int) -> None:
        """Correct the stored bytes of a rollout."""
        self._connection.execute(update(RolloutRow).where(RolloutRow.id == pk).values(n_bytes=n_bytes))

    def delete(self, pks: Sequence[int]) -> None:
        """Delete rollouts with everything that belongs to them alone."""
        for pk in pks:
            self._connection.execute(delete(RolloutRow).where(RolloutRow.id == pk))

    def _nearest(self, kind: str, rollout_id: int) -> tuple[int, ...]:
        same = and_(RolloutRow.run_pk == self._run_pk, RolloutRow.kind == kind, RolloutRow.status == "complete")
        ids: set[int] = set()
        for side, order in (
            (RolloutRow.rollout_id < rollout_id, RolloutRow.rollout_id.desc()),
            (RolloutRow.rollout_id > rollout_id, RolloutRow.rollout_id),
        ):
            query = select(RolloutRow.rollout_id).where(same, side).distinct().order_by(order).limit(3)
            ids |= set(self._connection.execute(query).scalars())
        return tuple(sorted(ids))
