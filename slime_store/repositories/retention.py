"""What is kept and what goes: pins, what resuming needs, and taking the arrays from a rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, func, insert, select, update

from slime_store.database import chunked
from slime_store.models import (
    AdoptionRow,
    BlobReferenceRow,
    BlobRow,
    CheckpointRow,
    EvalDatasetRow,
    PinRow,
    PromptRow,
    RolloutDigestRow,
    RolloutRow,
    RolloutStateRow,
    SampleArrayRow,
    SampleDocumentRow,
    SampleRow,
    SessionRow,
)
from slime_store.repositories.blobs import BlobRepository, digests_in
from slime_store.repositories.digests import with_digest
from slime_store.repositories.kept import kept_of_attributes, long_texts_in
from slime_store.repositories.prompts import PromptRepository
from slime_store.repositories.rollouts import RolloutRepository

_BUFFERED = 64


@dataclass(frozen=True)
class Freed:
    """What taking the arrays from a rollout, or deleting it, has freed: bytes, and side files to remove."""

    n_bytes: int
    files: list[str]


class RetentionRepository:
    """Reads and writes what pruning one run needs.

    Args:
        connection: inside a transaction.
        run_pk: the run's key.
    """

    def __init__(self, connection: Connection, run_pk: int) -> None:
        self._connection = connection
        self._run_pk = run_pk

    # -- what is there -----------------------------------------------------------------------------

    def complete(self) -> list[Row[Any]]:
        """Return pk, kind, rollout_id, attempt and pruned_at of all complete attempts, oldest rollouts first."""
        query = (
            select(
                RolloutRow.id.label("pk"),
                RolloutRow.kind,
                RolloutRow.rollout_id,
                RolloutRow.attempt,
                RolloutRow.pruned_at,
            )
            .where(RolloutRow.run_pk == self._run_pk, RolloutRow.status == "complete")
            .order_by(RolloutRow.rollout_id, RolloutRow.attempt)
        )
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows

    def first_of_run(self) -> int | None:
        """Return the key of the run's oldest recording, journalled groups among them, or None."""
        query = select(RolloutRow.id).where(RolloutRow.run_pk == self._run_pk).order_by(RolloutRow.id).limit(1)
        return self._connection.execute(query).scalar()

    def last_start(self) -> int | None:
        """Return the checkpoint that the last session started from, if it has not saved one of its own since.

        Of sessions that came with an import it is not known, so that they do not count.
        """
        query = (
            select(SessionRow.id, SessionRow.checkpoint_rollout_id)
            .where(SessionRow.run_pk == self._run_pk, SessionRow.checkpoint_rollout_id.is_not(None))
            .order_by(SessionRow.ordinal.desc())
            .limit(1)
        )
        row = self._connection.execute(query).one_or_none()
        if row is None:
            return None
        own = select(func.count()).select_from(CheckpointRow).where(CheckpointRow.session_pk == row[0])
        return None if self._connection.execute(own).scalar_one() else row[1]

    def facts(self) -> tuple[Any, ...]:
        """Return what changes whenever that may go which is needed, or be needed what may go; pins apart.

        The number of complete attempts and the newest, the checkpoint noted last, what sessions were handed, and where
        they started.
        """
        recorded = select(func.count(), func.max(RolloutRow.id)).where(
            RolloutRow.run_pk == self._run_pk, RolloutRow.status == "complete"
        )
        checkpoints = (
            select(
                func.count(),
                func.max(CheckpointRow.saved_at),
                func.max(SessionRow.id),
                func.count(SessionRow.checkpoint_rollout_id),
            )
            .select_from(SessionRow)
            .outerjoin(CheckpointRow, CheckpointRow.session_pk == SessionRow.id)
            .where(SessionRow.run_pk == self._run_pk)
        )
        handed = (
            select(func.count(), func.max(AdoptionRow.adopted_at))
            .join(SessionRow, SessionRow.id == AdoptionRow.session_pk)
            .where(SessionRow.run_pk == self._run_pk)
        )
        rows = [self._connection.execute(query).one() for query in (recorded, checkpoints, handed)]
        return (*rows[0], *rows[1], *rows[2], self.last_start())

    def pruned(self, pk: int) -> Any | None:
        """Return kind, rollout_id, attempt, pruned_at and pruned_by of a rollout whose arrays were pruned, or None."""
        query = select(
            RolloutRow.kind, RolloutRow.rollout_id, RolloutRow.attempt, RolloutRow.pruned_at, RolloutRow.pruned_by
        ).where(RolloutRow.id == pk, RolloutRow.pruned_at.is_not(None))
        return self._connection.execute(query).one_or_none()

    # -- pins --------------------------------------------------------------------------------------

    def pins(self) -> list[Row[Any]]:
        """Return kind, rollout_id, note and pinned_at of every pin, train first."""
        query = select(PinRow.kind, PinRow.rollout_id, PinRow.note, PinRow.pinned_at)
        query = query.where(PinRow.run_pk == self._run_pk).order_by(PinRow.kind.desc(), PinRow.rollout_id)
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows

    def may_go(self, pk: int) -> bool:
        """Return whether a rollout is there and not pinned."""
        pinned = exists().where(
            PinRow.run_pk == RolloutRow.run_pk,
            PinRow.kind == RolloutRow.kind,
            PinRow.rollout_id == RolloutRow.rollout_id,
        )
        return self._connection.execute(select(RolloutRow.id).where(RolloutRow.id == pk, ~pinned)).scalar() is not None

    def is_left(self, pk: int, *, with_arrays: bool) -> bool:
        """Return whether a rollout is there, and ``with_arrays`` was not pruned."""
        query = select(RolloutRow.id).where(RolloutRow.id == pk)
        query = query.where(RolloutRow.pruned_at.is_(None)) if with_arrays else query
        return self._connection.execute(query).scalar() is not None

    def pin(self, kind: str, rollout_id: int, note: str | None, now: datetime) -> None:
        """Pin a rollout; pinning it again changes the note."""
        self.unpin(kind, rollout_id)
        values = {"run_pk": self._run_pk, "kind": kind, "rollout_id": rollout_id, "note": note, "pinned_at": now}
        self._connection.execute(insert(PinRow).values(with_digest(PinRow, values)))

    def unpin(self, kind: str, rollout_id: int) -> bool:
        """Remove a pin; return whether there was one."""
        same = (PinRow.run_pk == self._run_pk, PinRow.kind == kind, PinRow.rollout_id == rollout_id)
        return bool(self._connection.execute(delete(PinRow).where(*same)).rowcount)

    # -- taking away -------------------------------------------------------------------------------

    def drop_arrays(self, pk: int, blobs: BlobRepository, now: datetime, by: str) -> Freed | None:
        """Delete a rollout's arrays, and its blobs but those of prompts, metadata, lists of evals and long texts.

        Returns None when it is gone or was pruned already. The shared content must be locked.
        """
        current = select(RolloutRow.id).where(RolloutRow.id == pk, RolloutRow.pruned_at.is_(None)).with_for_update()
        if self._connection.execute(current).scalar() is None:
            return None
        in_rows, in_all = self._connection.execute(
            select(
                func.coalesce(func.sum(func.length(SampleArrayRow.data)), 0),
                func.coalesce(func.sum(SampleArrayRow.n_bytes), 0),
            ).where(SampleArrayRow.rollout_pk == pk)
        ).one()
        self._connection.execute(delete(SampleArrayRow).where(SampleArrayRow.rollout_pk == pk))
        theirs = (RolloutDigestRow.rollout_pk == pk, RolloutDigestRow.subject == SampleArrayRow.__tablename__)
        self._connection.execute(delete(RolloutDigestRow).where(*theirs))
        kept = self._kept_digests(pk)
        references = self._connection.execute(
            select(BlobRow.id, BlobRow.digest, BlobRow.n_bytes)
            .join(BlobReferenceRow, BlobReferenceRow.blob_pk == BlobRow.id)
            .where(BlobReferenceRow.rollout_pk == pk)
        ).all()
        dropped = [row for row in references if row.digest is None or row.digest not in kept]
        for chunk in chunked([row.id for row in dropped]):
            same = (BlobReferenceRow.rollout_pk == pk, BlobReferenceRow.blob_pk.in_(chunk))
            self._connection.execute(delete(BlobReferenceRow).where(*same))
        freed = delete_unused_blobs(self._connection, blobs, [row.id for row in dropped])
        shared = sum(row.n_bytes for row in dropped if row.digest is not None)
        values = {"n_bytes": RolloutRow.n_bytes - int(in_all) - shared, "pruned_at": now, "pruned_by": by}
        self._connection.execute(update(RolloutRow).where(RolloutRow.id == pk).values(values))
        return Freed(int(in_rows) + freed.n_bytes, freed.files)

    def delete(self, pk: int, rollouts: RolloutRepository, blobs: BlobRepository) -> Freed | None:
        """Delete a rollout with all that only it used; None when it is gone. The shared content must be locked."""
        n_bytes = self._connection.execute(select(RolloutRow.n_bytes).where(RolloutRow.id == pk)).scalar()
        if n_bytes is None:
            return None
        prompt_pks, blob_pks = rollouts.contents([pk])
        own = int(n_bytes) - sum(_sizes(self._connection, sorted(blob_pks)).values())
        rollouts.delete([pk])
        PromptRepository(self._connection).delete_unused(prompt_pks)
        freed = delete_unused_blobs(self._connection, blobs, sorted(blob_pks))
        return Freed(max(own, 0) + freed.n_bytes, freed.files)

    def _kept_digests(self, pk: int) -> set[str]:
        """Return the contents of its documents that stay."""
        prompts = select(SampleRow.prompt_pk).where(SampleRow.rollout_pk == pk, SampleRow.prompt_pk.is_not(None))
        whole = (
            select(SampleDocumentRow.metadata_).where(
                SampleDocumentRow.rollout_pk == pk, SampleDocumentRow.metadata_.contains('"blob"')
            ),
            select(PromptRow.document).where(PromptRow.id.in_(prompts), PromptRow.document.contains('"blob"')),
            select(EvalDatasetRow.content).where(EvalDatasetRow.rollout_pk == pk),
        )
        kept: set[str] = set()
        for query in whole:
            for text in self._connection.execute(query.execution_options(yield_per=_BUFFERED)).scalars():
                kept |= digests_in([text])
        extra = SampleDocumentRow.extra
        in_part: tuple[tuple[Any, Callable[[str | None], set[str]]], ...] = (
            (select(extra).where(SampleDocumentRow.rollout_pk == pk, extra.contains('"blob"')), kept_of_attributes),
            (select(RolloutStateRow.state).where(RolloutStateRow.rollout_pk == pk), long_texts_in),
        )
        for query, kept_of in in_part:
            for text in self._connection.execute(query.execution_options(yield_per=_BUFFERED)).scalars():
                kept |= kept_of(text)
        return kept


def delete_unused_blobs(connection: Connection, blobs: BlobRepository, pks: Sequence[int]) -> Freed:
    """Delete those of the given blobs that no rollout needs; say what that frees."""
    before = _sizes(connection, pks)
    files = blobs.delete_unused(pks)
    return Freed(sum(before.values()) - sum(_sizes(connection, pks).values()), files)


def _sizes(connection: Connection, pks: Sequence[int]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for chunk in chunked(pks):
        query = select(BlobRow.id, BlobRow.n_bytes).where(BlobRow.id.in_(chunk))
        sizes |= {row[0]: row[1] for row in connection.execute(query)}
    return sizes
