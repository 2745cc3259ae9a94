"""Reward by weight version."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from slime_store.database import reconnecting
from slime_store.dataframes.building import frame_of
from slime_store.dataframes.columns import Columns
from slime_store.dataframes.declared.aggregates import WEIGHT_VERSIONS
from slime_store.dataframes.source import none_and_nan, reward_field, reward_fields
from slime_store.dataframes.statistics import grouped
from slime_store.dataframes.table import SampleTable
from slime_store.dataframes.trouble import given
from slime_store.mapping.aggregates import MAX_SUMMED
from slime_store.repositories.questions.samples import Head
from slime_store.repositories.questions.versions import Sums, Version
from slime_store.store.diagnosis import damage_named
from slime_store.store.loading import again_if_overtaken
from slime_store.store.questions import Questions, Source, asking
from slime_store.types import SampleFilter

Attribute = Literal["last", "first", "each"]


@damage_named
@again_if_overtaken
@reconnecting
def weight_versions_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
    by: Literal["session", "label"] = "session",
    attribute: Attribute = "last",
) -> Any:
    """Return rewards and lengths by weight version; docs/dataframes.md lists the columns.

    Reads narrow columns of samples, and sums them in the database: one query for the rollouts, one for the versions,
    and two or three for each 200 rollouts, whatever the number of samples. With a condition on metadata, which SQL
    cannot decide, the samples that may meet it are read.

    Args:
        source: a run, or a store for all of its runs.
        where: which samples.
        columns: names in the order wanted.
        strict: False: return (frame, problems).
        by: "session": a row for each version of each session, since labels begin anew when training restarts;
            "label": the versions of one label together.
        attribute: which version a sample that several ones generated counts for: its "last", its "first", or "each" of
            them, once.

    Raises:
        ValueError: there is no such column, or no such choice.
        BlobCorruptError: the filter has a condition on metadata, and a document is damaged (strict).
    """
    chosen = WEIGHT_VERSIONS.choose(columns)
    if by not in ("session", "label"):
        raise ValueError(f"by is 'session' or 'label', not {by!r}")
    if attribute not in ("last", "first", "each"):
        raise ValueError(f"attribute is 'last', 'first' or 'each', not {attribute!r}")
    with asking(source, where) as questions:
        problems = []
        if questions.where.metadata:
            table = SampleTable(questions, _fields(questions))
            heads, versions, problems = table.heads, table.versions, table.problems
            sums = _sums_of(table, questions, attribute)
        else:
            heads, versions = questions.scan.heads(), questions.versions.all()
            sums = questions.versions.sums([head.pk for head in heads], attribute)
    rows = _rows(heads, versions, sums, by)
    values = {column.name: [row[column.name] for row in rows] for column in WEIGHT_VERSIONS.columns}
    return given(frame_of(chosen, values, len(rows)), problems, strict)


def _rows(heads: Sequence[Head], versions: dict[int, Version], sums: Iterable[Sums], by: str) -> list[dict[str, Any]]:
    by_pk = {head.pk: head for head in heads}
    runs = {run: number for number, run in enumerate(dict.fromkeys(head.run for head in heads))}
    found: dict[tuple[Any, ...], list[Sums]] = {}
    for each in sums:
        head = by_pk[each.rollout_pk]
        pk = each.weight_version_pk if each.weight_version_pk is not None else head.weight_version_pk
        version = None if pk is None else versions[pk]
        if by == "label":
            key: tuple[Any, ...] = (head.run, head.kind, None, None if version is None else version.label)
        else:
            session = head.session if version is None else version.session
            key = (head.run, head.kind, session, None if version is None else version.label)
        found.setdefault(key, []).append(each)
    rows = []
    for (run, kind, session, label), parts in found.items():
        ordinals = [versions[pk].ordinal for pk in _version_keys(parts, by_pk)]
        row = {"run": run, "session": session, "kind": kind, "weight_version": label}
        row["ordinal"] = min(ordinals, default=None)
        ids = [by_pk[part.rollout_pk].rollout_id for part in parts]
        rows.append({**row, **_merged(parts), "first_rollout_id": min(ids), "last_rollout_id": max(ids)})
    rows.sort(key=lambda row: _order(row, runs))
    return rows


def _version_keys(parts: Iterable[Sums], heads: dict[int, Head]) -> list[int]:
    keys = (part.weight_version_pk or heads[part.rollout_pk].weight_version_pk for part in parts)
    return [key for key in keys if key is not None]


def _order(row: dict[str, Any], runs: dict[str, int]) -> tuple[Any, ...]:
    unknown = row["ordinal"] is None
    return runs[row["run"]], unknown, row["ordinal"] or 0, row["session"] or 0, row["kind"] != "train"


def _merged(parts: Sequence[Sums]) -> dict[str, Any]:
    """Add up sums over disjoint samples; spreads by the formula of Chan, Golub and LeVeque (1979)."""
    n_samples = sum(part.n_samples for part in parts)
    n_lengths = sum(part.n_response_lengths for part in parts)
    lows = [part.reward_min for part in parts if part.reward_min is not None]
    highs = [part.reward_max for part in parts if part.reward_max is not None]
    n, mean, m2 = 0, math.nan, 0.0
    for part in parts:
        if not part.n_rewards:
            continue
        if part.reward_sum is None or part.reward_m2 is None:
            mean = m2 = math.nan
            n += part.n_rewards
            continue
        part_mean = part.reward_sum / part.n_rewards
        delta = part_mean - mean if n else 0.0
        n += part.n_rewards
        mean = part_mean if n == part.n_rewards else mean + delta * part.n_rewards / n
        m2 += part.reward_m2 + delta * delta * (n - part.n_rewards) * part.n_rewards / n
    if math.isnan(mean) and n:  # infinite, or beyond what is summed
        infinite = {value for value in (min(lows), max(highs)) if math.isinf(value)}
        mean = infinite.pop() if len(infinite) == 1 else math.nan
        m2 = math.nan
    return {
        "n_samples": n_samples,
        "n_rewards": n,
        "n_none": sum(part.n_none for part in parts),
        "n_nan": sum(part.n_nan for part in parts),
        "reward_mean": mean,
        "reward_std": math.sqrt(m2 / (n - 1)) if n > 1 else math.nan,
        "reward_min": min(lows, default=math.nan),
        "reward_max": max(highs, default=math.nan),
        "truncated_share": sum(part.n_truncated for part in parts) / n_samples if n_samples else math.nan,
        "response_length_mean": sum(part.response_length_sum for part in parts) / n_lengths if n_lengths else math.nan,
    }


def _fields(questions: Questions) -> list[Any]:
    return [
        *reward_fields(questions.where),
        "status",
        "response_length",
        "first_weight_version_pk",
        "last_weight_version_pk",
    ]


def _sums_of(table: SampleTable, questions: Questions, attribute: Attribute) -> list[Sums]:
    """Sum samples that were read: what ``VersionQuestions.sums`` does in the database."""
    rows = np.arange(table.n_rows)
    keys = table.version_keys("first_weight_version_pk" if attribute == "first" else "last_weight_version_pk")
    if attribute == "each":
        rows, keys = _each(table, questions, keys)
    rewards = table.floats(reward_field(questions.where))[rows]
    none, nan = (mask[rows] for mask in none_and_nan(table, questions.where))
    lengths = table.floats("response_length")[rows]
    truncated = np.asarray(table.values("status"), dtype=object)[rows] == "truncated"
    groups, first = grouped(table.head[rows], keys)
    with np.errstate(all="ignore"):
        total, squares = groups.total(rewards), groups.squares(rewards)
        low, high = groups.low(rewards), groups.high(rewards)
    is_summed = ~((low < -MAX_SUMMED) | (high > MAX_SUMMED))  # also without rewards
    n_rewards = groups.count(~np.isnan(rewards))
    columns = [
        groups.count().tolist(),
        n_rewards.tolist(),
        groups.count(none).tolist(),
        groups.count(nan).tolist(),
        [value if known else None for value, known in zip(total.tolist(), is_summed.tolist(), strict=True)],
        [value if known else None for value, known in zip(squares.tolist(), is_summed.tolist(), strict=True)],
        [None if math.isnan(value) else value for value in low.tolist()],
        [None if math.isnan(value) else value for value in high.tolist()],
        groups.count(truncated).tolist(),
        groups.count(~np.isnan(lengths)).tolist(),
        groups.total(lengths).tolist(),
        [table.heads[number].pk for number in table.head[rows[first]].tolist()],
        [None if key < 0 else key for key in keys[first].tolist()],
    ]
    return [Sums(*row) for row in zip(*columns, strict=True)]


def _each(table: SampleTable, questions: Questions, otherwise: Any) -> tuple[Any, Any]:
    """Return (rows, version of each): a row for every version of a sample."""
    places = {
        (int(head), position): row for row, (head, position) in enumerate(zip(table.head, table.position, strict=True))
    }
    heads = {head.pk: number for number, head in enumerate(table.heads)}
    used = sorted(set(table.head.tolist()))
    links = [
        (row, version)
        for pk, position, version in questions.versions.links([table.heads[number].pk for number in used])
        if (row := places.get((heads[pk], position))) is not None
    ]
    linked = {row for row, _ in links}
    links += [(row, int(otherwise[row])) for row in range(table.n_rows) if row not in linked]
    pairs = np.asarray(links, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
