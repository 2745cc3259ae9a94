"""What can be asked of every sample of a selection, and the tables that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Select, and_, select

from slime_store.models import EvalDatasetRow, PromptRow, SampleDocumentRow, SampleRewardRow, SampleRow, SampleTextRow
from slime_store.repositories.questions.conditions import Condition, entry_of


@dataclass(frozen=True)
class HasEntry:
    """Whether a dict reward has a number, or NaN, at a path: NULL where it has none."""

    path: tuple[str, ...]


Field: TypeAlias = "str | tuple[str, ...] | HasEntry"
"""A name of ``COLUMNS``, or the path of an entry of dict rewards: ``("acc",)``, ``("nest", "x")``."""


class _Join(NamedTuple):
    model: Any
    condition: Condition


def _of_sample(model: Any) -> Condition:
    return and_(model.rollout_pk == SampleRow.rollout_pk, model.position == SampleRow.position)


_TEXTS = _Join(SampleTextRow, _of_sample(SampleTextRow))
_DOCUMENTS = _Join(SampleDocumentRow, _of_sample(SampleDocumentRow))
_PROMPTS = _Join(PromptRow, PromptRow.id == SampleRow.prompt_pk)
_DATASETS = _Join(
    EvalDatasetRow,
    and_(EvalDatasetRow.rollout_pk == SampleRow.rollout_pk, EvalDatasetRow.position == SampleRow.dataset_position),
)

_SAMPLE_COLUMNS = {column.key: (getattr(SampleRow, column.key), None) for column in SampleRow.__table__.columns}
COLUMNS: dict[str, tuple[Any, _Join | None]] = {
    **_SAMPLE_COLUMNS,
    "dataset": (EvalDatasetRow.name, _DATASETS),
    "response": (SampleTextRow.response, _TEXTS),
    "label": (SampleTextRow.label, _TEXTS),
    "metadata": (SampleDocumentRow.metadata_, _DOCUMENTS),
    "extra": (SampleDocumentRow.extra, _DOCUMENTS),
    "prompt_digest": (PromptRow.digest, _PROMPTS),
    "prompt_text": (PromptRow.text, _PROMPTS),
    "prompt_document": (PromptRow.document, _PROMPTS),
}
"""Name of a field -> its expression, and the table beside ``samples`` that has it."""


def query_of(fields: Sequence[Field]) -> Select[Any]:
    """Return a query for (rollout_pk, position, fields) of samples; what is not asked for is not read."""
    expressions: list[Any] = []
    joins: dict[Any, _Join] = {}
    for field in fields:
        if isinstance(field, HasEntry):
            expressions.append(entry_of(field.path, SampleRewardRow.depth).scalar_subquery())
            continue
        if isinstance(field, tuple):
            expressions.append(entry_of(field).scalar_subquery())
            continue
        expression, join = COLUMNS[field]
        expressions.append(expression)
        if join is not None:
            joins[join.model] = join
    labels = [expression.label(f"f{i}") for i, expression in enumerate(expressions)]
    query = select(SampleRow.rollout_pk, SampleRow.position, *labels).select_from(SampleRow)
    for join in joins.values():
        query = query.outerjoin(join.model, join.condition)
    return query
