"""Samples with the place where each was recorded, of a run or of a whole store."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import accumulate
from operator import index
from typing import Any, Literal

from slime_store.database import reconnecting
from slime_store.errors import BlobCorruptError, SampleNotFoundError
from slime_store.mapping.encode import prompt_digest
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.selection import LAYOUTS, PLACE, SelectionRepository
from slime_store.store.diagnosis import damage_named
from slime_store.store.infos import attempt_number, rollout_number
from slime_store.store.loading import sample_class
from slime_store.store.run import Run
from slime_store.store.sample_store import SampleStore
from slime_store.store.walking import iter_pages, read_page
from slime_store.types import LocatedSample, SampleFilter, SamplePlace
from slime_store.types.conditions import one_kind

Source = Run | SampleStore


def iter_located(
    source: Source,
    where: SampleFilter | None = None,
    *,
    fields: Collection[str] | None = None,
    without: Collection[str] = (),
    batch_size: int = 256,
    sample_type: type[Any] | None = None,
) -> Iterator[LocatedSample]:
    """Yield what ``Run.iter_samples`` yields, each sample with its place; of a store, run after run.

    Costs one query more for each eval rollout: for the names of its datasets.

    Args:
        source: a run, or a store for all of its runs.
        where: as for ``Run.iter_samples``, like the arguments that follow.
        fields: attributes to read; None: all.
        without: where ``fields`` is None: attributes that are not read.
        batch_size: samples read at a time.
        sample_type: class of the samples.
    """
    handle, wanted = source._handle, None if fields is None else frozenset(fields)
    datasets: list[tuple[int, str]] = []
    last = None
    pages = iter_pages(
        handle,
        _pk_of(source),
        where or SampleFilter(),
        wanted,
        batch_size,
        sample_class(sample_type),
        frozenset(without),
    )
    for row, page in pages:
        if row.id != last:
            datasets = _datasets(source, row)
            last = row.id
        for position, sample in page:
            yield LocatedSample(_place(row, position, datasets), sample)


@damage_named
@reconnecting
def load_sample(
    run: Run,
    rollout_id: int,
    position: int,
    *,
    kind: Literal["train", "eval"] = "train",
    attempt: int | None = None,
    fields: Collection[str] | None = None,
    sample_type: type[Any] | None = None,
) -> LocatedSample:
    """Return one sample, reading no other.

    Args:
        run: the run.
        rollout_id: which rollout.
        position: its place in the order of the rollout, from 0.
        kind: "train" or "eval".
        attempt: which attempt; None: the newest complete one.
        fields: attributes to read; None: all.
        sample_type: class of the sample, as for ``Run.load_train``.

    Raises:
        RolloutNotFoundError: the rollout is not recorded.
        SampleNotFoundError: the rollout has no such position.
        ArraysPrunedError: what is asked for was pruned.
        ValueError: there is no such kind.
    """
    one_kind(kind)
    number, attempt = rollout_number(rollout_id), attempt_number(attempt)
    position, made = index(position), sample_class(sample_type)
    with run._handle.reading() as connection:
        found = RolloutRepository(connection, run._pk).find(run.name, kind, number, attempt)
        where = SampleFilter(kind=kind, rollout_ids=number, attempt=found.attempt)
        (row,) = SelectionRepository(connection, run._pk, where).rollouts(LAYOUTS, *PLACE)
    wanted = None if fields is None else frozenset(fields)
    known = [position] if 0 <= position < row.n_samples else []
    page = read_page(run._handle, row, known, wanted, made)
    if not page:
        raise SampleNotFoundError(run.name, kind, number, position, row.n_samples)
    return LocatedSample(_place(row, position, _datasets(run, row)), page[0][1])


@damage_named
@reconnecting
def count_samples(source: Source, where: SampleFilter | None = None) -> int:
    """Return how many samples meet a filter. Reads no sample, unless the filter asks for metadata."""
    where = where or SampleFilter()
    if where.metadata:
        return sum(1 for _ in iter_located(source, where, fields=["metadata"]))
    digest = None if where.prompt is None else prompt_digest(where.prompt)
    with source._handle.reading() as connection:
        selection = SelectionRepository(connection, _pk_of(source), where, digest)
        return selection.count(source._handle.blobs(connection))


def _pk_of(source: Source) -> int | None:
    return source._pk if isinstance(source, Run) else None


@damage_named
@reconnecting
def _datasets(source: Source, row: Any) -> list[tuple[int, str]]:
    """Return where each dataset of an eval ends, and its name; nothing for another rollout.

    Raises:
        BlobCorruptError: the datasets do not follow one another to the rollout's last sample.
    """
    if row.kind != "eval":
        return []
    with source._handle.reading() as connection:
        rows = SelectionRepository(connection, None, SampleFilter()).datasets(row.id)
    ends = list(accumulate(n for _, _, n in rows))
    if [0, *ends] != [*(first for _, first, _ in rows), row.n_samples]:
        raise BlobCorruptError(f"the datasets of eval rollout {row.rollout_id} are not those of its samples")
    return [(end, name) for end, (name, _, _) in zip(ends, rows, strict=True)]


def _place(row: Any, position: int, datasets: list[tuple[int, str]]) -> SamplePlace:
    dataset = next((name for end, name in datasets if position < end), None)
    return SamplePlace(row.run, row.kind, row.rollout_id, row.attempt, row.session, dataset, position)
