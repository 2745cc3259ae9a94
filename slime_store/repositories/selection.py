"""Sample filters as SQL: which rollouts, then which positions in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, literal_column, or_, select

from slime_store.database import chunked
from slime_store.mapping.rewards import entry_key
from slime_store.mapping.text import indexable, searchable
from slime_store.models import (
    EvalDatasetRow,
    PromptRow,
    RolloutRow,
    SampleRewardRow,
    SampleRow,
    SampleTextRow,
    SampleWeightVersionRow,
    WeightVersionRow,
)
from slime_store.repositories.rollouts import is_newest_attempt
from slime_store.types import SampleFilter


class SelectionRepository:
    """Finds the samples of one run that a filter names.

    Args:
        connection: inside a transaction.
        run_pk: the run's key.
        where: the filter. Its ``metadata`` condition is for the caller: it needs decoded documents.
        prompt_digest: of ``where.prompt``, when that is given.
    """

    def __init__(
        self, connection: Connection, run_pk: int, where: SampleFilter, prompt_digest: bytes | None = None
    ) -> None:
        self._connection = connection
        self._run_pk = run_pk
        self._where = where
        self._digest = prompt_digest

    def rollouts(self) -> list[Row[Any]]:
        """Return (id, n_samples, layouts) of the rollouts that may hold such samples.

        Train rollouts come first, then by rollout id, then by attempt. Without a condition on the attempt, only the
        newest complete attempt of each is looked at.
        """
        where = self._where
        conditions = [RolloutRow.run_pk == self._run_pk, RolloutRow.status == "complete"]
        if where.kind is not None:
            conditions.append(RolloutRow.kind == where.kind)
        elif where.dataset is not None:
            conditions.append(RolloutRow.kind == "eval")
        if where.rollout_ids is not None:
            conditions.append(_in(RolloutRow.rollout_id, where.rollout_ids))
        conditions.append(is_newest_attempt() if where.attempt is None else RolloutRow.attempt == where.attempt)
        conditions += self._pruning()
        query = select(RolloutRow.id, RolloutRow.n_samples, RolloutRow.n_bytes, RolloutRow.layouts).where(*conditions)
        order = (RolloutRow.kind.desc(), RolloutRow.rollout_id, RolloutRow.attempt)
        rows: list[Row[Any]] = list(self._connection.execute(query.order_by(*order)))
        return rows

    def positions(self, rollout_pks: Sequence[int]) -> dict[int, list[int]]:
        """Return the positions, rising, that meet every condition on samples, by rollout; one query for each 500."""
        found: dict[int, list[int]] = {}
        for chunk in chunked(rollout_pks):
            query = select(SampleRow.rollout_pk, SampleRow.position).where(
                SampleRow.rollout_pk.in_(chunk), *self._conditions()
            )
            for pk, position in self._connection.execute(query.order_by(SampleRow.rollout_pk, SampleRow.position)):
                found.setdefault(pk, []).append(position)
        return found

    def _pruning(self) -> list[ColumnElement[bool]]:
        """Conditions on rollouts by which an index leaves out those that hold no match."""
        where = self._where
        conditions: list[ColumnElement[bool]] = []
        if self._digest is not None:
            prompt = select(PromptRow.id).where(PromptRow.digest == self._digest).scalar_subquery()
            conditions.append(RolloutRow.id.in_(select(SampleRow.rollout_pk).where(SampleRow.prompt_pk == prompt)))
        if where.weight_version is not None:
            versions = select(WeightVersionRow.id).where(
                WeightVersionRow.run_pk == self._run_pk, WeightVersionRow.label == indexable(where.weight_version)
            )
            used = select(SampleWeightVersionRow.rollout_pk).where(
                SampleWeightVersionRow.weight_version_pk.in_(versions)
            )
            conditions.append(RolloutRow.id.in_(used))
        if where.dataset is not None:
            named = select(EvalDatasetRow.rollout_pk).where(EvalDatasetRow.name == indexable(where.dataset))
            conditions.append(RolloutRow.id.in_(named))
        return conditions

    def _conditions(self) -> list[ColumnElement[bool]]:
        where = self._where
        conditions: list[ColumnElement[bool]] = []
        if where.status is not None:
            conditions.append(SampleRow.status.in_([searchable(word) for word in where.status]))
        if where.group_index is not None:
            conditions.append(SampleRow.group_index == where.group_index)
        if where.removed is not None:
            conditions.append(SampleRow.remove_sample == where.removed)
        if where.dataset is not None:
            dataset = select(EvalDatasetRow.position).where(
                EvalDatasetRow.rollout_pk == SampleRow.rollout_pk, EvalDatasetRow.name == indexable(where.dataset)
            )
            conditions.append(SampleRow.dataset_position.in_(dataset))
        if where.weight_version is not None:
            version = (
                select(SampleWeightVersionRow.position)
                .join(WeightVersionRow, WeightVersionRow.id == SampleWeightVersionRow.weight_version_pk)
                .where(
                    SampleWeightVersionRow.rollout_pk == SampleRow.rollout_pk,
                    SampleWeightVersionRow.position == SampleRow.position,
                    WeightVersionRow.label == indexable(where.weight_version),
                )
            )
            conditions.append(version.exists())
        if where.reward_min is not None or where.reward_max is not None:
            conditions.append(self._reward())
        if where.text is not None:
            conditions.append(self._text(searchable(where.text)))
        if self._digest is not None:
            prompt = select(PromptRow.id).where(PromptRow.digest == self._digest).scalar_subquery()
            conditions.append(SampleRow.prompt_pk == prompt)
        return conditions

    def _reward(self) -> ColumnElement[bool]:
        key = self._where.reward_key
        if key is None:
            return self._bounds(SampleRow.reward)
        path = (key,) if isinstance(key, str) else tuple(key)
        name = entry_key(path)
        entry = select(SampleRewardRow.position).where(
            SampleRewardRow.rollout_pk == SampleRow.rollout_pk,
            SampleRewardRow.position == SampleRow.position,
            SampleRewardRow.depth == len(path),
            SampleRewardRow.key == name,
            self._bounds(SampleRewardRow.value),
        )
        return entry.exists()

    def _bounds(self, column: Any) -> ColumnElement[bool]:
        bounds = [column.is_not(None)]
        if self._where.reward_min is not None:
            bounds.append(column >= self._where.reward_min)
        if self._where.reward_max is not None:
            bounds.append(column <= self._where.reward_max)
        return and_(*bounds)

    def _text(self, needle: str) -> ColumnElement[bool]:
        """Exact, case-sensitive search in the response: LIKE differs between the databases."""
        find = func.instr if self._connection.dialect.name == "sqlite" else func.strpos
        response = select(SampleTextRow.position).where(
            SampleTextRow.rollout_pk == SampleRow.rollout_pk,
            SampleTextRow.position == SampleRow.position,
            find(SampleTextRow.response, needle) > 0,
        )
        return response.exists()


def _in(column: Any, ids: tuple[int, ...] | range) -> ColumnElement[bool]:
    if isinstance(ids, range):
        if not ids:
            return false()
        condition = and_(column >= ids[0], column <= ids[-1])
        return condition if ids.step == 1 else and_(condition, (column - ids.start) % ids.step == 0)
    spans: list[tuple[int, int]] = []
    for number in ids:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    if len(spans) <= 100:
        return or_(false(), *[column.between(*span) for span in spans])
    # more ids than some builds take bind variables: as literals, which are whole numbers and nothing else
    return or_(false(), column.in_([literal_column(str(int(number))) for number in ids]))
