"""Weight versions of a session."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, func, insert, select

from slime_store.database import chunked
from slime_store.models import SessionRow, WeightVersionRow
from slime_store.repositories.digests import update_row, with_digest

VersionFacts: TypeAlias = "tuple[int, str, int, datetime, str, str]"
"""(session ordinal, label, ordinal, first seen, params document, notes document)"""

NewVersion: TypeAlias = "tuple[int, str, datetime, str, str]"
"""(session key, label, first seen, params document, notes document)"""


class WeightVersionRepository:
    """Reads and writes weight versions. The run must be locked while writing."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ensure(self, run_pk: int, session_pk: int, labels: Sequence[str], now: datetime) -> dict[str, int]:
        """Return the key of each label of this session, adding new ones in the order given.

        A new label's ordinal is one more than the run's highest: labels repeat in each session, ordinals do not.
        """
        wanted = list(dict.fromkeys(labels))
        keys = self._keys(session_pk, wanted)
        new = [label for label in wanted if label not in keys]
        if new:
            self._add(run_pk, [(session_pk, label, now, "null", "null") for label in new])
            keys |= self._keys(session_pk, new)
        return keys

    def take_over(self, run_pk: int, versions: Sequence[NewVersion]) -> None:
        """Add versions that another store has, in the order given; of known ones, what is not known here."""
        wanted: dict[tuple[int, str], NewVersion] = {}
        for session_pk, label, at, params, notes in versions:
            _, _, first, *said = wanted.get((session_pk, label), (0, "", at, "null", "null"))
            wanted[session_pk, label] = session_pk, label, first, _known(said[0], params), _known(said[1], notes)
        for session_pk in {session_pk for session_pk, _ in wanted}:
            query = select(
                WeightVersionRow.label, WeightVersionRow.id, WeightVersionRow.params, WeightVersionRow.notes
            ).where(WeightVersionRow.session_pk == session_pk)
            for label, pk, *ours in self._connection.execute(query).all():
                if (session_pk, label) in wanted:
                    theirs = wanted.pop((session_pk, label))[3:]
                    new = [a if b == "null" != a else None for a, b in zip(theirs, ours, strict=True)]
                    self.describe(pk, params=new[0], notes=new[1])
        self._add(run_pk, list(wanted.values()))

    def _add(self, run_pk: int, versions: Sequence[NewVersion]) -> None:
        if not versions:
            return
        last = select(func.max(WeightVersionRow.ordinal)).where(WeightVersionRow.run_pk == run_pk)
        first = (self._connection.execute(last).scalar() or 0) + 1
        rows: list[dict[str, Any]] = [
            {
                "run_pk": run_pk,
                "session_pk": session_pk,
                "label": label,
                "ordinal": ordinal,
                "first_seen_at": first_seen_at,
                "params": params,
                "notes": notes,
            }
            for ordinal, (session_pk, label, first_seen_at, params, notes) in enumerate(versions, first)
        ]
        self._connection.execute(insert(WeightVersionRow), [with_digest(WeightVersionRow, row) for row in rows])

    def _keys(self, session_pk: int, labels: Sequence[str]) -> dict[str, int]:
        keys: dict[str, int] = {}
        for chunk in chunked(labels):
            query = select(WeightVersionRow.label, WeightVersionRow.id).where(
                WeightVersionRow.session_pk == session_pk, WeightVersionRow.label.in_(chunk)
            )
            keys |= {row[0]: row[1] for row in self._connection.execute(query)}
        return keys

    def describe(self, pk: int, *, params: str | None, notes: str | None) -> None:
        """Set what is known of a version; None leaves it as it is."""
        values = {name: value for name, value in (("params", params), ("notes", notes)) if value is not None}
        if values:
            update_row(self._connection, WeightVersionRow, (WeightVersionRow.id == pk,), values)

    def get(self, pk: int) -> VersionFacts:
        """Return one version."""
        return self._facts(WeightVersionRow.id == pk)[0]

    def of_run(self, run_pk: int) -> list[VersionFacts]:
        """Return every version of a run, in order of first use."""
        return self._facts(WeightVersionRow.run_pk == run_pk)

    def with_keys(self, run_pk: int) -> list[NewVersion]:
        """Return every version of a run with the key of its session, in order of first use."""
        query = (
            select(
                WeightVersionRow.session_pk,
                WeightVersionRow.label,
                WeightVersionRow.first_seen_at,
                WeightVersionRow.params,
                WeightVersionRow.notes,
            )
            .where(WeightVersionRow.run_pk == run_pk)
            .order_by(WeightVersionRow.ordinal)
        )
        return [(row[0], row[1], row[2], row[3], row[4]) for row in self._connection.execute(query)]

    def _facts(self, where: ColumnElement[bool]) -> list[VersionFacts]:
        query = (
            select(
                SessionRow.ordinal,
                WeightVersionRow.label,
                WeightVersionRow.ordinal,
                WeightVersionRow.first_seen_at,
                WeightVersionRow.params,
                WeightVersionRow.notes,
            )
            .join(SessionRow, SessionRow.id == WeightVersionRow.session_pk)
            .where(where)
            .order_by(WeightVersionRow.ordinal)
        )
        return [(row[0], row[1], row[2], row[3], row[4], row[5]) for row in self._connection.execute(query)]


def _known(one: str, other: str) -> str:
    """Return the first of two documents that says anything."""
    return other if one == "null" else one
