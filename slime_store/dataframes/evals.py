"""Evals in few numbers: a row for each rollout and dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slime_store.database import reconnecting
from slime_store.dataframes.building import frame_of
from slime_store.dataframes.columns import Column, Columns, Frame
from slime_store.dataframes.declared.aggregates import EVAL_SUMMARY, PASS_AT, pass_at
from slime_store.dataframes.source import none_and_nan, only_eval, reward_field, reward_fields
from slime_store.dataframes.statistics import Array, Groups, check_ks, grouped, mean_interval, pass_at_k
from slime_store.dataframes.table import SampleTable
from slime_store.dataframes.trouble import given
from slime_store.repositories.questions.fields import Field
from slime_store.store.diagnosis import damage_named
from slime_store.store.loading import again_if_overtaken
from slime_store.store.questions import Questions, Source, asking
from slime_store.types import SampleFilter

DEFAULT_K = (1, 2, 4, 8)
DEFAULT_THRESHOLD = 1.0


@dataclass(frozen=True)
class EvalSamples:
    """Samples with what evals count: one value each.

    Attributes:
        table: the samples; of evals and, where a frame takes both, of train rollouts.
        reward: the dataset's own, where at least one of its rewards is a number, else the sample's; NaN for none.
        none: the sample's reward is None, and the dataset has no number either.
        nan: the sample's reward is NaN, and the dataset has no number either.
        truncated: what the dataset's list says, or else the status.
        dataset: position of the dataset in its rollout, -1 for train.
        prompt: key of the prompt; samples without one have a number of their own, below 0.
        length: of the response; NaN for none.
    """

    table: SampleTable
    reward: Array
    none: Array
    nan: Array
    truncated: Array
    dataset: Array
    prompt: Array
    length: Array


def eval_samples(questions: Questions, *more: str) -> EvalSamples:
    """Read the samples of a filter; ``more`` are fields to read with them."""
    own = reward_field(questions.where)
    fields: list[Field] = [
        *reward_fields(questions.where),
        "eval_reward",
        "eval_truncated",
        "status",
        "response_length",
        "dataset_position",
        "prompt_pk",
        "dataset",
        "last_weight_version_pk",
        *more,
    ]
    table = SampleTable(questions, fields)
    dataset, prompt = table.keys("dataset_position"), table.keys("prompt_pk")
    reward = table.floats(own)
    evals = [head.pk for head in table.heads if head.kind == "eval"]
    if questions.where.reward_key is None and evals:
        rewarded = questions.scan.rewarded_datasets(evals)
        numbers = {head.pk: number for number, head in enumerate(table.heads)}
        giving = np.array(sorted({position for _, position in rewarded}) or [-1])
        gives = np.zeros((len(table.heads), len(giving)), bool)
        for pk, position in rewarded:
            gives[numbers[pk], np.searchsorted(giving, position)] = True
        place = np.clip(np.searchsorted(giving, dataset), 0, len(giving) - 1)
        from_list = (giving[place] == dataset) & gives[table.head, place]
        reward = np.where(from_list, table.floats("eval_reward"), reward)
    said = table.floats("eval_truncated")
    by_status = np.asarray(table.values("status"), dtype=object) == "truncated"
    none, nan = none_and_nan(table, questions.where)
    return EvalSamples(
        table,
        reward,
        none & np.isnan(reward),
        nan & np.isnan(reward),
        np.where(np.isnan(said), by_status, said == 1.0).astype(bool),
        dataset,
        np.where(prompt < 0, -1 - np.arange(table.n_rows), prompt),
        table.floats("response_length"),
    )


@damage_named
@again_if_overtaken
@reconnecting
def eval_summary_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
    k: Sequence[int] = DEFAULT_K,
    threshold: float = DEFAULT_THRESHOLD,
    confidence: float = 0.95,
) -> Any:
    """Return a row for each eval rollout and dataset: mean with an interval, pass@k, lengths, weight version.

    docs/dataframes.md says how each number is computed. Reads scalars only: one query for the rollouts, one for the
    versions, one for each 65,000 samples.

    Args:
        source: a run, or a store for all of its runs.
        where: which samples.
        columns: names in the order wanted; ``"pass_at_16"`` also without being in ``k``.
        strict: False: return (frame, problems).
        k: makes a column ``pass_at_<k>`` of each.
        threshold: a sample is correct whose reward is at least this.
        confidence: of the interval, between 0 and 1.

    Raises:
        ValueError: there is no such column, or a choice makes no sense.
        BlobCorruptError: the filter has a condition on metadata, and a document is damaged (strict).
    """
    check_confidence(confidence)
    check_threshold(threshold)
    chosen, ks = choose_with_pass_at(EVAL_SUMMARY, k, columns, before="truncated_share")
    with asking(source, only_eval(where)) as questions:
        samples = eval_samples(questions)
        table = samples.table
        labels = table.labels()
    datasets, first = grouped(table.head, samples.dataset)
    prompts, first_of_prompt = grouped(table.head, samples.dataset, samples.prompt)
    dataset_of_prompt = Groups(datasets.codes[first_of_prompt], datasets.n_groups)
    means = prompts.mean(samples.reward)
    intervals = [
        mean_interval(means[(dataset_of_prompt.codes == i) & ~np.isnan(means)], confidence)
        for i in range(datasets.n_groups)
    ]
    heads = [table.heads[number] for number in table.head[first].tolist()]
    values: dict[str, Any] = {
        name: [getattr(head, name) for head in heads] for name in ("run", "session", "rollout_id", "attempt")
    }
    values |= {
        "dataset": [table.values("dataset")[row] for row in first.tolist()],
        "weight_version": labels.take(first),
        "n_samples": datasets.count(),
        "n_prompts": dataset_of_prompt.count(),
        "n_rewards": datasets.count(~np.isnan(samples.reward)),
        "reward_mean": [interval[0] for interval in intervals],
        "ci_low": [interval[1] for interval in intervals],
        "ci_high": [interval[2] for interval in intervals],
        "truncated_share": datasets.mean(samples.truncated.astype(np.float64)),
        "response_length_mean": datasets.mean(samples.length),
    }
    n, n_correct = prompts.count(~np.isnan(samples.reward)), prompts.count(samples.reward >= threshold)
    for each in ks:
        estimates = pass_at_k(n, n_correct, each)
        enough = dataset_of_prompt.count(~np.isnan(estimates)) * 2 >= dataset_of_prompt.count()
        values[f"{PASS_AT}{each}"] = np.where(enough, dataset_of_prompt.mean(estimates), np.nan)
    return given(frame_of(chosen, values, datasets.n_groups), table.problems, strict)


def choose_with_pass_at(
    frame: Frame, k: Sequence[int], columns: Columns, *, before: str | None = None
) -> tuple[list[Column], tuple[int, ...]]:
    """Return the columns that a caller chose of a frame with pass@k, and every k of the frame."""
    names = columns if columns is None or isinstance(columns, str) else list(columns)  # it is read twice
    wide, ks = with_pass_at(frame, k, names, before=before)
    return wide.choose(names), ks


def with_pass_at(
    frame: Frame, k: Sequence[int], columns: Columns, *, before: str | None = None
) -> tuple[Frame, tuple[int, ...]]:
    """Return the frame with its columns of pass@k, and every k: those given and those that ``columns`` names."""
    named = [name.removeprefix(PASS_AT) for name in columns or () if isinstance(name, str) and name.startswith(PASS_AT)]
    ks = check_ks([*k, *[int(each) for each in named if each.isdecimal()]])
    names = [column.name for column in frame.columns]
    at = len(names) if before is None else names.index(before)
    added = tuple(pass_at(each) for each in ks)
    return replace(frame, columns=(*frame.columns[:at], *added, *frame.columns[at:])), ks


def check_threshold(threshold: float) -> None:
    """Refuse what no reward can be compared with.

    Raises:
        ValueError: it is NaN.
    """
    if math.isnan(threshold):
        raise ValueError("threshold is a number, not nan")


def check_confidence(confidence: float) -> None:
    """Refuse what is no confidence.

    Raises:
        ValueError: it is not between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is between 0 and 1, e.g. 0.95, not {confidence!r}")
