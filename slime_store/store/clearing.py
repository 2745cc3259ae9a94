"""Which journalled groups go when a rollout is recorded."""

from __future__ import annotations

import sqlalchemy as sa

from slime_store.repositories.resume import ResumeRepository
from slime_store.store.requests import RecordRequest
from slime_store.store.sessions import Sessions


def superseded_by(connection: sa.Connection, sessions: Sessions, request: RecordRequest, session_pk: int) -> list[int]:
    """Keys of the journalled groups that a rollout makes needless; sessions under way keep theirs."""
    clearing = request.clear_journal
    assert clearing is not None
    repository = ResumeRepository(connection, request.run_pk)
    rows = [row for row in repository.journal() if row.session_pk <= session_pk]
    under_way, newest_before = set(), sessions.newest_before(request.run_pk, session_pk)
    if any(row.session_pk != session_pk for row in rows):
        under_way = repository.recording_since(newest_before) - {session_pk}
    return [
        row.pk
        for row in rows
        if (row.pk <= newest_before and row.group_index in clearing.served)
        or (
            row.session_pk not in under_way
            and (
                (row.rollout_id <= request.rollout_id and (clearing.whole or row.group_index in clearing.groups))
                or (row.session_pk != session_pk and row.group_index not in clearing.keep)
            )
        )
    ]


def journalled_of(connection: sa.Connection, request: RecordRequest) -> list[int]:
    """Return keys of the journalled groups that an imported rollout holds."""
    rows = ResumeRepository(connection, request.run_pk).journal()
    return [
        row.pk
        for row in rows
        if (row.session_pk, row.group_index) in request.holds and row.rollout_id <= request.rollout_id
    ]
