"""Walking samples page by page, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Row

from slime_store.database import reconnecting
from slime_store.errors import BlobMissingError
from slime_store.mapping.decode import SampleDecoder, documents_of, layouts_of
from slime_store.mapping.encode import prompt_digest
from slime_store.mapping.fields import ARRAY_FIELDS, FIELDS, Home
from slime_store.mapping.metadata import metadata_matches
from slime_store.repositories.blobs import DocumentBlobs
from slime_store.repositories.retention import RetentionRepository
from slime_store.repositories.samples import SampleRepository
from slime_store.repositories.selection import LAYOUTS, N_BYTES, PLACE, SelectionRepository
from slime_store.store.diagnosis import naming_damage
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import refuse_pruned
from slime_store.store.loading import again_if_overtaken, rows_of
from slime_store.types import SampleFilter

_PAGE_BYTES = 16 << 20
"""Stored bytes of samples that are in memory at a time while a rollout is walked, unless one alone has more."""

_LARGE = (Home.ARRAY, Home.EXTRA)

_CHUNK_SAMPLES, _CHUNK_ROLLOUTS = 1 << 16, 200


def iter_samples(
    handle: StoreHandle,
    run_pk: int | None,
    where: SampleFilter,
    fields: frozenset[str] | None,
    batch_size: int,
    sample_type: type[Any],
) -> Iterator[Any]:
    """Yield samples page by page; no transaction is open while the caller has one in hand.

    A rollout that is deleted meanwhile is left out from there on. The rollouts are those present at the start. A page
    is read by the positions of its samples: when its connection breaks it is read again, and nothing comes twice.
    """
    for _row, page in iter_pages(handle, run_pk, where, fields, batch_size, sample_type):
        for _position, sample in page:
            yield sample


def iter_pages(
    handle: StoreHandle,
    run_pk: int | None,
    where: SampleFilter,
    fields: frozenset[str] | None,
    batch_size: int,
    sample_type: type[Any],
    without: frozenset[str] = frozenset(),
) -> Iterator[tuple[Row[Any], Iterator[tuple[int, Any]]]]:
    """Yield a rollout's row (``id`` and ``PLACE``) and some of its samples with their positions; see ``iter_samples``.

    Args:
        handle: the store.
        run_pk: the run's key; None: every run.
        where: which samples.
        fields: attributes to read; None: all.
        batch_size: at most this many samples a page.
        sample_type: class of the samples.
        without: where ``fields`` is None: attributes that are not read.
    """
    digest = None if where.prompt is None else prompt_digest(where.prompt)
    needed = fields if fields is None or where.metadata is None else fields | {"metadata"}

    @reconnecting
    def rollouts() -> list[Row[Any]]:
        with handle.reading() as connection:
            return SelectionRepository(connection, run_pk, where, digest).rollouts(LAYOUTS, N_BYTES, *PLACE)

    @reconnecting
    def positions_in(chunk: list[Row[Any]]) -> dict[int, list[int]]:
        with handle.reading() as connection:
            selection = SelectionRepository(connection, run_pk, where, digest)
            return selection.positions([row.id for row in chunk], handle.blobs(connection))

    def matching(samples: list[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        for position, sample in samples:
            if not where.metadata or metadata_matches(getattr(sample, "metadata", None), where.metadata):
                if needed != fields:
                    sample.metadata = sample_type().metadata
                yield position, sample

    with naming_damage(handle):
        for chunk in _by_samples(rollouts()):
            found = positions_in(chunk)
            for row in chunk:
                positions = found.get(row.id, [])
                asked = needed
                if without and needed is None:
                    asked = frozenset(name for names in layouts_of(row.layouts) for name in names) - without
                step = min(batch_size, _page_samples(row, asked))
                for start in range(0, len(positions), step):
                    page = read_page(handle, row, positions[start : start + step], asked, sample_type)
                    yield row, matching(page)


@reconnecting
@again_if_overtaken
def read_page(
    handle: StoreHandle, row: Row[Any], positions: list[int], fields: frozenset[str] | None, sample_type: type[Any]
) -> list[tuple[int, Any]]:
    """Return the samples of a rollout at some rising positions, with these; those that are gone are left out.

    Args:
        handle: the store.
        row: ``id``, ``layouts`` and ``PLACE`` of the rollout.
        positions: at most a few hundred.
        fields: attributes to read; None: all.
        sample_type: class of the samples.

    Raises:
        ArraysPrunedError: what is asked for was pruned.
    """
    with handle.reading() as connection, rows_of(f"{row.kind} rollout {row.rollout_id} of run {row.run!r}"):
        blobs = handle.blobs(connection)
        retention = RetentionRepository(connection, row.run_pk)
        if fields is None or not fields.isdisjoint(ARRAY_FIELDS):  # in this transaction: any time may be the last
            refuse_pruned(retention.pruned(row.id), row.run)
        layouts = layouts_of(row.layouts)
        stored = SampleRepository(connection, row.id).read(layouts, blobs, positions=positions, fields=fields)
        try:
            source = DocumentBlobs(blobs, documents_of(stored, fields))
            samples = SampleDecoder(source, sample_type, fields).samples(stored)
        except BlobMissingError:
            refuse_pruned(retention.pruned(row.id), row.run)
            raise
        return [(columns["position"], sample) for columns, sample in zip(stored.columns, samples, strict=True)]


def _page_samples(row: Row[Any], fields: frozenset[str] | None) -> int:
    """Return how many of a rollout's samples are read together at most: few of large ones."""
    if fields is not None and all(FIELDS.get(name, Home.EXTRA) not in _LARGE for name in fields):
        return max(1, int(row.n_samples))
    return max(1, _PAGE_BYTES * int(row.n_samples) // max(1, int(row.n_bytes)))


def _by_samples(rollouts: list[Row[Any]]) -> Iterator[list[Row[Any]]]:
    """Cut the rollouts into chunks with about 65,000 samples each, so that their positions take little memory."""
    chunk: list[Row[Any]] = []
    n_samples = 0
    for row in rollouts:
        if chunk and (n_samples + row.n_samples > _CHUNK_SAMPLES or len(chunk) >= _CHUNK_ROLLOUTS):
            yield chunk
            chunk, n_samples = [], 0
        chunk.append(row)
        n_samples += row.n_samples
    if chunk:
        yield chunk
