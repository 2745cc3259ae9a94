"""What is asked for when a rollout is recorded, beside the rollout itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from slime_store.repositories.imports import ImportOrigin, SessionOrigin

OnConflict = Literal["new_attempt", "replace", "error"]


class MadeAnewError(Exception):
    """A rollout that is imported with the data source's state has been made anew since: it is to come without."""


@dataclass(frozen=True)
class JournalClearing:
    """What a rollout has of the journal, and which journalled groups it makes needless.

    Needless are also those of earlier sessions that nobody keeps. Those of later sessions, and of earlier ones that
    have recorded or journalled anything since this one began, are left alone: another process writes to the run too.

    Attributes:
        served: group indexes that it has from earlier sessions' journal. Their weight versions stay those sessions'.
        whole: those of its own rollout id and of earlier ones.
        groups: those with these group indexes.
        keep: group indexes that are still wanted of earlier sessions' groups.
        sessions: the sessions that generated the served groups, by group index; for a store whose journal does not say,
            such as the spool.
    """

    served: frozenset[int] = frozenset()
    whole: bool = False
    groups: frozenset[int] = frozenset()
    keep: frozenset[int] = frozenset()
    sessions: Mapping[int, SessionOrigin] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordRequest:
    """What is to be recorded, beside the rollout itself; ``clear_journal`` is applied in the same transaction.

    The last three are an imported rollout's: when it was recorded first, the sessions that generated samples which its
    own did not, by the samples' positions, and its groups as (session, group index): journalled ones leave the journal.
    """

    run: str
    run_pk: int
    rollout_id: int
    on_conflict: OnConflict
    started_at: datetime
    weight_version: str | None = None
    origin: ImportOrigin | None = None
    clear_journal: JournalClearing | None = None
    session_pk: int | None = None  # of the session that it belongs to; None: this process's
    finished_at: datetime | None = None
    generated_in: Mapping[int, int] = field(default_factory=dict)
    holds: frozenset[tuple[int, int]] = frozenset()
