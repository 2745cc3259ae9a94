"""What maintenance says: what was found, copied, freed. Frozen, and picklable.

Every ``_at`` is an aware ``datetime`` in UTC, every ``_bytes`` a number of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True)
class Problem:
    """One thing that ``verify`` found wrong; docs/reliability.md lists the codes.

    Attributes:
        code: what kind of thing, e.g. ``"array_damaged"``.
        what: for people.
        run: name of the run; None where it concerns no single rollout.
        kind: ``"train"``, ``"eval"`` or ``"journal"`` (a finished group of a rollout under way).
        rollout_id: which rollout.
        attempt: which recording of it.
        samples: positions of the samples concerned, from 0 in the order of the nested list; empty: not known, or all.
        fixable: ``verify(fix=True)`` can put it right without touching a rollout.
        fixed: it did.
    """

    code: str
    what: str
    run: str | None = None
    kind: str | None = None
    rollout_id: int | None = None
    attempt: int | None = None
    samples: tuple[int, ...] = ()
    fixable: bool = False
    fixed: bool = False


@dataclass(frozen=True)
class VerifyReport:
    """What ``verify`` found.

    Attributes:
        problems: everything found, at most 1,000 of each code.
        counts: how much was looked at, by name: ``"rollouts"``, ``"samples"``, ``"arrays"``, ``"blobs"`` ...;
            ``"rollouts_without_digest"`` were recorded before schema 0006, which is no problem.
    """

    problems: tuple[Problem, ...]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True when nothing is wrong, or all of it was fixed."""
        return all(problem.fixed for problem in self.problems)


@dataclass(frozen=True)
class BackupReport:
    """A backup that was made.

    Attributes:
        path: the backup, a store like any other.
        size_bytes: of the database file.
        n_files: side files in the directory beside it.
        file_bytes: bytes of these.
        missing_files: names of side files that the store lacks, and so does the backup.
    """

    path: str
    size_bytes: int
    n_files: int = 0
    file_bytes: int = 0
    missing_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class CopyReport:
    """What ``copy_store`` did.

    Attributes:
        url: the target, without its password.
        n_runs: runs that the target holds now.
        n_copied: rollouts copied, every attempt and journalled group counted.
        n_present: rollouts that an earlier copy had brought.
        n_deleted: rollouts deleted from the target, since the source has them no more.
        n_samples: samples in the rollouts copied.
        n_bytes: stored bytes of these.
        n_verified: rollouts whose content was compared with the source's.
    """

    url: str
    n_runs: int
    n_copied: int
    n_present: int
    n_deleted: int
    n_samples: int
    n_bytes: int
    n_verified: int


@dataclass(frozen=True)
class PruneReport:
    """What ``prune`` did.

    Attributes:
        freed_bytes: stored bytes that are gone. An SQLite file keeps its size, and uses them again, until ``vacuum``.
        n_pruned: attempts whose arrays were deleted.
        n_deleted: attempts that were deleted entirely.
        n_pinned: attempts that stay whole only because they are pinned.
        n_needed: attempts that stay whole only because resuming needs them.
    """

    freed_bytes: int
    n_pruned: int
    n_deleted: int
    n_pinned: int
    n_needed: int


@dataclass(frozen=True)
class PinInfo:
    """A rollout that pruning leaves alone.

    Attributes:
        kind: ``"train"`` or ``"eval"``.
        rollout_id: which rollout, with every attempt.
        note: why, if that was said.
        pinned_at: when, UTC.
    """

    kind: str
    rollout_id: int
    note: str | None
    pinned_at: datetime


@dataclass(frozen=True)
class StoreStatus:
    """What can be said of a store without writing to it, whatever its state.

    Attributes:
        url: where it is, without the password.
        state: ``"current"``, ``"outdated"`` (an upgrade will do), ``"newer"``, ``"foreign"``, ``"damaged"``,
            ``"missing"`` or ``"unreachable"``.
        detail: for people; empty for a current store.
        revision: the schema revision that it has; None if that is not known.
        code_revision: the newest schema revision that this version of slime_store knows.
        size_bytes: of the database.
        wal_bytes: of SQLite's write-ahead log; None for PostgreSQL.
        side_files: number of files in the directory beside it.
        side_file_bytes: bytes of these.
        journal_mode: SQLite's, e.g. ``"wal"``; None for PostgreSQL.
        file_system: type of the file system, e.g. ``"ext4"``; None for PostgreSQL.
        n_runs: runs; None where they cannot be counted, like the next two.
        n_rollouts: recorded rollouts, every attempt counted.
        n_samples: samples in these.
    """

    url: str
    state: str
    detail: str
    revision: str | None
    code_revision: str
    size_bytes: int | None = None
    wal_bytes: int | None = None
    side_files: int | None = None
    side_file_bytes: int | None = None
    journal_mode: str | None = None
    file_system: str | None = None
    n_runs: int | None = None
    n_rollouts: int | None = None
    n_samples: int | None = None


@dataclass(frozen=True)
class UpgradeReport:
    """What ``upgrade_store`` did.

    Attributes:
        url: the store, without its password.
        before: its schema revision before.
        after: its schema revision now.
        backup: the backup that was made first; None if none was.
        n_rows: rows that were there before and after, in all tables together.
    """

    url: str
    before: str
    after: str
    backup: str | None
    n_rows: int
