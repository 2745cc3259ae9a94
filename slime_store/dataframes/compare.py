"""Two evals, prompt by prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from slime_store.database import reconnecting
from slime_store.dataframes.building import frame_of
from slime_store.dataframes.columns import Columns
from slime_store.dataframes.declared.aggregates import EVAL_COMPARE, EVAL_COMPARE_SUMMARY
from slime_store.dataframes.evals import DEFAULT_THRESHOLD, check_confidence, check_threshold, eval_samples
from slime_store.dataframes.groups import prompt_texts
from slime_store.dataframes.statistics import Array, grouped, mean_interval
from slime_store.errors import BlobCorruptError
from slime_store.store.diagnosis import damage_named
from slime_store.store.infos import attempt_number, rollout_number
from slime_store.store.loading import again_if_overtaken
from slime_store.store.questions import Questions, asking
from slime_store.store.reading import RunReader
from slime_store.types import SampleFilter


@dataclass(frozen=True)
class _Prompt:
    """A prompt of one dataset in one eval."""

    mean: float
    n: int
    solved: bool


_Prompts = dict[tuple[str, int], _Prompt]


@damage_named
def eval_compare_df(
    run: RunReader,
    before_rollout_id: int,
    after_rollout_id: int,
    *,
    dataset: str | None = None,
    columns: Columns = None,
    before_attempt: int | None = None,
    after_attempt: int | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    reward_key: str | tuple[str, ...] | None = None,
) -> pd.DataFrame:
    """Return two evals paired by prompt: reward before and after, and which prompts flipped.

    Prompts that only one of them has a reward for are left out; ``eval_compare_summary_df`` counts them. Reads scalars
    only, unless ``columns`` asks for the prompts.

    Args:
        run: the run of both.
        before_rollout_id: the eval to compare with.
        after_rollout_id: the eval to be compared.
        dataset: this one only; None: every dataset that both have.
        columns: names in the order wanted.
        before_attempt: which recording; None: the newest complete one.
        after_attempt: which recording; None: the newest complete one.
        threshold: a sample is correct whose reward is at least this; a prompt is solved when half of its samples are.
        reward_key: entry of dict rewards to compare.

    Raises:
        RolloutNotFoundError: the run has no such eval.
        ValueError: there is no such column.
        BlobCorruptError: a prompt that ``columns`` asks for is damaged.
    """
    chosen = EVAL_COMPARE.choose(columns)
    names = {column.name for column in chosen}
    before, after, keys, texts = _pairs(
        run,
        (before_rollout_id, before_attempt),
        (after_rollout_id, after_attempt),
        SampleFilter(kind="eval", dataset=dataset, reward_key=reward_key),
        threshold,
        prompts="prompt" in names,
    )
    pairs = [(key, before[key], after[key]) for key in before if key in after]
    values: dict[str, Any] = {
        "dataset": [key[0] for key, _, _ in pairs],
        "prompt_id": [keys[key[1]] for key, _, _ in pairs],
        "before": [old.mean for _, old, _ in pairs],
        "after": [new.mean for _, _, new in pairs],
        "delta": [new.mean - old.mean for _, old, new in pairs],
        "flip": [_flip(old, new) for _, old, new in pairs],
        "n_before": [old.n for _, old, _ in pairs],
        "n_after": [new.n for _, _, new in pairs],
        "prompt": [texts.get(key[1]) for key, _, _ in pairs],
    }
    return frame_of(chosen, values, len(pairs))


@damage_named
def eval_compare_summary_df(
    run: RunReader,
    before_rollout_id: int,
    after_rollout_id: int,
    *,
    dataset: str | None = None,
    columns: Columns = None,
    before_attempt: int | None = None,
    after_attempt: int | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    reward_key: str | tuple[str, ...] | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Return the mean change of each dataset with its paired interval, and how many prompts flipped.

    The interval is Student's t over the differences of the prompts: paired, so that what makes a prompt easy or hard
    in both evals does not widen it (Miller 2024, "Adding Error Bars to Evals", section 4.2). Arguments and errors are
    those of ``eval_compare_df``.

    Args:
        run: see ``eval_compare_df``, like the other arguments.
        before_rollout_id: see there.
        after_rollout_id: see there.
        dataset: see there.
        columns: see there.
        before_attempt: see there.
        after_attempt: see there.
        threshold: see there.
        reward_key: see there.
        confidence: of the interval, between 0 and 1.
    """
    check_confidence(confidence)
    chosen = EVAL_COMPARE_SUMMARY.choose(columns)
    before, after, _, _ = _pairs(
        run,
        (before_rollout_id, before_attempt),
        (after_rollout_id, after_attempt),
        SampleFilter(kind="eval", dataset=dataset, reward_key=reward_key),
        threshold,
        prompts=False,
    )
    seen_after = {name for name, _ in after}
    datasets = [name for name in dict.fromkeys(name for name, _ in before) if name in seen_after]
    rows: list[list[Any]] = []
    for name in datasets:
        pairs = [(old, after[key]) for key, old in before.items() if key[0] == name and key in after]
        old = np.array([pair[0].mean for pair in pairs])
        new = np.array([pair[1].mean for pair in pairs])
        flips = [_flip(*pair) for pair in pairs]
        only_before = sum(key[0] == name and key not in after for key in before)
        only_after = sum(key[0] == name and key not in before for key in after)
        with np.errstate(all="ignore"):  # of infinite rewards
            means = [float(values.mean()) if len(pairs) else np.nan for values in (old, new)]
            change = mean_interval(new - old, confidence)
        counts = [flips.count(flip) for flip in ("gained", "lost", "same")]
        rows.append([name, len(pairs), *means, *change, *counts, only_before, only_after])
    names = [column.name for column in EVAL_COMPARE_SUMMARY.columns]
    values = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return frame_of(chosen, values, len(rows))


def _flip(before: _Prompt, after: _Prompt) -> str:
    if before.solved == after.solved:
        return "same"
    return "gained" if after.solved else "lost"


@again_if_overtaken
@reconnecting
def _pairs(
    run: RunReader,
    before: tuple[int, int | None],
    after: tuple[int, int | None],
    where: SampleFilter,
    threshold: float,
    *,
    prompts: bool,
) -> tuple[_Prompts, _Prompts, dict[int, str], dict[int, str | None]]:
    """Return the prompts of both evals, their ids, and what they say where that is asked for."""
    if not isinstance(run, RunReader):
        raise TypeError(f"expected a Run, not {type(run).__name__}: evals of different runs have ids of their own")
    check_threshold(threshold)
    with asking(run, where) as questions:
        found = [_prompts_of(run.name, questions, *which, threshold) for which in (before, after)]
        wanted = {key for each in found for _, key in each}
        digests = questions.prompts.digests(wanted)
        texts, bad = prompt_texts(questions, wanted) if prompts else ({}, {})
    ids = {key: digest[:8].hex() for key, digest in digests.items()}
    for key, reason in bad.items():
        raise BlobCorruptError(f"prompt {ids[key]}: {reason}")
    return found[0], found[1], ids, texts


def _prompts_of(run: str, questions: Questions, rollout_id: int, attempt: int | None, threshold: float) -> _Prompts:
    number, attempt = rollout_number(rollout_id), attempt_number(attempt)
    questions.require_eval(run, number, attempt)
    samples = eval_samples(questions.about(replace(questions.where, rollout_ids=(number,), attempt=attempt)))
    known = ~np.isnan(samples.reward) & (samples.prompt >= 0)
    groups, first = grouped(samples.dataset[known], samples.prompt[known])
    rewards: Array = samples.reward[known]
    rows = np.flatnonzero(known)[first].tolist()
    n, n_correct = groups.count(), groups.count(rewards >= threshold)
    columns = (groups.mean(rewards).tolist(), n.tolist(), (n_correct * 2 >= n).tolist())
    names = samples.table.values("dataset")
    return {
        (names[row], int(samples.prompt[row])): _Prompt(*values) for row, *values in zip(rows, *columns, strict=True)
    }
