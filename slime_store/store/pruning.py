"""Pruning a run: what goes, what stays and why."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from slime_store.database import reconnecting
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.retention import Freed, RetentionRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.recording import remove_files
from slime_store.store.resume import adoptable_rows
from slime_store.store.sessions import utc_now
from slime_store.types.reports import PruneReport


@dataclass
class _Plan:
    """What to do with which attempts, by key."""

    delete: list[int] = field(default_factory=list)
    prune: list[int] = field(default_factory=list)
    n_pinned: int = 0
    n_needed: int = 0


def prune(
    handle: StoreHandle, run_pk: int, keep_arrays_last: int, keep_rollouts_last: int | None, dry_run: bool
) -> PruneReport:
    """Prune one run; see ``Run.prune``."""
    arrays = _number("keep_arrays_last", keep_arrays_last)
    rollouts = None if keep_rollouts_last is None else _number("keep_rollouts_last", keep_rollouts_last)
    if not dry_run:
        handle.check_writable("prune a run")
    plan = _plan(handle, run_pk, arrays, rollouts)
    if dry_run:
        return PruneReport(0, len(plan.prune), len(plan.delete), plan.n_pinned, plan.n_needed)
    by = f"prune(keep_arrays_last={arrays})"
    freed = n_pruned = n_deleted = 0
    for pk, deletes in [*((pk, True) for pk in plan.delete), *((pk, False) for pk in plan.prune)]:
        done = _take(handle, run_pk, pk, None if deletes else by, [])
        if done is not None:
            remove_files(handle, done.files)
            freed += done.n_bytes
            n_deleted += deletes
            n_pruned += not deletes
    return PruneReport(freed, n_pruned, n_deleted, plan.n_pinned, plan.n_needed)


@reconnecting
def _take(handle: StoreHandle, run_pk: int, pk: int, by: str | None, tried: list[Freed]) -> Freed | None:
    """Take the arrays from a rollout, or delete it (``by`` is None); None when it is gone or pinned meanwhile."""
    with handle.writing("prune a run") as connection:
        lock_shared_content(connection, exclusive=True)
        RunRepository(connection).lock(run_pk)
        repository, blobs = RetentionRepository(connection, run_pk), handle.blobs(connection)
        if tried and not repository.is_left(pk, with_arrays=by is not None):
            return tried[-1]
        if not repository.may_go(pk):
            return None
        if by is None:
            done = repository.delete(pk, RolloutRepository(connection, run_pk), blobs)
        else:
            done = repository.drop_arrays(pk, blobs, utc_now(), by)
        if done is not None:
            tried.append(done)
    return done


@reconnecting
def _plan(handle: StoreHandle, run_pk: int, keep_arrays: int, keep_rollouts: int | None) -> _Plan:
    with handle.reading() as connection:
        return _planned(connection, run_pk, keep_arrays, keep_rollouts)


def _planned(connection: Connection, run_pk: int, keep_arrays: int, keep_rollouts: int | None) -> _Plan:
    repository = RetentionRepository(connection, run_pk)
    rows = repository.complete()
    pinned = {(pin.kind, pin.rollout_id) for pin in repository.pins()}
    needed = needed_to_resume(connection, run_pk)
    newest = {(row.kind, row.rollout_id): row.attempt for row in rows}  # attempts rise
    with_arrays = _last(newest, keep_arrays)
    whole = newest.keys() if keep_rollouts is None else _last(newest, keep_rollouts)
    plan, later = _Plan(), []
    for row in rows:
        key = (row.kind, row.rollout_id)
        is_superseded = row.attempt != newest[key]
        deletes = key not in whole
        if not deletes and (row.pruned_at is not None or (key in with_arrays and not is_superseded)):
            continue
        if key in pinned:
            plan.n_pinned += 1
        elif row.pk in needed:
            plan.n_needed += 1
        elif deletes:
            plan.delete.append(row.pk)
        elif is_superseded:
            plan.prune.append(row.pk)
        else:
            later.append(row.pk)
    plan.prune += later
    return plan


def needed_to_resume(connection: Connection, run_pk: int) -> set[int]:
    """Return the keys of the attempts that resuming needs.

    From the checkpoint noted last, and from where the last session started if it has noted none since: the
    checkpointed rollout, for the data source's state, and the chain of those that would be handed back after it.
    """
    repository = ResumeRepository(connection, run_pk)
    last = repository.last_checkpoint()
    starts = {-1 if last is None else last}
    started = RetentionRepository(connection, run_pk).last_start()
    if started is not None:
        starts.add(started)
    needed: set[int] = set()
    for start in starts:
        chain, _ = adoptable_rows(repository, start, None, None)
        needed |= {row.pk for row in chain}
        newest = [row for row in repository.complete_after(start - 1) if row.rollout_id == start]
        needed |= {row.pk for row in newest}
    return needed


def _last(keys: Iterable[tuple[str, int]], n: int) -> set[tuple[str, int]]:
    """Return the keys with the n highest rollout ids of each kind."""
    by_kind: dict[str, list[int]] = {}
    for kind, rollout_id in keys:
        by_kind.setdefault(kind, []).append(rollout_id)
    return {(kind, each) for kind, ids in by_kind.items() for each in sorted(ids, reverse=True)[:n]}


def _number(name: str, value: Any) -> int:
    number = operator.index(value)
    if isinstance(value, bool) or number < 0:
        raise ValueError(f"{name} is a number of rollouts, 0 or more, not {value!r}")
    return number
