"""Where a run goes on after a crash: what can be adopted, and why not more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row

from slime_store.errors import BlobMissingError
from slime_store.mapping.decode import SampleDecoder, documents_of, layouts_of
from slime_store.mapping.nesting import nest
from slime_store.repositories.blobs import DocumentBlobs
from slime_store.repositories.histories import Lost
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.samples import SampleRepository
from slime_store.store.collection import paused
from slime_store.store.handle import StoreHandle
from slime_store.store.infos import decode_inline, encode_inline, refuse_pruned, rollout_info
from slime_store.store.loading import again_if_overtaken, rows_of
from slime_store.types import ResumePoint


@again_if_overtaken
def resume_point(
    handle: StoreHandle,
    run: str,
    run_pk: int,
    sample_type: type[Any],
    checkpoint_rollout_id: int | None,
    lineage: dict[str, Any] | None,
    max_adopted: int | None,
) -> ResumePoint:
    """Read a run's resume point in one read transaction; see ``Run.resume``."""
    with paused(), rows_of("what is to be resumed"), handle.reading() as connection:
        repository = ResumeRepository(connection, run_pk)
        checkpoint = checkpoint_rollout_id
        if checkpoint is None:
            saved = repository.last_checkpoint()
            checkpoint = -1 if saved is None else saved
        start = repository.histories.at(checkpoint)
        adoptable, refused = adoptable_rows(repository, checkpoint, start, lineage, max_adopted)
        rollouts = RolloutRepository(connection, run_pk)
        next_rollout_id = checkpoint + 1 + len(adoptable)
        last = adoptable[-1] if adoptable else start
        state = None
        if last is not None and not isinstance(last, Lost) and last.rollout_id == next_rollout_id - 1:
            state = _state(handle, connection, run, run_pk, "train", last.rollout_id, last.attempt, sample_type)
        buffer = state.get("buffer") if isinstance(state, dict) else None
        journal = [
            row
            for row in _of_history(repository, checkpoint, last, next_rollout_id)
            if not differences(row.lineage, lineage) and (refused is None or row.rollout_id <= next_rollout_id)
        ]
        return ResumePoint(
            checkpoint_rollout_id=checkpoint,
            next_rollout_id=next_rollout_id,
            complete=tuple(rollout_info(rollouts.info(row.pk)) for row in adoptable),
            journalled_groups=_journalled_groups(handle, connection, journal, sample_type),
            state=state,
            buffer=buffer if isinstance(buffer, list) else [],
            refused=refused,
            journalled_sessions={row.group_index: row.session for row in journal if row.group_index is not None},
        )


def adoptable_rows(
    repository: ResumeRepository,
    checkpoint: int,
    start: Row[Any] | Lost | None,
    lineage: dict[str, Any] | None,
    max_adopted: int | None,
) -> tuple[list[Row[Any]], str | None]:
    """Return the unbroken chain of adoptable rollouts after a checkpoint, and why it ends before the recorded ones do.

    A rollout is adoptable when all before it are, it was recorded with the data source's state, has its arrays still,
    its session's lineage agrees with the given one in every key that both have, and it followed the rollout before it,
    be it the checkpoint's own (``start``), and not another attempt of that.
    """
    chain: list[Row[Any]] = []
    last: Row[Any] | Lost | None = start
    for row in repository.complete_after(checkpoint):
        expected = checkpoint + 1 + len(chain)
        what = f"rollout {row.rollout_id}"
        if row.rollout_id != expected:
            return chain, f"rollout {expected} is not recorded, so {what} and later ones cannot follow"
        if max_adopted is not None and len(chain) >= max_adopted:
            return chain, f"{what} is more than {max_adopted} rollouts after checkpoint {checkpoint}"
        if not row.has_state:
            return chain, f"{what} was recorded without the data source's state"
        if row.pruned_at is not None:
            return chain, f"the arrays of {what} were pruned"
        reason = None if last is None else repository.histories.why_not_after(row, last)
        if reason is not None:
            return chain, reason
        changed = differences(row.lineage, lineage)
        if changed:
            return chain, f"{what} was generated with another {', '.join(changed[:5])}"
        chain.append(row)
        last = row
    return chain, None


def _of_history(
    repository: ResumeRepository, checkpoint: int, last: Row[Any] | Lost | None, next_rollout_id: int
) -> list[Row[Any]]:
    """Return the journalled groups of the sessions that were where the chain of rollouts ends.

    Those of an earlier session that the one which recorded its last rollout has kept, too: it has cleared the others.
    """
    rows, was_there = repository.journal(), dict[int, bool]()
    for row in rows:
        if row.session_pk in was_there:
            continue
        if last is None:
            was_there[row.session_pk] = row.start in (None, checkpoint)
        else:
            was_at = repository.histories.was_at
            was_there[row.session_pk] = (
                last.rollout_id != next_rollout_id - 1
                or (not isinstance(last, Lost) and not last.is_imported and row.session < last.session)
                or was_at(last, row.session_pk, row.session, row.start)
            )
    return [row for row in rows if was_there[row.session_pk]]


def differences(theirs: str | None, ours: dict[str, Any] | None) -> list[str]:
    """Return the keys in which two lineages differ, of those that both have."""
    if theirs is None or ours is None:
        return []
    other = decode_inline(theirs)
    return sorted(str(key) for key in ours if key in other and not _agree(other[key], ours[key]))


def _agree(theirs: Any, ours: Any) -> bool:
    """Return whether two values are equal; NaN is equal to itself here, and an array to one of the same elements."""
    if encode_inline(theirs, "lineage") == encode_inline(ours, "lineage"):
        return True
    try:
        return bool(theirs == ours)
    except Exception:  # an object's own code; of arrays, that they have more truths than one
        return False


@again_if_overtaken
def load_state(
    handle: StoreHandle, run: str, run_pk: int, kind: str, rollout_id: int, attempt: int | None, sample_type: type[Any]
) -> Any:
    """Return the data source's state at the end of a rollout, or None."""
    with paused(), rows_of("the data source's state"), handle.reading() as connection:
        return _state(handle, connection, run, run_pk, kind, rollout_id, attempt, sample_type)


def _state(
    handle: StoreHandle,
    connection: Connection,
    run: str,
    run_pk: int,
    kind: str,
    rollout_id: int,
    attempt: int | None,
    sample_type: type[Any],
) -> Any:
    row = ResumeRepository(connection, run_pk).state(kind, rollout_id, attempt)
    if row is None or row.state is None:
        return None
    try:
        return _decoder(handle, connection, sample_type, [row.state]).document(row.state)
    except BlobMissingError:
        refuse_pruned(row, run)
        raise


def _decoder(
    handle: StoreHandle, connection: Connection, sample_type: type[Any], documents: Iterable[str]
) -> SampleDecoder:
    return SampleDecoder(DocumentBlobs(handle.blobs(connection), documents), sample_type)


def _journalled_groups(
    handle: StoreHandle, connection: Connection, rows: list[Row[Any]], sample_type: type[Any]
) -> list[Any]:
    groups = []
    blobs = handle.blobs(connection)
    for row in rows:
        stored = SampleRepository(connection, row.pk).read(layouts_of(row.layouts), blobs)
        decoder = _decoder(handle, connection, sample_type, documents_of(stored, None))
        groups += nest(row.nesting, decoder.samples(stored))
    return groups
