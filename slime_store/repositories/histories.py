"""Which recorded rollouts belong together: a run whose training went back more than once has several histories."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, or_, select

from slime_store.models import AdoptionRow, CheckpointRow, ImportRow, RolloutRow, RolloutStateRow, SessionRow
from slime_store.repositories.rollouts import is_newest_attempt


def _is_imported(rollout_pk: Any) -> ColumnElement[bool]:
    return select(ImportRow.rollout_pk).where(ImportRow.rollout_pk == rollout_pk).exists()


def is_dump(rollout_pk: Any) -> ColumnElement[bool]:
    """Condition: a file that says nothing of the data source, imported to be looked at and not to be resumed from."""
    of_state = select(RolloutStateRow.rollout_pk).where(RolloutStateRow.rollout_pk == rollout_pk)
    with_state = of_state.correlate_except(RolloutStateRow).exists()  # the query around it may have the table, too
    return and_(_is_imported(rollout_pk), ~with_state)


def is_of(session_pk: Any, rollout: Any) -> ColumnElement[bool]:
    """Condition: a session recorded a rollout, or was handed it."""
    handed = select(AdoptionRow.rollout_pk).where(
        AdoptionRow.session_pk == session_pk, AdoptionRow.rollout_pk == rollout.id
    )
    return or_(rollout.session_pk == session_pk, handed.exists())


MADE: tuple[Any, ...] = (
    RolloutRow.id.label("pk"),
    RolloutRow.rollout_id,
    RolloutRow.attempt,
    RolloutRow.finished_at,
    RolloutRow.session_pk,
    SessionRow.ordinal.label("session"),
    SessionRow.started_at.label("began"),
    SessionRow.checkpoint_rollout_id.label("start"),
    _is_imported(RolloutRow.id).label("is_imported"),
    is_newest_attempt(lambda later: ~is_dump(later.id)).label("is_newest"),
)
"""What is asked of a rollout, joined with its session, to know which others it followed."""


_START = "checkpoint_rollout_id"


def with_start(client: str, start: int | None) -> str:
    """Return what a session that comes with an import says of its client, and which checkpoint it started from."""
    try:
        said = json.loads(client)
        return client if start is None else json.dumps({**said, _START: start})
    except (ValueError, TypeError, RecursionError):  # damaged
        return client


def _said_start(client: str | None) -> int | None:
    try:
        start = json.loads(client or "null")[_START]
        return start if type(start) is int else None
    except (ValueError, TypeError, LookupError, RecursionError):  # damaged, or not said
        return None


class _Coming(NamedTuple):
    """What is asked of a rollout that is to be imported, as of ``MADE``, to know which others it is older than."""

    session_pk: int
    session: int
    began: datetime
    finished_at: datetime | None
    is_imported: bool = True
    pk: int = 0  # it has none yet


class Lost(NamedTuple):
    """A rollout that a checkpoint was saved after, and that is not in the store: spooled, or never recorded."""

    rollout_id: int
    session: int
    """Number of the session that saved the checkpoint."""


class Histories:
    """Tells which recorded train rollout followed which; one run.

    A session notes the checkpoint that it starts from and the rollouts that it is handed. So rollout n of a session
    followed the n-1 that it recorded or was handed, or the one that the checkpoint was saved after. Of sessions that
    noted no start, as with the Python interface alone, only the order is known.

    Args:
        connection: inside a transaction.
        run_pk: the run's key.
    """

    def __init__(self, connection: Connection, run_pk: int) -> None:
        self._connection = connection
        self._run_pk = run_pk
        self._idle: dict[int, bool] = {}
        self._starts: dict[int, int | None] = {}
        self._complete = (
            RolloutRow.run_pk == run_pk,
            RolloutRow.kind == "train",
            RolloutRow.status == "complete",
            ~is_dump(RolloutRow.id),
        )

    def at(self, rollout_id: int) -> Row[Any] | Lost | None:
        """Return the rollout that a session which starts from a checkpoint goes on from, or None (columns: ``MADE``).

        Where no checkpoint is noted, the last rollout up to there.
        """
        query = (
            select(*MADE)
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .where(*self._complete, RolloutRow.rollout_id <= rollout_id)
            .order_by(RolloutRow.rollout_id.desc(), RolloutRow.attempt.desc())
        )
        return self.checkpointed(rollout_id) or self._first(query)

    def checkpointed(self, rollout_id: int, up_to: int | None = None) -> Row[Any] | Lost | None:
        """Return the attempt of a rollout after which its checkpoint was saved last, or None (columns: ``MADE``).

        A session that began before the checkpoint which it saved, and has neither recorded nor was handed the rollout,
        saved it after an attempt that is not here. None where no checkpoint is noted, or nobody knows of its rollout.

        Args:
            rollout_id: which rollout.
            up_to: the number of a session; what later ones saved does not count.
        """
        saver = (
            select(SessionRow.id, SessionRow.ordinal, SessionRow.checkpoint_rollout_id, CheckpointRow.saved_at)
            .join(CheckpointRow, CheckpointRow.session_pk == SessionRow.id)
            .where(SessionRow.run_pk == self._run_pk, CheckpointRow.rollout_id == rollout_id)
            .where(*() if up_to is None else (SessionRow.ordinal <= up_to,))
            .order_by(SessionRow.ordinal.desc())
        )
        saved = self._first(saver)
        if saved is None:
            return None
        is_savers = is_of(saved.id, RolloutRow)
        query = (
            select(*MADE, is_savers.label("is_savers"))
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .where(
                *self._complete,
                RolloutRow.rollout_id == rollout_id,
                or_(SessionRow.ordinal <= saved.ordinal, is_savers),
            )
            .order_by(
                is_savers.desc(),
                (RolloutRow.finished_at <= saved.saved_at).desc(),  # not made anew since
                RolloutRow.attempt.desc(),
            )
        )
        found = self._first(query)
        knows_start = saved.checkpoint_rollout_id is not None and saved.checkpoint_rollout_id < rollout_id
        is_lost = knows_start and (found is None or not found.is_savers)
        return Lost(rollout_id, saved.ordinal) if is_lost else found

    def is_made_anew(self, rollout_id: int, session_pk: int, finished_at: datetime | None) -> bool:
        """Return whether a rollout that is to be imported, recorded by a session at a time, has been made anew since.

        The run must be locked, if that is to stay so.
        """
        recorded = self._recorded(rollout_id)
        if not recorded:
            return False
        query = select(SessionRow.id, SessionRow.ordinal, SessionRow.started_at).where(SessionRow.id == session_pk)
        coming = _Coming(*self._connection.execute(query).one(), finished_at)
        return any(self._is_older(coming, each) for each in recorded)

    def why_not_after(self, row: Row[Any], last: Row[Any] | Lost) -> str | None:
        """Say why a rollout did not follow another one, the last before it; None if it did."""
        what = f"rollout {row.rollout_id} is from session {row.session}"
        if isinstance(last, Lost):
            if self.was_at(last, row.session_pk, row.session, row.start):
                return None
            return (
                f"{what}, and rollout {last.rollout_id} of session {last.session}, saved as a checkpoint, is not here"
            )
        if self._is_older(row, last):
            return f"{what}, before rollout {last.rollout_id} was made anew"
        if last.rollout_id != row.rollout_id - 1 or self._may_follow(row, last):
            return None
        return f"{what}, which did not go on from attempt {last.attempt} of rollout {last.rollout_id}"

    def _may_follow(self, row: Row[Any], last: Row[Any]) -> bool:
        if row.session_pk == last.session_pk and self._start(row.session_pk, row.start) != last.rollout_id:
            return last.is_newest or not any(
                self._is_older(last, each) and self._is_older(each, row)
                for each in self._recorded(last.rollout_id, RolloutRow.session_pk == last.session_pk)
            )
        return self.was_at(last, row.session_pk, row.session, row.start)

    def was_at(self, last: Row[Any] | Lost, session_pk: int, session: int, start: int | None) -> bool:
        """Return whether a session may have gone on from a rollout.

        Args:
            last: the rollout.
            session_pk: the session's key.
            session: its number.
            start: the checkpoint that it notes as the one it started from; None: it notes none.
        """
        start = self._start(session_pk, start)
        if isinstance(last, Lost):
            return session == last.session or (session > last.session and start == last.rollout_id)
        if start is not None and start == last.rollout_id:
            went_on_from = self.checkpointed(start, session)
            return went_on_from is None or (not isinstance(went_on_from, Lost) and went_on_from.pk == last.pk)
        had = self._recorded(last.rollout_id, is_of(session_pk, RolloutRow))
        # what it was handed before it recorded one of its own is nothing that it went on from
        own = [each.pk for each in had if each.session_pk == session_pk]
        if had:
            return last.pk in (own or [each.pk for each in had])
        # one that notes where it started had another one, which is not in the store any more, or never was
        return start is None

    def _start(self, session_pk: int, noted: int | None) -> int | None:
        """Return the checkpoint that a session started from, also of one that came with an import; None: not known."""
        if noted is None and session_pk not in self._starts:
            client = self._connection.execute(select(SessionRow.client).where(SessionRow.id == session_pk)).scalar()
            self._starts[session_pk] = _said_start(client)
        return self._starts[session_pk] if noted is None else noted

    def _recorded(self, rollout_id: int, *where: ColumnElement[bool]) -> list[Row[Any]]:
        """Return all that was recorded of a rollout (columns: ``MADE``)."""
        query = select(*MADE).join(SessionRow, SessionRow.id == RolloutRow.session_pk)
        query = query.where(*self._complete, RolloutRow.rollout_id == rollout_id, *where)
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows

    def _first(self, query: Any) -> Row[Any] | None:
        rows: list[Row[Any]] = list(self._connection.execute(query.limit(1)))
        return rows[0] if rows else None

    def _is_older(self, one: Row[Any] | _Coming, other: Row[Any]) -> bool:
        """Return whether a rollout was recorded before another one, which may have made anew what it followed.

        Sessions are numbered as they begin, whatever the clock; those that an import brings along have later numbers
        than they should: of them only the time is known. So it is with the keys of what one session has recorded.
        """
        if one.session_pk == other.session_pk:
            if one.is_imported or other.is_imported:
                return None not in (one.finished_at, other.finished_at) and bool(one.finished_at < other.finished_at)
            return bool(one.pk < other.pk)
        if self._is_brought(one) or self._is_brought(other):
            return bool(one.began < other.began)
        return bool(one.session < other.session)

    def _is_brought(self, rollout: Row[Any] | _Coming) -> bool:
        """Return whether a rollout's session came with an import of it: nothing is known that it did itself.

        Costs a look at all that the session has, once.
        """
        pk = rollout.session_pk
        if rollout.is_imported and pk not in self._idle:
            recorded = select(RolloutRow.id).where(RolloutRow.session_pk == pk, ~_is_imported(RolloutRow.id)).exists()
            query = select(and_(SessionRow.checkpoint_rollout_id.is_(None), ~recorded)).where(SessionRow.id == pk)
            self._idle[pk] = bool(self._connection.execute(query).scalar())
        return rollout.is_imported and self._idle[pk]
