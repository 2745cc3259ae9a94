"""The conditions of a filter as SQL, equally on both databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Dialect, Select, and_, false, func, literal_column, or_, select

from slime_store.mapping.metadata import fragments
from slime_store.mapping.rewards import entry_key
from slime_store.mapping.text import indexable, searchable
from slime_store.models import (
    EvalDatasetRow,
    PromptRow,
    RolloutRow,
    SampleDocumentRow,
    SampleRewardRow,
    SampleRow,
    SampleTextRow,
    SampleWeightVersionRow,
    WeightVersionRow,
)
from slime_store.types import SampleFilter

Condition = ColumnElement[bool]
_FEW = 100
"""Ids, or spans of them, that are compared with one by one."""

_ON_SAMPLES = (
    "status",
    "group_index",
    "removed",
    "dataset",
    "weight_version",
    "reward_min",
    "reward_max",
    "text",
    "prompt",
    "prompt_id",
    "metadata",
    "response_length_min",
    "response_length_max",
)


def concerns_samples(where: SampleFilter) -> bool:
    """True when the filter may leave out samples of a rollout that it takes."""
    return any(getattr(where, name) is not None for name in _ON_SAMPLES)


def on_rollouts(where: SampleFilter, digest: bytes | None, run_pk: int | None) -> list[Condition]:
    """Conditions on ``rollouts``, without that on the attempt: exact ones, and what indexes can rule out.

    Args:
        where: the filter.
        digest: of ``where.prompt``.
        run_pk: the run whose rollouts they are; None: any.
    """
    conditions: list[Condition] = [RolloutRow.status == "complete"]
    if run_pk is not None:
        conditions.append(RolloutRow.run_pk == run_pk)
    if where.kind is not None:
        conditions.append(RolloutRow.kind == where.kind)
    if where.rollout_ids is not None:
        conditions.append(is_in(RolloutRow.rollout_id, where.rollout_ids))
    if where.attempt is not None:
        conditions.append(RolloutRow.attempt == where.attempt)
    for prompts in _prompts(where, digest):
        conditions.append(RolloutRow.id.in_(_apart(SampleRow.rollout_pk).where(SampleRow.prompt_pk.in_(prompts))))
    if where.weight_version is not None:
        versions = _versions(where.weight_version, run_pk)
        used = _apart(SampleWeightVersionRow.rollout_pk).where(SampleWeightVersionRow.weight_version_pk.in_(versions))
        conditions.append(or_(RolloutRow.id.in_(used), RolloutRow.weight_version_pk.in_(versions)))
    if where.dataset is not None:
        named = _apart(EvalDatasetRow.rollout_pk).where(EvalDatasetRow.name.in_(_names(where.dataset)))
        conditions += [RolloutRow.kind == "eval", RolloutRow.id.in_(named)]
    return conditions


def on_samples(
    where: SampleFilter,
    dialect: Dialect,
    *,
    digest: bytes | None = None,
    run_pk: int | None = None,
    prompts_with_text: Sequence[int] = (),
) -> list[Condition]:
    """Conditions on ``samples``. All are exact but that on metadata, which may let others through.

    Args:
        where: the filter.
        dialect: of the database.
        digest: of ``where.prompt``.
        run_pk: as for ``on_rollouts``.
        prompts_with_text: prompts that are no plain text and contain ``where.text``.
    """
    conditions: list[Condition] = []
    if where.status is not None:
        conditions.append(SampleRow.status.in_([searchable(word) for word in where.status]))
    if where.group_index is not None:
        conditions.append(SampleRow.group_index == where.group_index)
    if where.removed is not None:
        conditions.append(SampleRow.remove_sample == where.removed)
    if where.response_length_min is not None:
        conditions.append(SampleRow.response_length >= where.response_length_min)
    if where.response_length_max is not None:
        conditions.append(SampleRow.response_length <= where.response_length_max)
    if where.dataset is not None:
        dataset = _of_samples(EvalDatasetRow.position).where(
            EvalDatasetRow.rollout_pk == SampleRow.rollout_pk, EvalDatasetRow.name.in_(_names(where.dataset))
        )
        conditions.append(SampleRow.dataset_position.in_(dataset))
    if where.reward_min is not None or where.reward_max is not None:
        conditions.append(_reward(where))
    conditions += [SampleRow.prompt_pk.in_(prompts) for prompts in _prompts(where, digest)]
    if where.weight_version is not None:
        conditions.append(_weight_version(where, run_pk))
    if where.metadata:
        conditions.append(_metadata(where.metadata, dialect))
    if where.text is not None:
        conditions.append(_text(searchable(where.text), dialect, prompts_with_text))
    return conditions


def contains(column: Any, needle: str, dialect: Dialect) -> Condition:
    """Exact, case-sensitive search: LIKE differs between the databases."""
    find = func.instr if dialect.name == "sqlite" else func.strpos
    condition: Condition = find(column, needle) > 0
    return condition


def entry_of(path: tuple[str, ...], column: Any = SampleRewardRow.value) -> Any:
    """A query for the entry of a dict reward of the sample at hand, its value by default."""
    return _of_samples(column).where(
        SampleRewardRow.rollout_pk == SampleRow.rollout_pk,
        SampleRewardRow.position == SampleRow.position,
        SampleRewardRow.depth == len(path),
        SampleRewardRow.key == entry_key(path),
    )


def path_of(key: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the path that a reward key names."""
    return (key,) if isinstance(key, str) else tuple(key)


def is_in(column: Any, ids: tuple[int, ...] | range) -> Condition:
    """Condition that a number is one of ``ids``, however many they are; a tuple is rising."""
    if isinstance(ids, range):
        if ids.step == 1 and ids:
            return and_(column >= ids[0], column <= ids[-1])
        if ids[_FEW:]:  # so the step is small: no difference or sum here leaves 64 bits, in which PostgreSQL calculates
            step = ids.step
            in_step = ((column % step) + step) % step == ids.start % step  # SQL's remainder has the number's sign
            return and_(column >= ids[0], column <= ids[-1], in_step)
        ids = tuple(ids)
    spans: list[tuple[int, int]] = []
    for number in ids:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    if len(spans) <= _FEW:
        return or_(false(), *[column.between(*span) for span in spans])
    # more ids than some builds take bind variables: as literals, which are whole numbers and nothing else
    return or_(false(), column.in_([literal_column(str(int(number))) for number in ids]))


def _of_samples(column: Any) -> Select[Any]:
    """A query about the sample at hand, which is the outer query's; all other tables are its own."""
    return select(column).correlate(SampleRow)


def _apart(column: Any) -> Select[Any]:
    """A query of its own, whatever tables the outer one reads."""
    return select(column).correlate(None)


def _names(dataset: str | tuple[str, ...]) -> list[Any]:
    names = (dataset,) if isinstance(dataset, str) else dataset
    return [indexable(name) for name in names]


def _prompts(where: SampleFilter, digest: bytes | None) -> list[Any]:
    """Queries for the prompts that the filter names by content or id: ranges of the index of digests."""
    queries = []
    if digest is not None:
        queries.append(_apart(PromptRow.id).where(PromptRow.digest == digest))
    if where.prompt_id is not None:
        first = bytes.fromhex(where.prompt_id)
        last = first + b"\xff" * 24
        queries.append(_apart(PromptRow.id).where(PromptRow.digest.between(first, last)))
    return queries


def _versions(label: str, run_pk: int | None) -> Any:
    versions = _apart(WeightVersionRow.id).where(WeightVersionRow.label == indexable(label))
    return versions if run_pk is None else versions.where(WeightVersionRow.run_pk == run_pk)


def _weight_version(where: SampleFilter, run_pk: int | None) -> Condition:
    assert where.weight_version is not None
    versions = _versions(where.weight_version, run_pk)
    if where.weight_version_rule == "first":
        own: Condition = SampleRow.first_weight_version_pk.in_(versions)
    elif where.weight_version_rule == "last":
        own = SampleRow.last_weight_version_pk.in_(versions)
    else:
        used = _of_samples(SampleWeightVersionRow.position).where(
            SampleWeightVersionRow.rollout_pk == SampleRow.rollout_pk,
            SampleWeightVersionRow.position == SampleRow.position,
            SampleWeightVersionRow.weight_version_pk.in_(versions),
        )
        own = used.exists()
    told = _apart(RolloutRow.id).where(RolloutRow.weight_version_pk.in_(versions))
    return or_(own, and_(SampleRow.last_weight_version_pk.is_(None), SampleRow.rollout_pk.in_(told)))


def _reward(where: SampleFilter) -> Condition:
    if where.reward_key is None:
        return _bounds(SampleRow.reward, where)
    entry = entry_of(path_of(where.reward_key))
    return entry.where(_bounds(SampleRewardRow.value, where)).exists()  # type: ignore[no-any-return]


def _bounds(column: Any, where: SampleFilter) -> Condition:
    bounds = [column.is_not(None)]
    if where.reward_min is not None:
        bounds.append(column >= where.reward_min)
    if where.reward_max is not None:
        bounds.append(column <= where.reward_max)
    return and_(*bounds)


def _metadata(wanted: dict[str, Any], dialect: Dialect) -> Condition:
    """What documents must contain to match: cheap, and without a decision on types, which Python makes."""
    document, extra = SampleDocumentRow.metadata_, SampleDocumentRow.extra
    every = [
        or_(false(), *[contains(document, text, dialect) for text in fragments(key, value)])
        for key, value in wanted.items()
    ]
    odd = func.substr(document, 1, 8) == '{"$dict"'  # keys that JSON cannot say
    elsewhere = contains(extra, '"metadata"', dialect)  # a dict of a class of its own
    return (
        _of_samples(SampleDocumentRow.position)
        .where(
            SampleDocumentRow.rollout_pk == SampleRow.rollout_pk,
            SampleDocumentRow.position == SampleRow.position,
            or_(and_(*every), odd, elsewhere),
        )
        .exists()
    )


def _text(needle: str, dialect: Dialect, prompts: Sequence[int]) -> Condition:
    response = _of_samples(SampleTextRow.position).where(
        SampleTextRow.rollout_pk == SampleRow.rollout_pk,
        SampleTextRow.position == SampleRow.position,
        contains(SampleTextRow.response, needle, dialect),
    )
    prompt = _of_samples(PromptRow.id).where(
        PromptRow.id == SampleRow.prompt_pk, contains(PromptRow.text, needle, dialect)
    )
    either: list[Condition] = [response.exists(), prompt.exists()]
    if prompts:
        either.append(is_in(SampleRow.prompt_pk, tuple(sorted(prompts))))
    return or_(*either)
