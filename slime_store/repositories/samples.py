"""Samples: writing a rollout's rows in bulk, reading some or all of them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, and_, null, or_, select

from slime_store.blobs import FILE_BYTES, Payload
from slime_store.database import chunked, in_binary, insert_rows
from slime_store.mapping.decode import StoredSamples
from slime_store.mapping.encoded import SAMPLE_COLUMNS, EncodedRollout
from slime_store.mapping.fields import ARRAY_FIELDS, columns_of
from slime_store.mapping.opening import StoredPack
from slime_store.mapping.packs import Pack
from slime_store.models import (
    EvalDatasetRow,
    SampleArrayRow,
    SampleDocumentRow,
    SampleGroupRow,
    SampleRewardRow,
    SampleRow,
    SampleTextRow,
    SampleWeightVersionRow,
    WeightVersionRow,
)
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.digests import RolloutDigests, sample_values
from slime_store.repositories.prompts import PromptRepository

_KEYS = ("prompt_pk", "first_weight_version_pk", "last_weight_version_pk")
_ARRAY_COLUMNS = (
    "field",
    "first_position",
    "last_position",
    "codec",
    "dtype",
    "layout",
    "n_bytes",
    "data",
    "blob_pk",
)


class SampleRepository:
    """Reads and writes the samples of one rollout.

    Args:
        connection: inside a transaction.
        rollout_pk: the rollout's key.
    """

    def __init__(self, connection: Connection, rollout_pk: int) -> None:
        self._connection = connection
        self._pk = rollout_pk

    # -- writing: one statement a table ------------------------------------------------------------

    def add(
        self,
        rollout: EncodedRollout,
        prompts: Mapping[bytes, int],
        versions: Sequence[Mapping[str, int]],
        digests: RolloutDigests,
    ) -> None:
        """Add every row of the samples but their arrays. Costs one statement for each of at most eight tables.

        Args:
            rollout: the samples.
            prompts: keys by digest.
            versions: for each sample, keys of weight versions by label.
            digests: takes the digests of the rows.
        """
        samples = rollout.samples
        head, links = [], []
        for sample, keys in zip(samples, versions, strict=True):
            runs = [(j, keys[label], n) for j, (label, n) in enumerate(sample.versions)]
            ends = (runs[0][1], runs[-1][1]) if runs else (None, None)
            head.append((*sample.columns, prompts[sample.prompt] if sample.prompt else None, *ends))
            links.append(runs)
            documents = None if sample.metadata is None and sample.extra is None else (sample.metadata, sample.extra)
            rewards = sorted((*key, value) for key, value in sample.rewards.items()) if sample.rewards else ()
            row = (*sample.columns, sample.prompt, *ends)
            digests.take_sample(sample_values(row, sample.text, documents, rewards, runs))
        self._insert(SampleRow, (*SAMPLE_COLUMNS, *_KEYS), head)
        self._insert(
            SampleRewardRow,
            ("position", "depth", "key", "value"),
            [(i, *key, value) for i, sample in enumerate(samples) for key, value in sample.rewards.items()],
        )
        self._insert(
            SampleTextRow,
            ("position", "label", "response"),
            [(i, *sample.text) for i, sample in enumerate(samples) if sample.text is not None],
        )
        self._insert(
            SampleDocumentRow,
            ("position", "metadata", "extra"),
            [(i, s.metadata, s.extra) for i, s in enumerate(samples) if s.metadata is not None or s.extra is not None],
        )
        self._insert(
            SampleWeightVersionRow,
            ("position", "run_position", "weight_version_pk", "n_turns"),
            [(i, *run) for i, runs in enumerate(links) for run in runs],
        )
        self._insert(
            SampleGroupRow,
            ("position", "first_position", "n_samples", "n_trajectories", "group_index"),
            [
                (i, group.first_position, group.n_samples, group.n_trajectories, index)
                for i, (group, index) in enumerate(rollout.groups)
            ],
            digests,
        )
        self._insert(
            EvalDatasetRow,
            ("position", "name", "first_position", "n_samples", "nesting", "content"),
            [
                (i, dataset.name, dataset.first_position, dataset.n_samples, dataset.shape, dataset.content)
                for i, dataset in enumerate(rollout.datasets)
            ],
            digests,
        )

    def add_arrays(
        self, packs: Sequence[tuple[Pack, Payload]], blobs: BlobRepository, digests: RolloutDigests
    ) -> list[int]:
        """Add array packs; return the keys of the blobs that hold the large ones: no row takes more than FILE_BYTES."""
        large = [payload for _, payload in packs if payload.data is None or payload.n_bytes >= FILE_BYTES]
        blob_pks = blobs.add(large)
        keys = dict(zip(map(id, large), blob_pks, strict=True))
        rows = []
        for pack, payload in packs:
            blob_pk = keys.get(id(payload))
            data = payload.data if blob_pk is None else None
            span = (pack.field, pack.first_position, pack.last_position)
            rows.append((*span, payload.codec, payload.dtype, pack.layout, payload.n_bytes, data, blob_pk))
        digests.take(SampleArrayRow, _ARRAY_COLUMNS, rows, [payload.checksum for _, payload in packs])
        self._insert(SampleArrayRow, _ARRAY_COLUMNS, rows)
        return blob_pks

    # -- reading: one query a table ----------------------------------------------------------------

    def read(
        self,
        layouts: Sequence[Sequence[str]],
        blobs: BlobRepository,
        *,
        positions: Sequence[int] | None = None,
        fields: frozenset[str] | None = None,
    ) -> StoredSamples:
        """Return the rows of some samples, or of all, in order of position.

        Costs one query for each table that ``fields`` needs: an array, a text or a document that is not asked for is
        not read. ``extra`` is always read, since it may hold the exact value of any attribute.

        Args:
            layouts: the rollout's attribute names.
            blobs: where large packs are.
            positions: rising, at most a few hundred; None: all.
            fields: names of the attributes wanted; None: all.
        """
        wanted = None if positions is None else frozenset(positions)
        stored = StoredSamples(layouts, self._rows(_columns_for(fields), SampleRow, positions))
        if _asks_for(fields, "prompt"):
            pks = [row["prompt_pk"] for row in stored.columns if row["prompt_pk"] is not None]
            stored.prompts = PromptRepository(self._connection).get(pks)
        if _asks_for(fields, "response", "label"):
            query = select(SampleTextRow.position, SampleTextRow.label, SampleTextRow.response)
            rows = self._rows(query, SampleTextRow, positions)
            stored.texts = {row["position"]: (row["label"], row["response"]) for row in rows}
        metadata = SampleDocumentRow.metadata_ if _asks_for(fields, "metadata") else null().label("metadata")
        query = select(SampleDocumentRow.position, metadata, SampleDocumentRow.extra)
        rows = self._rows(query, SampleDocumentRow, positions)
        stored.documents = {row["position"]: (row["metadata"], row["extra"]) for row in rows}
        if _asks_for(fields, "weight_versions"):
            stored.versions = self._versions(positions)
        arrays = None if fields is None else sorted(fields.intersection(ARRAY_FIELDS))
        stored.packs = self.packs(blobs, wanted, arrays)
        return stored

    def _versions(self, positions: Sequence[int] | None) -> dict[int, list[tuple[str, int]]]:
        query = (
            select(SampleWeightVersionRow.position, WeightVersionRow.label, SampleWeightVersionRow.n_turns)
            .join(WeightVersionRow, WeightVersionRow.id == SampleWeightVersionRow.weight_version_pk)
            .order_by(SampleWeightVersionRow.position, SampleWeightVersionRow.run_position)
        )
        versions: dict[int, list[tuple[str, int]]] = {}
        for row in self._rows(query, SampleWeightVersionRow, positions):
            versions.setdefault(row["position"], []).append((row["label"], row["n_turns"]))
        return versions

    def packs(
        self, blobs: BlobRepository, positions: frozenset[int] | None = None, fields: Sequence[str] | None = None
    ) -> list[StoredPack]:
        """Return the array packs of some samples and fields, or of all. Costs a query, and one for the large ones."""
        conditions: list[ColumnElement[bool]] = [SampleArrayRow.rollout_pk == self._pk]
        if fields is not None:
            if not fields:
                return []
            conditions.append(SampleArrayRow.field.in_(fields))
        if positions is not None:
            conditions.append(SampleArrayRow.first_position <= max(positions, default=-1))
            conditions.append(SampleArrayRow.last_position >= min(positions, default=0))
        query = select(
            SampleArrayRow.field,
            SampleArrayRow.first_position,
            SampleArrayRow.last_position,
            SampleArrayRow.codec,
            SampleArrayRow.dtype,
            SampleArrayRow.layout,
            SampleArrayRow.n_bytes,
            SampleArrayRow.data,
            SampleArrayRow.blob_pk,
        ).where(*conditions)
        rows = [
            row
            for row in self._connection.execute(
                in_binary(query.order_by(SampleArrayRow.field, SampleArrayRow.first_position))
            ).all()
            if positions is None or any(row.first_position <= each <= row.last_position for each in positions)
        ]
        readers = blobs.readers([row.blob_pk for row in rows if row.blob_pk is not None])
        return [
            StoredPack(
                row.field,
                row.first_position,
                row.codec,
                row.dtype,
                row.layout,
                row.n_bytes,
                row.data if row.blob_pk is None else readers[row.blob_pk],
            )
            for row in rows
        ]

    def _rows(self, query: Any, model: Any, positions: Sequence[int] | None) -> Sequence[RowMapping]:
        query = query.where(model.rollout_pk == self._pk)
        if not query._order_by_clauses:
            query = query.order_by(model.position)
        if positions is None:
            return self._connection.execute(query).mappings().all()  # half the time of going row by row
        rows: list[RowMapping] = []
        for chunk in chunked(_runs_of(positions), 200):
            spans = [and_(model.position >= first, model.position <= last) for first, last in chunk]
            near = model.position.between(chunk[0][0], chunk[-1][1])  # for an OR alone SQLite scans the rollout
            rows += self._connection.execute(query.where(near, or_(*spans))).mappings().all()
        return rows

    def _insert(
        self, model: Any, columns: Sequence[str], rows: list[tuple[Any, ...]], digests: RolloutDigests | None = None
    ) -> None:
        if digests is not None:
            digests.take(model, columns, rows)
        table: Table = model.__table__
        insert_rows(self._connection, table, ("rollout_pk", *columns), [(self._pk, *row) for row in rows])


def _columns_for(fields: frozenset[str] | None) -> Any:
    """Select what the attributes need of ``samples``: each column costs a row a microsecond's tenth."""
    table = SampleRow.__table__
    if fields is None:
        return select(table)
    names = {"position", "layout"}.union(*map(columns_of, fields))
    return select(*(column for column in table.columns if column.name in names))


def _asks_for(fields: frozenset[str] | None, *names: str) -> bool:
    return fields is None or not fields.isdisjoint(names)


def _runs_of(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Join rising positions into (first, last) spans, so that a whole page costs two bind variables."""
    spans: list[tuple[int, int]] = []
    for position in positions:
        if spans and spans[-1][1] == position - 1:
            spans[-1] = (spans[-1][0], position)
        else:
            spans.append((position, position))
    return spans
