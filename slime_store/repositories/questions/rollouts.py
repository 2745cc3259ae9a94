"""Rollouts by key: their counts, times and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from slime_store.database import chunked
from slime_store.models import RolloutRow, WeightVersionRow


class RolloutQuestions:
    """Asks about rollouts of a run, or of all runs.

    Args:
        connection: inside a transaction.
        run_pk: the run; None: all of them.
    """

    def __init__(self, connection: Connection, run_pk: int | None) -> None:
        self._connection = connection
        self._run_pk = run_pk

    def get(self, pks: Sequence[int], names: Sequence[str]) -> dict[int, Row[Any]]:
        """Return these columns of ``rollouts`` by key, ``weight_version`` being the label that an eval was given."""
        label = select(WeightVersionRow.label).where(WeightVersionRow.id == RolloutRow.weight_version_pk)
        known: dict[str, Any] = {"weight_version": label.scalar_subquery()}
        columns: list[Any] = [known[name] if name in known else getattr(RolloutRow, name) for name in names]
        found: dict[int, Row[Any]] = {}
        for chunk in chunked(pks):
            query = select(RolloutRow.id, *[column.label(name) for name, column in zip(names, columns, strict=True)])
            found |= {row[0]: row for row in self._connection.execute(query.where(RolloutRow.id.in_(chunk)))}
        return found

    def metrics(self) -> dict[int, str]:
        """Return the metrics documents of every complete rollout, of all attempts, by key."""
        query = select(RolloutRow.id, RolloutRow.metrics).where(RolloutRow.status == "complete")
        if self._run_pk is not None:
            query = query.where(RolloutRow.run_pk == self._run_pk)
        return {row[0]: row[1] for row in self._connection.execute(query)}
