"""Which recorded rollouts belong together: a run whose training went back more than once has several histories."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, or_, select
from sqlalchemy.orm import aliased

from slime_store.models import AdoptionRow, CheckpointRow, ImportRow, RolloutRow, RolloutStateRow, SessionRow
from slime_store.repositories.rollouts import is_newest_attempt


def _is_imported(rollout_pk: Any) -> ColumnElement[bool]:
    return select(ImportRow.rollout_pk).where(ImportRow.rollout_pk == rollout_pk).exists()


def is_dump(rollout_pk: Any) -> ColumnElement[bool]:
    """Condition: a file that says nothing of the data source, imported to be looked at and not to be resumed from."""
    of_state = select(RolloutStateRow.rollout_pk).where(RolloutStateRow.rollout_pk == rollout_pk)
    with_state = of_state.correlate_except(RolloutStateRow).exists()  # the query around it may have the table, too
    return and_(_is_imported(rollout_pk), ~with_state)


def _is_brought() -> ColumnElement[bool]:
    """Condition: a session that came with an import of this rollout."""
    return and_(_has_done_nothing(), _is_imported(RolloutRow.id))


def _has_done_nothing() -> ColumnElement[bool]:
    """Condition: a session of which nothing is known that it did itself."""
    own = aliased(RolloutRow)
    recorded = select(own.id).where(own.session_pk == SessionRow.id, ~_is_imported(own.id)).exists()
    return and_(SessionRow.checkpoint_rollout_id.is_(None), ~recorded)


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
    _is_brought().label("is_brought"),
    is_newest_attempt(lambda later: ~is_dump(later.id)).label("is_newest"),
)
"""What is asked of a rollout, joined with its session, to know which others it followed."""


class _Coming(NamedTuple):
    """What is asked of a rollout that is to be imported, as of ``MADE``, to know which others it is older than."""

    session_pk: int
    session: int
    began: datetime
    is_brought: bool
    finished_at: datetime | None
    is_imported: bool = True
    pk: int = 0  # it has none yet


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
        self._complete = (
            RolloutRow.run_pk == run_pk,
            RolloutRow.kind == "train",
            RolloutRow.status == "complete",
            ~is_dump(RolloutRow.id),
        )

    def at(self, rollout_id: int) -> Row[Any] | None:
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

    def checkpointed(self, rollout_id: int, up_to: int | None = None) -> Row[Any] | None:
        """Return the attempt of a rollout after which its checkpoint was saved last, or None (columns: ``MADE``).

        Args:
            rollout_id: which rollout.
            up_to: the number of a session; what later ones saved does not count.
        """
        saver = aliased(SessionRow)
        adopted = (
            select(AdoptionRow.rollout_pk)
            .where(AdoptionRow.session_pk == saver.id, AdoptionRow.rollout_pk == RolloutRow.id)
            .exists()
        )
        is_savers = or_(RolloutRow.session_pk == saver.id, adopted)
        query = (
            select(*MADE)
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .join(CheckpointRow, CheckpointRow.rollout_id == RolloutRow.rollout_id)
            .join(saver, and_(saver.id == CheckpointRow.session_pk, saver.run_pk == RolloutRow.run_pk))
            .where(
                *self._complete,
                RolloutRow.rollout_id == rollout_id,
                or_(SessionRow.ordinal <= saver.ordinal, is_savers),
                *(() if up_to is None else (saver.ordinal <= up_to,)),
            )
            .order_by(
                saver.ordinal.desc(),
                is_savers.desc(),
                (RolloutRow.finished_at <= CheckpointRow.saved_at).desc(),  # not made anew since
                RolloutRow.attempt.desc(),
            )
        )
        return self._first(query)

    def is_made_anew(self, rollout_id: int, session_pk: int, finished_at: datetime | None) -> bool:
        """Return whether a rollout that is to be imported, recorded by a session at a time, has been made anew since.

        The run must be locked, if that is to stay so.
        """
        query = select(SessionRow.id, SessionRow.ordinal, SessionRow.started_at, _has_done_nothing())
        coming = _Coming(*self._connection.execute(query.where(SessionRow.id == session_pk)).one(), finished_at)
        return any(_is_older(coming, each) for each in self._recorded(rollout_id))

    def why_not_after(self, row: Row[Any], last: Row[Any]) -> str | None:
        """Say why a rollout did not follow another one, the last before it; None if it did."""
        what = f"rollout {row.rollout_id} is from session {row.session}"
        if _is_older(row, last):
            return f"{what}, before rollout {last.rollout_id} was made anew"
        if last.rollout_id != row.rollout_id - 1 or self._may_follow(row, last):
            return None
        return f"{what}, which did not go on from attempt {last.attempt} of rollout {last.rollout_id}"

    def _may_follow(self, row: Row[Any], last: Row[Any]) -> bool:
        if row.start == last.rollout_id:
            went_on_from = self.checkpointed(row.start, row.session)
            return went_on_from is None or went_on_from.pk == last.pk
        if row.session_pk == last.session_pk:
            return last.is_newest or not any(
                _is_older(last, each) and _is_older(each, row)
                for each in self._recorded(last.rollout_id, RolloutRow.session_pk == last.session_pk)
            )
        # else it had another one, which is not in the store any more, or never was
        return row.start is None or self._was_handed(row.session_pk, last.pk)

    def _recorded(self, rollout_id: int, *where: ColumnElement[bool]) -> list[Row[Any]]:
        """Return all that was recorded of a rollout (columns: ``MADE``)."""
        query = select(*MADE).join(SessionRow, SessionRow.id == RolloutRow.session_pk)
        query = query.where(*self._complete, RolloutRow.rollout_id == rollout_id, *where)
        rows: list[Row[Any]] = list(self._connection.execute(query))
        return rows

    def _was_handed(self, session_pk: int, rollout_pk: int) -> bool:
        same = AdoptionRow.session_pk == session_pk, AdoptionRow.rollout_pk == rollout_pk
        return self._connection.execute(select(AdoptionRow.rollout_pk).where(*same)).first() is not None

    def _first(self, query: Any) -> Row[Any] | None:
        rows: list[Row[Any]] = list(self._connection.execute(query.limit(1)))
        return rows[0] if rows else None


def _is_older(one: Row[Any] | _Coming, other: Row[Any]) -> bool:
    """Return whether a rollout was recorded before another one, which may have made anew what it followed.

    Sessions are numbered as they begin, whatever the clock; those that an import brings along have later numbers than
    they should: of them only the time is known. So it is with the keys of what one session has recorded.
    """
    if one.session_pk == other.session_pk:
        if one.is_imported or other.is_imported:
            return None not in (one.finished_at, other.finished_at) and bool(one.finished_at < other.finished_at)
        return bool(one.pk < other.pk)
    if one.is_brought or other.is_brought:
        return bool(one.began < other.began)
    return bool(one.session < other.session)
