"""Aggregates of rollouts: written with each, merged into answers that read no sample."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, func, select

from slime_store.database import chunked, insert_rows
from slime_store.mapping.aggregates import MAX_SUMMED, Summary, summaries
from slime_store.mapping.encoded import EncodedRollout
from slime_store.models import (
    RolloutMetricRow,
    RolloutRow,
    RolloutWeightVersionRow,
    RunRow,
    SessionRow,
    WeightVersionRow,
)
from slime_store.repositories.resume import JOURNAL
from slime_store.repositories.rollouts import is_newest_attempt

_SUMS = tuple(field.name for field in fields(Summary))


@dataclass(frozen=True)
class WeightVersionSummary:
    """Rewards and lengths of the samples that one weight version generated in rollouts of one kind.

    Attributes:
        weight_version, ordinal: None for the samples that no version is known of.
        n_rewards: rewards that are numbers; NaN, None, dicts and texts are not.
        reward_mean: None without numbers, as everything of the rewards. With infinite rewards of one sign it is
            infinite, with those of both signs None, and with finite ones beyond 1e100 None: their squares overflow.
        reward_std: of the sample (divisor n - 1); None for fewer than two numbers, and with rewards beyond 1e100.
        truncated_share: of all samples.
        response_length_mean: tokens, of the samples whose length is known.
    """

    run: str
    session: int
    kind: str
    weight_version: str | None
    ordinal: int | None
    n_samples: int
    n_rewards: int
    n_none: int
    n_nan: int
    reward_mean: float | None
    reward_std: float | None
    reward_min: float | None
    reward_max: float | None
    truncated_share: float
    response_length_mean: float | None
    first_rollout_id: int
    last_rollout_id: int


class AggregateRepository:
    """Reads and writes ``rollout_weight_versions`` and ``rollout_metrics``.

    Args:
        connection: inside a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, rollout_pk: int, rollout: EncodedRollout, versions: Sequence[Mapping[str, int]]) -> None:
        """Add what a rollout comes to; a journalled group counts nowhere. Costs at most two statements.

        Args:
            rollout_pk: the rollout's key.
            rollout: its samples and metrics.
            versions: for each sample, keys of weight versions by label.
        """
        if rollout.kind == JOURNAL:
            return
        rows = []
        for attribution, position, key, summary in summaries(rollout.samples, versions):
            rows.append((rollout_pk, attribution, position, key, *[getattr(summary, name) for name in _SUMS]))
        names = ("rollout_pk", "attribution", "position", "weight_version_pk", *_SUMS)
        self._insert(RolloutWeightVersionRow, names, rows)
        entries = [(rollout_pk, *key, value) for key, value in rollout.metric_values.items()]
        self._insert(RolloutMetricRow, ("rollout_pk", "depth", "key", "value"), entries)

    def sums(self, rollout_pks: Sequence[int], attribution: str = "last") -> list[Row[Any]]:
        """Return what each rollout comes to by weight version; those without samples have no row.

        Columns: rollout_pk, weight_version_pk (None: the samples name none), then the fields of ``Summary``, in order.
        Costs one query for each 500 rollouts.

        Args:
            rollout_pks: keys of rollouts.
            attribution: as for ``by_weight_version``.
        """
        found: list[Row[Any]] = []
        for chunk in chunked(rollout_pks):
            query = select(
                RolloutWeightVersionRow.rollout_pk,
                RolloutWeightVersionRow.weight_version_pk,
                *[getattr(RolloutWeightVersionRow, name) for name in _SUMS],
            ).where(RolloutWeightVersionRow.rollout_pk.in_(chunk), RolloutWeightVersionRow.attribution == attribution)
            found += self._connection.execute(
                query.order_by(RolloutWeightVersionRow.rollout_pk, RolloutWeightVersionRow.position)
            )
        return found

    def by_weight_version(
        self,
        run_pks: Sequence[int],
        *,
        kinds: Collection[str] | None = None,
        rollout_ids: Collection[int] | None = None,
        attempt: int | None = None,
        attribution: str = "last",
    ) -> list[WeightVersionSummary]:
        """Return a summary for each run, kind, session and weight version, in order of first use.

        Reads one row for each rollout and version, and no sample. Samples of an eval that name no version count for
        the one that the eval was told it measures.

        Args:
            run_pks: keys of the runs.
            kinds: "train", "eval"; None: both.
            rollout_ids: only these rollouts; None: all.
            attempt: only this attempt of each; None: the newest complete one.
            attribution: which version a sample that several ones generated counts for: "last", "first", or "each" of
                them, once.
        """
        conditions = [RolloutRow.status == "complete", RolloutWeightVersionRow.attribution == attribution]
        conditions.append(is_newest_attempt() if attempt is None else RolloutRow.attempt == attempt)
        if kinds is not None:
            conditions.append(RolloutRow.kind.in_(kinds))
        if rollout_ids is not None:
            conditions.append(RolloutRow.rollout_id.between(min(rollout_ids, default=1), max(rollout_ids, default=0)))
        groups: dict[tuple[int, str, int, int | None], list[Row[Any]]] = {}
        for chunk in chunked(run_pks):
            for row in self._parts([*conditions, RolloutRow.run_pk.in_(chunk)]):
                if rollout_ids is None or row.rollout_id in rollout_ids:
                    groups.setdefault((row.run_pk, row.kind, row.session, row.weight_version_pk), []).append(row)
        return [_merged(parts) for parts in groups.values()]

    def _parts(self, conditions: Sequence[ColumnElement[bool]]) -> Sequence[Row[Any]]:
        version_pk = func.coalesce(RolloutWeightVersionRow.weight_version_pk, RolloutRow.weight_version_pk)
        query = (
            select(
                RolloutRow.run_pk,
                RunRow.name.label("run"),
                RolloutRow.kind,
                SessionRow.ordinal.label("session"),
                RolloutRow.rollout_id,
                WeightVersionRow.label.label("weight_version"),
                WeightVersionRow.ordinal,
                version_pk.label("weight_version_pk"),
                *[getattr(RolloutWeightVersionRow, name) for name in _SUMS],
            )
            .select_from(RolloutRow)
            .join(RunRow, RunRow.id == RolloutRow.run_pk)
            .join(SessionRow, SessionRow.id == RolloutRow.session_pk)
            .join(RolloutWeightVersionRow, RolloutWeightVersionRow.rollout_pk == RolloutRow.id)
            .outerjoin(WeightVersionRow, WeightVersionRow.id == version_pk)
            .where(*conditions)
        )
        none_last = WeightVersionRow.ordinal.is_(None)
        order = (RolloutRow.run_pk, RolloutRow.kind.desc(), SessionRow.ordinal, none_last, WeightVersionRow.ordinal)
        return self._connection.execute(query.order_by(*order)).all()

    def _insert(self, model: Any, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
        table: Table = model.__table__
        insert_rows(self._connection, table, columns, rows)


def _merged(parts: Sequence[Row[Any]]) -> WeightVersionSummary:
    first = parts[0]
    n_samples = sum(part.n_samples for part in parts)
    n_lengths = sum(part.n_response_lengths for part in parts)
    lengths = math.fsum([part.response_length_sum for part in parts])
    rewarded = [part for part in parts if part.n_rewards]
    low = min((part.reward_min for part in rewarded), default=None)
    high = max((part.reward_max for part in rewarded), default=None)
    mean, std = _moments(rewarded, low, high)
    return WeightVersionSummary(
        run=first.run,
        session=first.session,
        kind=first.kind,
        weight_version=first.weight_version,
        ordinal=first.ordinal,
        n_samples=n_samples,
        n_rewards=sum(part.n_rewards for part in parts),
        n_none=sum(part.n_none for part in parts),
        n_nan=sum(part.n_nan for part in parts),
        reward_mean=mean,
        reward_std=std,
        reward_min=low,
        reward_max=high,
        truncated_share=sum(part.n_truncated for part in parts) / n_samples,
        response_length_mean=lengths / n_lengths if n_lengths else None,
        first_rollout_id=min(part.rollout_id for part in parts),
        last_rollout_id=max(part.rollout_id for part in parts),
    )


def _moments(parts: Sequence[Row[Any]], low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of parts that have rewards, as one pass over all their samples gives them."""
    if low is None or high is None:
        return None, None
    if low < -MAX_SUMMED or high > MAX_SUMMED:
        infinite = {bound for bound in (low, high) if math.isinf(bound)}
        return (infinite.pop() if len(infinite) == 1 else None), None
    n = sum(part.n_rewards for part in parts)
    mean = math.fsum([part.reward_sum for part in parts]) / n
    if n < 2:
        return mean, None
    apart = [part.n_rewards * (part.reward_sum / part.n_rewards - mean) ** 2 for part in parts]
    return mean, math.sqrt(math.fsum([*apart, *(part.reward_m2 for part in parts)]) / (n - 1))
