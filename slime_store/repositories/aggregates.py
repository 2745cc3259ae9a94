"""Aggregates of rollouts, written with each: answers by weight version then read no sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table

from slime_store.database import insert_rows
from slime_store.mapping.aggregates import SUMMARY_COLUMNS, summaries
from slime_store.mapping.encoded import EncodedRollout
from slime_store.models import RolloutMetricRow, RolloutWeightVersionRow
from slime_store.repositories.digests import RolloutDigests
from slime_store.repositories.resume import JOURNAL


class AggregateRepository:
    """Writes ``rollout_weight_versions`` and ``rollout_metrics``; ``VersionQuestions`` reads them.

    Args:
        connection: inside a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(
        self,
        rollout_pk: int,
        rollout: EncodedRollout,
        versions: Sequence[Mapping[str, int]],
        digests: RolloutDigests,
    ) -> None:
        """Add what a rollout comes to; a journalled group counts nowhere. Costs at most two statements.

        Args:
            rollout_pk: the rollout's key.
            rollout: its samples and metrics.
            versions: for each sample, keys of weight versions by label.
            digests: takes the digests of the rows.
        """
        if rollout.kind == JOURNAL:
            return
        rows = []
        for attribution, position, key, summary in summaries(rollout.samples, versions):
            rows.append((rollout_pk, attribution, position, key, *[getattr(summary, name) for name in SUMMARY_COLUMNS]))
        names = ("rollout_pk", "attribution", "position", "weight_version_pk", *SUMMARY_COLUMNS)
        self._insert(RolloutWeightVersionRow, names, rows, digests)
        entries = [(rollout_pk, *key, value) for key, value in rollout.metric_values.items()]
        self._insert(RolloutMetricRow, ("rollout_pk", "depth", "key", "value"), entries, digests)

    def _insert(self, model: Any, columns: Sequence[str], rows: list[tuple[Any, ...]], digests: RolloutDigests) -> None:
        digests.take(model, columns, rows)
        table: Table = model.__table__
        insert_rows(self._connection, table, columns, rows)
