"""Rollouts and their metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from slime_store.database import reconnecting
from slime_store.dataframes.building import Problem, frame_of
from slime_store.dataframes.columns import Column, Columns
from slime_store.dataframes.declared.aggregates import METRICS_LONG, METRICS_WIDE, ROLLOUTS
from slime_store.dataframes.trouble import DAMAGE, given
from slime_store.mapping.rewards import numeric_value
from slime_store.mapping.shown import shown, shown_text
from slime_store.repositories.questions.conditions import concerns_samples
from slime_store.repositories.questions.samples import Head
from slime_store.store.diagnosis import damage_named
from slime_store.store.infos import decode_inline
from slime_store.store.loading import again_if_overtaken
from slime_store.store.questions import Questions, Source, asking
from slime_store.types import SampleFilter

_OF_HEAD = ("run", "kind", "rollout_id", "attempt", "session")

Path = tuple[str, ...]


@damage_named
@again_if_overtaken
@reconnecting
def rollouts_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
) -> Any:
    """Return a row for each rollout: counts, times, and metrics where they are asked for.

    Costs two queries and no sample is read, unless the filter has conditions on samples: then the keys of those that
    meet them are.

    Args:
        source: a run, or a store for all of its runs.
        where: rollouts that hold such a sample; None: the newest attempt of every rollout.
        columns: names in the order wanted, also ``"metrics.raw_reward"`` or paths such as
            ``("metrics", "eval", "acc")``.
        strict: False: return (frame, problems) instead of raising for a document that is damaged.

    Raises:
        ValueError: there is no such column.
        BlobCorruptError: the metrics of a rollout are damaged (strict).
    """
    chosen = ROLLOUTS.choose(columns)
    wanted = [column.name for column in chosen if not column.path and column.name not in _OF_HEAD]
    if any(column.path for column in chosen) and "metrics" not in wanted:
        wanted.append("metrics")
    with asking(source, where) as questions:
        heads, problems = _heads(questions)
        rows = questions.rollouts.get([head.pk for head in heads], wanted) if wanted else {}
    numbers, bad = _read_metrics(heads, {pk: row.metrics for pk, row in rows.items()} if "metrics" in wanted else {})
    problems += bad
    heads = _without(heads, bad)
    values: dict[str, Any] = {name: [getattr(head, name) for head in heads] for name in _OF_HEAD}
    for name in wanted:
        values[name] = [getattr(rows[head.pk], name) for head in heads]
    if "metrics" in values:
        values["metrics"] = [shown_text(shown(json.loads(text))) for text in values["metrics"]]
    values |= _metric_columns(chosen, heads, numbers)
    return given(frame_of(chosen, values, len(heads)), problems, strict)


@damage_named
@again_if_overtaken
@reconnecting
def metrics_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
    layout: Literal["wide", "long"] = "wide",
) -> Any:
    """Return the metrics that are numbers: a column for each ("wide"), or a row for each ("long").

    docs/dataframes.md says which values count as numbers. ``rollouts_df(columns=["metrics", ...])`` has all of them as
    JSON. Costs two queries; "wide" reads the metrics of every rollout, so that its columns do not depend on the filter.

    Args:
        source: a run, or a store for all of its runs.
        where: rollouts that hold such a sample; None: the newest attempt of every rollout.
        columns: names in the order wanted, also ``"metrics.raw_reward"``; None: all.
        strict: False: return (frame, problems) instead of raising for a document that is damaged.
        layout: "wide" or "long".

    Raises:
        ValueError: there is no such column or layout.
        BlobCorruptError: the metrics of a rollout are damaged (strict).
    """
    if layout not in ("wide", "long"):
        raise ValueError(f"layout is 'wide' or 'long', not {layout!r}")
    frame = METRICS_WIDE if layout == "wide" else METRICS_LONG
    chosen = frame.choose(columns)
    with asking(source, where) as questions:
        heads, problems = _heads(questions)
        documents = questions.rollouts.metrics()
        rows = questions.rollouts.get([head.pk for head in heads], ["finished_at"])
    own = {head.pk for head in heads}
    numbers, bad = _read_metrics(heads, {pk: text for pk, text in documents.items() if pk in own})
    heads = _without(heads, bad)
    if layout == "long":
        pairs = [(head, path, value) for head in heads for path, value in numbers[head.pk].items()]
        values: dict[str, Any] = {name: [getattr(head, name) for head, _, _ in pairs] for name in _OF_HEAD}
        values |= {"metric": [_name(path) for _, path, _ in pairs], "value": [value for _, _, value in pairs]}
        return given(frame_of(chosen, values, len(pairs)), problems + bad, strict)
    if columns is None:
        paths = {path for text in documents.values() for path in _paths(text)}
        chosen += sorted((METRICS_WIDE.families[0].column(path) for path in paths), key=lambda column: column.name)
    values = {name: [getattr(head, name) for head in heads] for name in _OF_HEAD}
    values["finished_at"] = [rows[head.pk].finished_at for head in heads]
    values |= _metric_columns(chosen, heads, numbers)
    return given(frame_of(chosen, values, len(heads)), problems + bad, strict)


def _heads(questions: Questions) -> tuple[list[Head], list[Problem]]:
    """Return the rollouts that hold a sample which the filter names."""
    heads = questions.scan.heads()
    if not concerns_samples(questions.where):
        return heads, []
    held = {row[0] for row in questions.scan.rows(heads, [])}
    by_pk = {head.pk: head for head in heads}
    problems = []
    for pk, position, error in questions.scan.damages:
        head = by_pk[pk]
        problems.append(Problem(head.run, head.kind, head.rollout_id, head.attempt, position, "metadata", str(error)))
    return [head for head in heads if head.pk in held], problems


def _without(heads: Iterable[Head], problems: Iterable[Problem]) -> list[Head]:
    bad = {(each.run, each.kind, each.rollout_id, each.attempt) for each in problems}
    return [head for head in heads if (head.run, head.kind, head.rollout_id, head.attempt) not in bad]


def _read_metrics(
    heads: Iterable[Head], documents: Mapping[int, str]
) -> tuple[dict[int, dict[Path, float]], list[Problem]]:
    """Return the numbers of each rollout by path, and what could not be read."""
    numbers: dict[int, dict[Path, float]] = {}
    problems = []
    for head in heads:
        numbers[head.pk] = {}
        if head.pk not in documents:
            continue
        try:
            numbers[head.pk] = dict(_numbers(decode_inline(documents[head.pk])))
        except DAMAGE as error:
            where = (head.run, head.kind, head.rollout_id, head.attempt, None)
            problems.append(Problem(*where, "metrics", f"{type(error).__name__}: {error}"))
    return numbers, problems


def _paths(document: str) -> list[Path]:
    try:
        return [path for path, _ in _numbers(decode_inline(document))]
    except DAMAGE:
        return []


def _numbers(metrics: Any, path: Path = ()) -> Iterator[tuple[Path, float]]:
    """Yield (path, number) of metrics; what is no dict, no number, or has a key that is no text, is left out."""
    if not isinstance(metrics, dict):
        return
    for key, value in metrics.items():
        if type(key) is not str:
            continue
        if isinstance(value, dict):
            yield from _numbers(value, (*path, key))
            continue
        number = numeric_value(value)
        if number is not None:
            yield (*path, key), number


def _metric_columns(
    chosen: Iterable[Column], heads: Iterable[Head], numbers: Mapping[int, Mapping[Path, float]]
) -> dict[str, Any]:
    heads = list(heads)
    return {
        column.name: np.array([numbers[head.pk].get(column.path, math.nan) for head in heads], dtype=np.float64)
        for column in chosen
        if column.path
    }


def _name(path: Path) -> str:
    return replace(METRICS_WIDE.families[0], name="").column(path).name[1:]
