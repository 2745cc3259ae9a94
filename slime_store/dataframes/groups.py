"""Groups, and the history of prompts: samples of one prompt together."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from slime_store.database import reconnecting
from slime_store.dataframes.building import frame_of, repeated
from slime_store.dataframes.columns import Columns
from slime_store.dataframes.declared.aggregates import GROUPS, PASS_AT, PROMPTS
from slime_store.dataframes.evals import (
    DEFAULT_K,
    DEFAULT_THRESHOLD,
    EvalSamples,
    check_threshold,
    choose_with_pass_at,
    eval_samples,
)
from slime_store.dataframes.statistics import Array, Groups, grouped, pass_at_k
from slime_store.dataframes.trouble import DAMAGE, given, undecoded
from slime_store.mapping.shown import shown, shown_text
from slime_store.store.diagnosis import damage_named
from slime_store.store.loading import again_if_overtaken
from slime_store.store.questions import Questions, Source, asking
from slime_store.types import SampleFilter

_OF_ROLLOUT = ("run", "kind", "rollout_id", "attempt", "session")


@damage_named
@again_if_overtaken
@reconnecting
def groups_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
    k: Sequence[int] = DEFAULT_K,
    threshold: float = DEFAULT_THRESHOLD,
) -> Any:
    """Return a row for each group of a train rollout, and for each prompt of a dataset of an eval.

    docs/dataframes.md says how each number is computed. Reads scalars only: one query for the rollouts and one for each
    65,000 samples.

    Args:
        source: a run, or a store for all of its runs.
        where: which samples; the numbers are of these only.
        columns: names in the order wanted; ``"pass_at_16"`` also without being in ``k``.
        strict: False: return (frame, problems).
        k: makes a column ``pass_at_<k>`` of each.
        threshold: a sample is correct whose reward is at least this.

    Raises:
        ValueError: there is no such column, or ``k`` makes no sense.
        BlobCorruptError: the filter has a condition on metadata, and a document is damaged (strict).
    """
    check_threshold(threshold)
    chosen, ks = choose_with_pass_at(GROUPS, k, columns)
    names = {column.name for column in chosen}
    with asking(source, where) as questions:
        samples = eval_samples(questions, "group_position", "group_index")
        table = samples.table
        position = table.keys("group_position")
        prompt = np.where(position < 0, samples.prompt, -1)
        groups, first = grouped(table.head, position, samples.dataset, prompt)
        labels = table.labels().take(first) if "weight_version" in names else None
        ids = _prompt_ids(questions, samples.prompt[first]) if "prompt_id" in names else None
    values = _of_groups(samples, groups, first)
    low, high = values["reward_min"], values["reward_max"]
    values |= {
        "group_position": [None if value < 0 else value for value in position[first].tolist()],
        "group_index": _agreed(groups, first, table.values("group_index")),
        "zero_std": [None if np.isnan(a) else bool(a == b) for a, b in zip(low, high, strict=True)],
        "prompt_id": ids,
        "weight_version": labels,
    }
    n, n_correct = values["n_rewards"], groups.count(samples.reward >= threshold)
    values |= {f"{PASS_AT}{each}": pass_at_k(n, n_correct, each) for each in ks}
    return given(frame_of(chosen, values, groups.n_groups), table.problems, strict)


@damage_named
@again_if_overtaken
@reconnecting
def prompts_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
) -> Any:
    """Return a row for each prompt, rollout and dataset: how a prompt fared through training and evals.

    For one prompt give ``SampleFilter(prompt=...)`` or ``SampleFilter(prompt_id=...)``: indexes find its samples, and
    no others are read. Prompts themselves are read only when ``columns`` asks for them.

    Args:
        source: a run, or a store for all of its runs.
        where: which samples; samples without any prompt are left out.
        columns: names in the order wanted.
        strict: False: return (frame, problems).

    Raises:
        ValueError: there is no such column.
        BlobCorruptError: a document that is read is damaged (strict): a prompt, or metadata that the filter asks for.
    """
    chosen = PROMPTS.choose(columns)
    names = {column.name for column in chosen}
    with asking(source, where) as questions:
        samples = eval_samples(questions)
        table = samples.table
        groups, first = grouped(samples.prompt, table.head, samples.dataset)
        labels = table.labels().take(first)
        keys = samples.prompt[first]
        ids = _prompt_ids(questions, keys)
        texts, bad = prompt_texts(questions, _known(keys)) if "prompt" in names else ({}, {})
    values = _of_groups(samples, groups, first)
    values |= {"weight_version": labels, "prompt_id": ids, "prompt": [texts.get(key) for key in keys.tolist()]}
    problems = [
        table.problem(row, "prompt", bad[key])
        for row, key in zip(first.tolist(), keys.tolist(), strict=True)
        if key in bad
    ]
    known = np.flatnonzero((keys >= 0) & ~np.isin(keys, list(bad)))
    appearance = {key: place for place, key in enumerate(dict.fromkeys(keys[known].tolist()))}
    order = np.array(sorted(known.tolist(), key=lambda row: (appearance[int(keys[row])], row)), np.int64)
    made = frame_of(chosen, values, groups.n_groups).take(order).reset_index(drop=True)
    return given(made, [*table.problems, *problems], strict)


def _of_groups(samples: EvalSamples, groups: Groups, first: Array) -> dict[str, Any]:
    """Return what rows of groups have in common."""
    table, reward = samples.table, samples.reward
    heads = table.head[first] if len(first) else first
    values: dict[str, Any] = {
        name: repeated(
            [getattr(head, name) for head in table.heads], heads, "text" if name in ("run", "kind") else "int"
        )
        for name in _OF_ROLLOUT
    }
    names = table.values("dataset")
    return values | {
        "dataset": [names[row] for row in first.tolist()],
        "n_samples": groups.count(),
        "n_rewards": groups.count(~np.isnan(reward)),
        "n_none": groups.count(samples.none),
        "n_nan": groups.count(samples.nan),
        "reward_mean": groups.mean(reward),
        "reward_std": groups.std(reward),
        "reward_min": groups.low(reward),
        "reward_max": groups.high(reward),
        "truncated_share": groups.mean(samples.truncated.astype(np.float64)),
        "response_length_mean": groups.mean(samples.length),
    }


def _agreed(groups: Groups, first: Array, values: Sequence[int | None]) -> list[int | None]:
    """Return the value that all rows of a group share, None where they differ."""
    shared = [values[row] for row in first.tolist()]
    for code, value in zip(groups.codes.tolist(), values, strict=True):
        if shared[code] != value:
            shared[code] = None
    return shared


def _prompt_ids(questions: Questions, keys: Array) -> list[str | None]:
    digests = questions.prompts.digests(_known(keys))
    return [digests[key][:8].hex() if key in digests else None for key in keys.tolist()]


def prompt_texts(questions: Questions, keys: Collection[int]) -> tuple[dict[int, str | None], dict[int, str]]:
    """Return prompts by key, text as it is, chat messages as JSON; and the reason for each that is damaged."""
    texts: dict[int, str | None] = {}
    bad: dict[int, str] = {}
    for key, (text, document) in questions.prompts.get(keys).items():
        try:
            texts[key] = text if document is None else shown_text(shown(json.loads(document)))
        except DAMAGE as error:
            bad[key] = undecoded(error)
    return texts, bad


def _known(keys: Array) -> set[int]:
    return {key for key in keys.tolist() if key >= 0}
