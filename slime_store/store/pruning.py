"""Pruning a run: what goes, what stays and why."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from slime_store.database import reconnecting
from slime_store.repositories.histories import Lost
from slime_store.repositories.locks import lock_shared_content
from slime_store.repositories.resume import ResumeRepository
from slime_store.repositories.retention import Freed, RetentionRepository
from slime_store.repositories.rollouts import RolloutRepository
from slime_store.repositories.runs import RunRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.resume import adoptable_rows
from slime_store.store.sessions import utc_now
from slime_store.store.side_files import remove_files
from slime_store.types.reports import PruneReport


@dataclass
class _Plan:
    """What to do, as long as the run is as it was.

    Attributes:
        facts: how the run was.
        takes: what goes, by the attempt's key, in order: True deletes it, False takes its arrays.
    """

    facts: tuple[Any, ...]
    takes: dict[int, bool] = field(default_factory=dict)
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
    pruning = _Pruning(handle, run_pk, arrays, rollouts)
    plan = pruning.plan
    if dry_run:
        n_deleted = sum(plan.takes.values())
        return PruneReport(0, len(plan.takes) - n_deleted, n_deleted, plan.n_pinned, plan.n_needed)
    freed = n_pruned = n_deleted = 0
    for pk, deletes in plan.takes.items():
        done = pruning.take(pk, deletes, [])
        if done is not None:
            remove_files(handle, done.files)
            freed += done.n_bytes
            n_deleted += deletes
            n_pruned += not deletes
    return PruneReport(freed, n_pruned, n_deleted, pruning.plan.n_pinned, pruning.plan.n_needed)


class _Pruning:
    """Prunes one run. Whoever records, resumes or saves a checkpoint between two rollouts changes the plan."""

    def __init__(self, handle: StoreHandle, run_pk: int, keep_arrays: int, keep_rollouts: int | None) -> None:
        self._handle = handle
        self._run_pk = run_pk
        self._keep = keep_arrays, keep_rollouts
        self.plan = self._first_plan()

    @reconnecting
    def _first_plan(self) -> _Plan:
        with self._handle.reading() as connection:
            return _planned(connection, self._run_pk, *self._keep)

    @reconnecting
    def take(self, pk: int, deletes: bool, tried: list[Freed]) -> Freed | None:
        """Take the arrays from a rollout, or delete it; None when it is gone by now, or is pinned or needed."""
        with self._handle.writing("prune a run") as connection:
            lock_shared_content(connection, exclusive=True)
            RunRepository(connection).lock(self._run_pk)
            repository, blobs = RetentionRepository(connection, self._run_pk), self._handle.blobs(connection)
            if tried and not repository.is_left(pk, with_arrays=not deletes):
                return tried[-1]
            if repository.facts() != self.plan.facts:
                self.plan = _planned(connection, self._run_pk, *self._keep)
            if self.plan.takes.get(pk) is not deletes or not repository.may_go(pk):
                return None
            if deletes:
                done = repository.delete(pk, RolloutRepository(connection, self._run_pk), blobs)
            else:
                by = f"prune(keep_arrays_last={self._keep[0]})"
                done = repository.drop_arrays(pk, blobs, utc_now(), by)
            if done is not None:
                tried.append(done)
            if deletes:
                self.plan.facts = repository.facts()
        return done


def _planned(connection: Connection, run_pk: int, keep_arrays: int, keep_rollouts: int | None) -> _Plan:
    repository = RetentionRepository(connection, run_pk)
    rows = repository.complete()
    pinned = {(pin.kind, pin.rollout_id) for pin in repository.pins()}
    needed = needed_to_resume(connection, run_pk)
    newest = {(row.kind, row.rollout_id): row.attempt for row in rows}  # attempts rise
    with_arrays = _last(newest, keep_arrays)
    whole = newest.keys() if keep_rollouts is None else _last(newest, keep_rollouts)
    plan = _Plan(repository.facts())
    superseded: list[int] = []
    later: list[int] = []
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
            plan.takes[row.pk] = True
        elif is_superseded:
            superseded.append(row.pk)
        else:
            later.append(row.pk)
    plan.takes |= dict.fromkeys(superseded + later, False)
    return plan


def needed_to_resume(connection: Connection, run_pk: int) -> set[int]:
    """Return the keys of the attempts that resuming needs.

    From the checkpoint noted last, and from where the last session started if it has noted none since: the
    checkpointed rollout, for the data source's state, and the chain of those that would be handed back after it. Where
    neither is known, as after an import, the chain from the first recorded rollout on.
    """
    repository = ResumeRepository(connection, run_pk)
    last = repository.last_checkpoint()
    starts = {-1 if last is None else last}
    started = RetentionRepository(connection, run_pk).last_start()
    if started is not None:
        starts.add(started)
    elif last is None:
        starts = {row.rollout_id - 1 for row in repository.complete_after(-1)[:1]}
    needed: set[int] = set()
    for start in starts:
        first = repository.histories.at(start)
        chain, _ = adoptable_rows(repository, start, first, None, None)
        needed |= {row.pk for row in chain}
        if first is not None and not isinstance(first, Lost) and first.rollout_id == start:
            needed.add(first.pk)
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
