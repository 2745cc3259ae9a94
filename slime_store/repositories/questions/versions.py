"""Weight versions, and sums over the samples that each of them generated."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import Connection, Double, and_, case, cast, func, literal, or_, select

from slime_store.database import chunked
from slime_store.mapping.aggregates import MAX_SUMMED, MIN_SUMMED, SUMMARY_COLUMNS, Summary
from slime_store.models import (
    RolloutWeightVersionRow,
    SampleRewardRow,
    SampleRow,
    SampleWeightVersionRow,
    SessionRow,
    WeightVersionRow,
)
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.questions.conditions import Condition, concerns_samples, entry_of, path_of
from slime_store.repositories.selection import SelectionRepository
from slime_store.types import SampleFilter

Attribute: TypeAlias = Literal["last", "first", "each"]

_CHUNK_ROLLOUTS = 200


class Version(NamedTuple):
    """A weight version of a session."""

    pk: int
    session: int
    label: str
    ordinal: int


@dataclass(frozen=True)
class Sums(Summary):
    """Sums over the samples of one rollout that count for one weight version.

    Attributes:
        weight_version_pk: None: the samples name none.
    """

    rollout_pk: int
    weight_version_pk: int | None


class VersionQuestions:
    """Asks about the weight versions of a run, or of all runs.

    Args:
        connection: inside a transaction.
        blobs: where large payloads are.
        run_pk: the run; None: all of them.
        where: which samples.
        digest: of ``where.prompt``, when that is given.
    """

    def __init__(
        self,
        connection: Connection,
        blobs: BlobRepository,
        run_pk: int | None,
        where: SampleFilter,
        digest: bytes | None = None,
    ) -> None:
        self._connection = connection
        self._blobs = blobs
        self._run_pk = run_pk
        self._where = where
        self._selection = SelectionRepository(connection, run_pk, where, digest)

    def all(self) -> dict[int, Version]:
        """Return every version by its key. Costs one query."""
        query = select(WeightVersionRow.id, SessionRow.ordinal, WeightVersionRow.label, WeightVersionRow.ordinal).join(
            SessionRow, SessionRow.id == WeightVersionRow.session_pk
        )
        if self._run_pk is not None:
            query = query.where(WeightVersionRow.run_pk == self._run_pk)
        return {row[0]: Version(*row) for row in self._connection.execute(query)}

    def links(self, rollout_pks: Sequence[int]) -> list[tuple[int, int, int]]:
        """Return (rollout_pk, position, weight_version_pk) of these rollouts, each version of a sample once."""
        found: list[tuple[int, int, int]] = []
        for chunk in chunked(rollout_pks):
            query = select(
                SampleWeightVersionRow.rollout_pk,
                SampleWeightVersionRow.position,
                SampleWeightVersionRow.weight_version_pk,
            )
            query = query.where(SampleWeightVersionRow.rollout_pk.in_(chunk)).distinct()
            found += [(row[0], row[1], row[2]) for row in self._connection.execute(query)]
        return found

    def sums(self, rollout_pks: Sequence[int], attribute: Attribute) -> list[Sums]:
        """Return the sums of each rollout by weight version; those without samples are left out.

        The filter must have no condition on metadata, which SQL cannot decide. This is the one place that knows where
        sums come from: what was summed when the rollouts were recorded, where the filter takes whole rollouts and
        plain rewards; else the samples, of which it reads narrow columns, once where a rollout has one version.

        Args:
            rollout_pks: of rollouts that the filter takes.
            attribute: which of its versions a sample counts for: its last, its first, or each of them, once.
        """
        assert not self._where.metadata
        if not concerns_samples(self._where) and self._where.reward_key is None:
            return self._recorded(rollout_pks, attribute)
        found: list[Sums] = []
        for chunk in chunked(rollout_pks, _CHUNK_ROLLOUTS):
            conditions = self._selection.conditions(chunk, self._blobs)
            shift = self._typical_reward(chunk[len(chunk) // 2])
            mixed: Sequence[int] = chunk
            if attribute != "each":
                whole = self._of_whole_rollouts(chunk, conditions, attribute, shift)
                found += whole
                done = {sums.rollout_pk for sums in whole}
                mixed = [pk for pk in chunk if pk not in done]
            if mixed:
                found += self._by_version(mixed, conditions, attribute, shift)
        return found

    def _recorded(self, rollout_pks: Sequence[int], attribute: Attribute) -> list[Sums]:
        found: list[Sums] = []
        for chunk in chunked(rollout_pks):
            names = (*SUMMARY_COLUMNS, "rollout_pk", "weight_version_pk")
            query = select(*[getattr(RolloutWeightVersionRow, name) for name in names]).where(
                RolloutWeightVersionRow.rollout_pk.in_(chunk), RolloutWeightVersionRow.attribution == attribute
            )
            order = (RolloutWeightVersionRow.rollout_pk, RolloutWeightVersionRow.position)
            found += [Sums(*row) for row in self._connection.execute(query.order_by(*order))]
        return found

    def _typical_reward(self, rollout_pk: int) -> float:
        """Return the mean reward of a rollout: mostly squares of distances from it are small and rounded little."""
        query = select(func.avg(_summed(self._reward()))).where(SampleRow.rollout_pk == rollout_pk)
        return float(self._connection.execute(query).scalar() or 0.0)

    def _of_whole_rollouts(
        self, pks: Sequence[int], conditions: Sequence[Condition], attribute: Attribute, shift: float
    ) -> list[Sums]:
        """Return the sums of those rollouts whose samples have one version: grouped by the key, without sorting."""
        version = _version(attribute)

        def query(pks: Sequence[int], shift: float) -> Any:
            return (
                select(SampleRow.rollout_pk, func.min(version), *self._aggregates(shift))
                .where(SampleRow.rollout_pk.in_(pks), *conditions)
                .group_by(SampleRow.rollout_pk)
                .having(or_(func.count(version) == 0, _all_equal(version)))
            )

        return self._near_sums(query, pks, shift)

    def _by_version(
        self, pks: Sequence[int], conditions: Sequence[Condition], attribute: Attribute, shift: float
    ) -> list[Sums]:
        def query(pks: Sequence[int], shift: float) -> Any:
            if attribute == "each":
                links = (
                    select(
                        SampleWeightVersionRow.rollout_pk,
                        SampleWeightVersionRow.position,
                        SampleWeightVersionRow.weight_version_pk,
                    )
                    .where(SampleWeightVersionRow.rollout_pk.in_(pks))
                    .distinct()
                    .subquery()
                )
                version: Any = links.c.weight_version_pk
                matches = and_(links.c.rollout_pk == SampleRow.rollout_pk, links.c.position == SampleRow.position)
                sums = select(SampleRow.rollout_pk, version, *self._aggregates(shift)).outerjoin(links, matches)
            else:
                version = _version(attribute)
                sums = select(SampleRow.rollout_pk, version, *self._aggregates(shift))
            return sums.where(SampleRow.rollout_pk.in_(pks), *conditions).group_by(SampleRow.rollout_pk, version)

        return self._near_sums(query, pks, shift)

    def _near_sums(self, query: Callable[[Sequence[int], float], Any], pks: Sequence[int], shift: float) -> list[Sums]:
        """Return sums of distances from a shift; those that it is too far from, from one of their own, asked again."""
        found: dict[tuple[int, int | None], Sums] = {}
        while pks:
            far: dict[tuple[int, int | None], float] = {}
            for row in self._connection.execute(query(pks, shift)):
                if (row[0], row[1]) not in found:
                    sums, is_near = _sums(row, shift)
                    if is_near:
                        found[row[0], row[1]] = sums
                    else:
                        far[row[0], row[1]] = row.low
            pks = sorted({pk for pk, _ in far})
            shift = statistics.median_low(far.values()) if far else shift
        return list(found.values())

    def _reward(self) -> Any:
        key = self._where.reward_key
        return SampleRow.reward if key is None else entry_of(path_of(key)).scalar_subquery()

    def _aggregates(self, shift: float) -> list[Any]:
        reward = self._reward()
        near = _summed(reward) - literal(shift)
        if self._where.reward_key is None:
            is_none, is_nan = SampleRow.reward_type == "none", SampleRow.reward_type == "nan"
        else:
            entry = entry_of(path_of(self._where.reward_key))
            is_none, is_nan = ~entry.exists(), entry.where(SampleRewardRow.value.is_(None)).exists()
        return [
            func.count(),
            func.count(reward),
            _number_of(is_none),
            _number_of(is_nan),
            func.sum(near),
            func.sum(near * near),
            func.min(reward).label("low"),
            func.max(reward),
            _number_of(SampleRow.status == "truncated"),
            func.count(SampleRow.response_length),
            func.sum(cast(SampleRow.response_length, Double)),
        ]


_NEAR = 1e5
"""How many times larger squares of distances from a shift may be than they must: five digits of sixteen are lost."""


def _version(attribute: Attribute) -> Any:
    return SampleRow.first_weight_version_pk if attribute == "first" else SampleRow.last_weight_version_pk


def _all_equal(version: Any) -> Condition:
    return and_(func.min(version) == func.max(version), func.count(version) == func.count())


def _number_of(condition: Any) -> Any:
    return func.sum(case((condition, 1), else_=0))


def _summed(reward: Any) -> Any:
    near_zero = and_(reward > -MIN_SUMMED, reward < MIN_SUMMED)
    return case((near_zero, 0.0), (reward.between(-MAX_SUMMED, MAX_SUMMED), reward))


def _sums(row: Any, shift: float) -> tuple[Sums, bool]:
    """Return the sums of a row of `_aggregates`, and whether the shift was near enough for all but the last digits."""
    pk, version, n, n_rewards, n_none, n_nan, near_sum, near_squares, low, high, n_truncated, n_lengths, lengths = row
    total: float | None = 0.0
    m2: float | None = 0.0
    is_near = True
    if n_rewards:
        if low < -MAX_SUMMED or high > MAX_SUMMED:
            total = m2 = None
        elif low == high:
            total = low * n_rewards
        else:
            total = near_sum + shift * n_rewards
            m2 = max(0.0, near_squares - near_sum * near_sum / n_rewards)
            # the squares of distances from the mean are at least half of this one, those from any reward n of it
            is_near = near_squares <= max(_NEAR, 2 * n_rewards) * (high - low) ** 2
    counts = (int(n_none), int(n_nan))
    sums = (n, n_rewards, *counts, total, m2, low, high, int(n_truncated), n_lengths, lengths or 0.0)
    return Sums(*sums, pk, version), is_near
