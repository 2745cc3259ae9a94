"""Columns of the samples that a filter names, read in pages or all together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from slime_store.codecs.documents import DocumentDecoder
from slime_store.database import chunked
from slime_store.errors import BlobCorruptError
from slime_store.mapping.metadata import metadata_matches
from slime_store.models import RolloutRow, RunRow, SampleRow, SessionRow
from slime_store.repositories.blobs import BlobRepository, DocumentBlobs
from slime_store.repositories.questions.conditions import Condition, concerns_samples
from slime_store.repositories.questions.fields import Field, query_of
from slime_store.repositories.selection import SelectionRepository
from slime_store.types import SampleFilter

_CHUNK_SAMPLES, _CHUNK_ROLLOUTS = 1 << 16, 200
_FIRST_SAMPLES, _GROWTH = 1 << 13, 4  # a page is usually found soon, and is not when few samples match


class Head(NamedTuple):
    """A rollout, as each of its samples is told."""

    pk: int
    n_samples: int
    run: str
    session: int
    kind: str
    rollout_id: int
    attempt: int
    weight_version_pk: int | None
    """The version that an eval was recorded with."""


class Damage(NamedTuple):
    """A sample whose metadata could not be read, so that nobody knows whether the filter means it."""

    rollout_pk: int
    position: int
    error: BlobCorruptError


_HEAD_COLUMNS = (
    select(RunRow.name).where(RunRow.id == RolloutRow.run_pk).scalar_subquery(),
    select(SessionRow.ordinal).where(SessionRow.id == RolloutRow.session_pk).scalar_subquery(),
    RolloutRow.kind,
    RolloutRow.rollout_id,
    RolloutRow.attempt,
    RolloutRow.weight_version_pk,
)
_ORDER = (RolloutRow.run_pk, RolloutRow.kind.desc(), RolloutRow.rollout_id, RolloutRow.attempt, SampleRow.position)


class SampleScan:
    """Reads columns of many samples: train before eval, then by rollout id, attempt and position.

    Args:
        connection: inside a transaction.
        blobs: where large payloads are.
        run_pk: the run; None: all of them, in the order of their making.
        where: which samples.
        digest: of ``where.prompt``, when that is given.

    Attributes:
        damages: samples that were left out, since their metadata does not decode; only with a filter on metadata.
    """

    def __init__(
        self,
        connection: Connection,
        blobs: BlobRepository,
        run_pk: int | None,
        where: SampleFilter,
        digest: bytes | None = None,
    ) -> None:
        self.damages: list[Damage] = []
        self._connection = connection
        self._blobs = blobs
        self._where = where
        self._selection = SelectionRepository(connection, run_pk, where, digest)

    def heads(self) -> list[Head]:
        """Return the rollouts that may hold such samples, in order. Costs one query."""
        return [Head._make(row) for row in self._selection.rollouts(*_HEAD_COLUMNS)]

    def rows(
        self, heads: Sequence[Head], fields: Sequence[Field], *, limit: int | None = None, offset: int = 0
    ) -> Iterator[tuple[Any, ...]]:
        """Yield (rollout_pk, position, fields) of each sample.

        Costs one query for each 65,000 samples or 200 rollouts looked at. With a limit, smaller parts are looked at
        first, and none after the last row wanted; what lies before ``offset`` is counted, not read, and not even that
        when the filter leaves out no sample.
        """
        if limit == 0:
            return
        if not concerns_samples(self._where):
            heads, offset = _skipped(heads, offset)
        for chunk in _chunks(heads, growing=limit is not None or offset > 0):
            pks = [head.pk for head in chunk]
            conditions = [SampleRow.rollout_pk.in_(pks), *self._selection.conditions(pks, self._blobs)]
            if self._where.metadata:
                found: Iterable[tuple[Any, ...]] = self._with_metadata(pks, conditions, fields)
                n_before = offset
            else:
                n_before = 0
                if offset and concerns_samples(self._where):
                    n_found = self._count(conditions)
                    if n_found <= offset:
                        offset -= n_found
                        continue
                query = _ordered(query_of(fields), pks).where(*conditions).limit(limit).offset(offset or None)
                found, offset = self._fetched(query), 0
            for row in found:
                if n_before:
                    n_before, offset = n_before - 1, offset - 1
                    continue
                yield row
                if limit is not None:
                    limit -= 1
                    if limit == 0:
                        return

    def rewarded_datasets(self, rollout_pks: Sequence[int]) -> set[tuple[int, int]]:
        """Return (rollout_pk, dataset_position) of the eval datasets that gave a number as reward of any sample."""
        found: set[tuple[int, int]] = set()
        for chunk in chunked(rollout_pks):
            query = (
                select(SampleRow.rollout_pk, SampleRow.dataset_position)
                .where(SampleRow.rollout_pk.in_(chunk), SampleRow.eval_reward.is_not(None))
                .distinct()
            )
            found |= {(row[0], row[1]) for row in self._connection.execute(query) if row[1] is not None}
        return found

    def _with_metadata(
        self, pks: Sequence[int], conditions: Sequence[Condition], fields: Sequence[Field]
    ) -> Iterator[tuple[Any, ...]]:
        wanted = self._where.metadata or {}
        query = _ordered(query_of([*fields, "metadata", "extra"]), pks).where(*conditions)
        for row in self._fetched(query):
            try:
                matches = metadata_matches(self._metadata(row[-2], row[-1], wanted), wanted)
            except BlobCorruptError as error:
                self.damages.append(Damage(row[0], row[1], error))
                continue
            if matches:
                yield row[:-2]

    def _metadata(self, document: str | None, extra: str | None, wanted: dict[str, Any]) -> Any:
        """Return the wanted keys of a sample's metadata, exactly as they were."""
        if extra is not None and '"metadata"' in extra:
            given = self._decoded(extra, ["metadata"])
            if "metadata" in given:
                return given["metadata"]
        return {} if document is None else self._decoded(document, wanted)

    def _decoded(self, document: str, keys: Any) -> Any:
        if '{"$' not in document:  # nothing but plain JSON: most are, and making a decoder takes longer
            try:
                return dict(json.loads(document))
            except (ValueError, TypeError) as error:
                raise BlobCorruptError(f"a document does not decode: {error}") from error
        part = document
        if '"blob"' in document:  # read no other blob than those of the keys
            tree = json.loads(document)
            if "$dict" not in tree:
                part = json.dumps({key: value for key, value in tree.items() if key in keys})
        return DocumentDecoder(DocumentBlobs(self._blobs, [part])).document(document, keys)

    def _count(self, conditions: Sequence[Condition]) -> int:
        query = select(func.count()).select_from(SampleRow).where(*conditions)
        return int(self._connection.execute(query).scalar_one())

    def _fetched(self, query: Select[Any]) -> Sequence[Any]:
        return self._connection.execute(query).all()


def _skipped(heads: Sequence[Head], offset: int) -> tuple[Sequence[Head], int]:
    """Leave out the rollouts that lie wholly before an offset; return the rest and what remains of the offset."""
    for number, head in enumerate(heads):
        if offset < head.n_samples:
            return heads[number:], offset
        offset -= head.n_samples
    return [], 0


def _chunks(heads: Sequence[Head], *, growing: bool) -> Iterator[list[Head]]:
    """Cut rollouts into chunks of about 65,000 samples; growing ones begin at 8,000."""
    most = _FIRST_SAMPLES if growing else _CHUNK_SAMPLES
    chunk: list[Head] = []
    n_samples = 0
    for head in heads:
        if chunk and (n_samples + head.n_samples > most or len(chunk) >= _CHUNK_ROLLOUTS):
            yield chunk
            chunk, n_samples, most = [], 0, min(most * _GROWTH, _CHUNK_SAMPLES)
        chunk.append(head)
        n_samples += head.n_samples
    if chunk:
        yield chunk


def _ordered(query: Select[Any], pks: Sequence[int]) -> Select[Any]:
    """Order as the rollouts are: by the key of the table, without sorting, where their keys rise."""
    if list(pks) == sorted(pks):
        return query.order_by(SampleRow.rollout_pk, SampleRow.position)
    return query.join(RolloutRow, RolloutRow.id == SampleRow.rollout_pk).order_by(*_ORDER)
