"""What ``verify`` reads: rows as they are, page by page, and what nothing refers to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, RowMapping, exists, func, select

from slime_store.database import chunked
from slime_store.models import (
    BlobPartRow,
    BlobReferenceRow,
    BlobRow,
    EvalDatasetRow,
    ImportRow,
    PromptRow,
    RolloutRow,
    RolloutStateRow,
    RolloutWeightVersionRow,
    RunRow,
    SampleArrayRow,
    SampleDocumentRow,
    SampleGroupRow,
    SampleRewardRow,
    SampleRow,
    SampleTextRow,
    SampleWeightVersionRow,
    SessionRow,
    WeightVersionRow,
)
from slime_store.repositories.stored_digests import StoredDigests

_PAGE = 50  # prompts and rollouts may have documents of megabytes
_BUFFERED = 64  # rows of a stream that are in memory: each may have a document or a text of megabytes

Rows: TypeAlias = "Sequence[Any]"
"""Rows with the columns that the method names."""

_INLINE: dict[str, tuple[Any, ...]] = {
    "runs": (RunRow.config,),
    "sessions": (SessionRow.client, SessionRow.config, SessionRow.lineage),
    "weight_versions": (WeightVersionRow.params, WeightVersionRow.notes),
    "imports": (ImportRow.extras,),
}


class VerificationRepository:
    """Reads what is to be checked.

    Args:
        connection: inside a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # -- the whole store ---------------------------------------------------------------------------

    def damaged_pages(self) -> list[str]:
        """Return what SQLite's own check says, at most 100 lines. Reads the whole file."""
        lines = self._connection.exec_driver_sql("PRAGMA integrity_check(100)").scalars()
        return [str(line) for line in lines if line != "ok"]

    def inline_documents(self) -> Iterator[tuple[str, int, str]]:
        """Yield (table, key, document) of all small documents that belong to no sample."""
        for table, columns in _INLINE.items():
            key = columns[0].class_.__table__.primary_key.columns.values()[0]
            query = select(key, *columns).order_by(key)
            for row in self._stream(query):
                texts: list[str | None] = list(row[1:])
                yield from ((table, row[0], text) for text in texts if text is not None)

    def count(self, model: Any) -> int:
        """Return the number of rows of a table."""
        return int(self._connection.execute(select(func.count()).select_from(model)).scalar_one())

    def last_rollout(self) -> int:
        """Return the highest key of a rollout, 0 where there is none."""
        return int(self._connection.execute(select(func.max(RolloutRow.id))).scalar() or 0)

    def rollouts(self, after: int, end: int) -> Rows:
        """Return pk, run, kind, rollout_id and attempt of the next rollouts by key, up to ``end``."""
        query = (
            select(RolloutRow.id, RunRow.name, RolloutRow.kind, RolloutRow.rollout_id, RolloutRow.attempt)
            .outerjoin(RunRow, RunRow.id == RolloutRow.run_pk)
            .where(RolloutRow.id > after, RolloutRow.id <= end)
            .order_by(RolloutRow.id)
            .limit(_PAGE)
        )
        return self._connection.execute(query).all()

    # -- shared content ----------------------------------------------------------------------------

    def blobs(self, after: int) -> Rows:
        """Return the next blobs by key."""
        query = select(BlobRow.__table__).where(BlobRow.id > after).order_by(BlobRow.id).limit(_PAGE)
        return self._connection.execute(query).all()

    def parts(self, blob_pk: int) -> tuple[int, int, int]:
        """Return (number of parts, highest number or -1, bytes) of a blob in the database."""
        row = self._connection.execute(
            select(func.count(), func.max(BlobPartRow.part), func.sum(func.length(BlobPartRow.data))).where(
                BlobPartRow.blob_pk == blob_pk
            )
        ).one()
        return int(row[0]), -1 if row[1] is None else int(row[1]), int(row[2] or 0)

    def blob_is_there(self, pk: int, file_name: str | None) -> bool:
        """Return whether a blob is still there, with the same side file or none."""
        row = self._connection.execute(select(BlobRow.file_name).where(BlobRow.id == pk)).one_or_none()
        return row is not None and row[0] == file_name

    def prompt_is_there(self, pk: int) -> bool:
        """Return whether a prompt is still there."""
        return self._connection.execute(select(PromptRow.id).where(PromptRow.id == pk)).scalar() is not None

    def prompts(self, after: int) -> Rows:
        """Return the next prompts by key."""
        query = select(PromptRow.__table__).where(PromptRow.id > after).order_by(PromptRow.id).limit(_PAGE)
        return self._connection.execute(query).all()

    def unused(self, model: Any, after: int) -> list[int]:
        """Return the keys of the next prompts or blobs that nothing refers to."""
        column = {PromptRow: SampleRow.prompt_pk, BlobRow: BlobReferenceRow.blob_pk}[model]
        query = select(model.id).where(model.id > after, ~exists().where(column == model.id))
        if model is BlobRow:
            query = query.where(~exists().where(SampleArrayRow.blob_pk == BlobRow.id))
        return list(self._connection.execute(query.order_by(model.id).limit(_PAGE)).scalars())

    @property
    def digests(self) -> StoredDigests:
        """What reads digests in the same transaction."""
        return StoredDigests(self._connection)

    # -- one rollout -------------------------------------------------------------------------------

    def rollout(self, pk: int) -> Row[Any] | None:
        """Return a rollout's whole row; None if it is gone."""
        return self._connection.execute(select(RolloutRow.__table__).where(RolloutRow.id == pk)).one_or_none()

    def state(self, pk: int) -> str | None:
        """Return the document of the data source's state."""
        return self._connection.execute(select(RolloutStateRow.state).where(RolloutStateRow.rollout_pk == pk)).scalar()

    def samples(self, pk: int) -> Sequence[RowMapping]:
        """Return the scalars of all samples, in order."""
        query = select(SampleRow.__table__).where(SampleRow.rollout_pk == pk).order_by(SampleRow.position)
        return self._connection.execute(query).mappings().all()

    def groups(self, pk: int) -> Rows:
        """Return the groups of a train rollout, in order."""
        query = select(SampleGroupRow.__table__).where(SampleGroupRow.rollout_pk == pk)
        return self._connection.execute(query.order_by(SampleGroupRow.position)).all()

    def datasets(self, pk: int) -> Rows:
        """Return the datasets of an eval, in order."""
        query = select(EvalDatasetRow.__table__).where(EvalDatasetRow.rollout_pk == pk)
        return self._connection.execute(query.order_by(EvalDatasetRow.position)).all()

    def texts(self, pk: int, position: int | None) -> Iterator[Row[Any]]:
        """Yield position, label and response of one sample, or of all."""
        return self._of(select(SampleTextRow.position, SampleTextRow.label, SampleTextRow.response), pk, position)

    def documents(self, pk: int, position: int | None) -> Iterator[Row[Any]]:
        """Yield position, metadata and extra of one sample, or of all."""
        columns = (SampleDocumentRow.position, SampleDocumentRow.metadata_, SampleDocumentRow.extra)
        return self._of(select(*columns), pk, position)

    def rewards(self, pk: int) -> Rows:
        """Return position, depth, key and value of the numbers of dict rewards."""
        columns = (SampleRewardRow.position, SampleRewardRow.depth, SampleRewardRow.key, SampleRewardRow.value)
        return self._connection.execute(select(*columns).where(SampleRewardRow.rollout_pk == pk)).all()

    def aggregates(self, pk: int) -> Rows:
        """Return attribution, weight_version_pk and the exact ones of the numbers kept by weight version."""
        kept = RolloutWeightVersionRow
        numbers = (kept.n_samples, kept.n_rewards, kept.n_none, kept.n_nan, kept.n_truncated)
        query = select(kept.attribution, kept.weight_version_pk, *numbers, kept.reward_min, kept.reward_max)
        return self._connection.execute(query.where(kept.rollout_pk == pk)).all()

    def versions(self, pk: int) -> Rows:
        """Return position, run_position, weight_version_pk, n_turns and run_pk (of the version) in order."""
        link = SampleWeightVersionRow
        query = (
            select(link.position, link.run_position, link.weight_version_pk, link.n_turns, WeightVersionRow.run_pk)
            .outerjoin(WeightVersionRow, WeightVersionRow.id == link.weight_version_pk)
            .where(link.rollout_pk == pk)
            .order_by(link.position, link.run_position)
        )
        return self._connection.execute(query).all()

    def pack_keys(self, pk: int) -> Rows:
        """Return field and first_position of a rollout's packs, in order: from an index, the packs are not read."""
        query = select(SampleArrayRow.field, SampleArrayRow.first_position).where(SampleArrayRow.rollout_pk == pk)
        return self._connection.execute(query.order_by(SampleArrayRow.field, SampleArrayRow.first_position)).all()

    def pack(self, pk: int, field: str, first_position: int) -> Row[Any] | None:
        """Return one pack's row."""
        condition: list[ColumnElement[bool]] = [
            SampleArrayRow.rollout_pk == pk,
            SampleArrayRow.field == field,
            SampleArrayRow.first_position == first_position,
        ]
        return self._connection.execute(select(SampleArrayRow.__table__).where(*condition)).one_or_none()

    def blob_keys(self, digests: Sequence[str]) -> dict[str, int]:
        """Return the keys of those contents that are in the store, by digest."""
        keys: dict[str, int] = {}
        for chunk in chunked(digests):
            query = select(BlobRow.digest, BlobRow.id).where(BlobRow.digest.in_(chunk))
            keys |= {str(row[0]): row[1] for row in self._connection.execute(query)}
        return keys

    def references(self, pk: int) -> Rows:
        """Return blob_pk, digest and n_bytes of the blobs that a rollout refers to."""
        query = (
            select(BlobReferenceRow.blob_pk, BlobRow.digest, BlobRow.n_bytes)
            .outerjoin(BlobRow, BlobRow.id == BlobReferenceRow.blob_pk)
            .where(BlobReferenceRow.rollout_pk == pk)
        )
        return self._connection.execute(query).all()

    def prompt_documents(self, pk: int) -> Iterator[str]:
        """Yield the documents of a rollout's prompts that may refer to blobs."""
        query = (
            select(SampleRow.prompt_pk)
            .where(SampleRow.rollout_pk == pk, SampleRow.prompt_pk.is_not(None))
            .distinct()
            .scalar_subquery()
        )
        documents = select(PromptRow.document).where(PromptRow.id.in_(query), PromptRow.document.contains('"blob"'))
        return (row[0] for row in self._stream(documents))

    def _of(self, query: Any, pk: int, position: int | None) -> Iterator[Row[Any]]:
        table = query.selected_columns[0].table
        query = query.where(table.c.rollout_pk == pk)
        if position is not None:
            query = query.where(table.c.position == position)
        return self._stream(query.order_by(table.c.position))

    def _stream(self, query: Any) -> Iterator[Row[Any]]:
        yield from self._connection.execute(query.execution_options(yield_per=_BUFFERED))
