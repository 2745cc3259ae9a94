"""Sample filters as SQL: which rollouts, then which positions in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from slime_store.database import chunked
from slime_store.models import EvalDatasetRow, RolloutRow, RunRow, SampleRow, SessionRow
from slime_store.repositories.blobs import BlobRepository
from slime_store.repositories.questions.conditions import Condition, concerns_samples, on_rollouts, on_samples
from slime_store.repositories.questions.prompts import PromptTextRepository
from slime_store.repositories.rollouts import is_newest_attempt
from slime_store.types import SampleFilter

LAYOUTS, N_BYTES = RolloutRow.layouts, RolloutRow.n_bytes
"""A column that ``SelectionRepository.rollouts`` can be asked for."""

PLACE: tuple[Any, ...] = (
    select(RunRow.name).where(RunRow.id == RolloutRow.run_pk).scalar_subquery().label("run"),
    RolloutRow.run_pk,
    RolloutRow.kind,
    RolloutRow.rollout_id,
    RolloutRow.attempt,
    select(SessionRow.ordinal).where(SessionRow.id == RolloutRow.session_pk).scalar_subquery().label("session"),
)
"""Columns that ``SelectionRepository.rollouts`` can be asked for: which rollout of which run."""


class SelectionRepository:
    """Finds the samples that a filter names.

    Args:
        connection: inside a transaction.
        run_pk: the run's key; None: of any run.
        where: the filter. Its ``metadata`` condition is for the caller: it needs decoded documents.
        prompt_digest: of ``where.prompt``, when that is given.
    """

    def __init__(
        self, connection: Connection, run_pk: int | None, where: SampleFilter, prompt_digest: bytes | None = None
    ) -> None:
        self._connection = connection
        self._run_pk = run_pk
        self._where = where
        self._digest = prompt_digest

    def rollouts(self, *columns: Any) -> list[Row[Any]]:
        """Return (id, n_samples, and more ``columns``) of the rollouts that may hold such samples.

        Runs come in the order of their making; in each, train rollouts first, then by rollout id, then by attempt.
        Without a condition on the attempt, only the newest complete attempt of each is looked at.
        """
        conditions = on_rollouts(self._where, self._digest, self._run_pk)
        if self._where.attempt is None:
            conditions.append(is_newest_attempt())
        query = select(RolloutRow.id, RolloutRow.n_samples, *columns).where(*conditions)
        order = (RolloutRow.run_pk, RolloutRow.kind.desc(), RolloutRow.rollout_id, RolloutRow.attempt)
        rows: list[Row[Any]] = list(self._connection.execute(query.order_by(*order)))
        return rows

    def conditions(self, rollout_pks: Sequence[int], blobs: BlobRepository) -> list[Condition]:
        """Return the conditions on the samples of these rollouts; for ``where.text`` this costs a query."""
        where = self._where
        given: dict[str, Any] = {"digest": self._digest, "run_pk": self._run_pk}
        dialect = self._connection.dialect
        if where.text is not None:
            others = on_samples(_without_text(where), dialect, **given)
            prompts = PromptTextRepository(self._connection, blobs)
            given["prompts_with_text"] = prompts.containing(where.text, rollout_pks, others)
        return on_samples(where, dialect, **given)

    def positions(self, rollout_pks: Sequence[int], blobs: BlobRepository) -> dict[int, list[int]]:
        """Return the positions, rising, that meet every condition on samples, by rollout; one query for each 500."""
        found: dict[int, list[int]] = {}
        for chunk in chunked(rollout_pks):
            query = select(SampleRow.rollout_pk, SampleRow.position).where(
                SampleRow.rollout_pk.in_(chunk), *self.conditions(chunk, blobs)
            )
            for pk, position in self._connection.execute(query.order_by(SampleRow.rollout_pk, SampleRow.position)):
                found.setdefault(pk, []).append(position)
        return found

    def count(self, blobs: BlobRepository) -> int:
        """Return how many samples meet every condition but that on metadata; one query for each 500 rollouts."""
        rollouts = self.rollouts()
        if not concerns_samples(self._where):
            return sum(row.n_samples for row in rollouts)
        total = 0
        for chunk in chunked([row.id for row in rollouts]):
            query = select(func.count()).where(SampleRow.rollout_pk.in_(chunk), *self.conditions(chunk, blobs))
            total += self._connection.execute(query).scalar_one()
        return total

    def datasets(self, rollout_pk: int) -> list[tuple[str, int, int]]:
        """Return (name, first position, number of samples) of an eval's datasets, in order."""
        query = select(EvalDatasetRow.name, EvalDatasetRow.first_position, EvalDatasetRow.n_samples)
        query = query.where(EvalDatasetRow.rollout_pk == rollout_pk).order_by(EvalDatasetRow.position)
        rows = self._connection.execute(query)
        return [(row[0], row[1], row[2]) for row in rows]


def _without_text(where: SampleFilter) -> SampleFilter:
    given = {name: value for name, value in vars(where).items() if name != "text"}
    return SampleFilter(**given)
