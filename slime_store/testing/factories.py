"""Samples and rollouts that look like real ones and are the same for the same arguments.

Token ids follow a power law, log-probs are mostly near zero and exactly float32 as engines report them,
and several turns of the model have tool output between them. Everything is plain Python, as slime makes it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from random import Random
from typing import Any

from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample

_VOCABULARY_SIZE = 151_936  # Qwen3's
_WORDS = (
    "so",
    "the",
    "sum",
    "of",
    "x",
    "is",
    "12",
    "then",
    "7",
    "*",
    "6",
    "=",
    "42",
    "wait",
    "check",
    "again",
)
_TOOL_TOKENS = 8  # tokens of one tool output between two turns


def make_sample(
    index: int | None = 0,
    *,
    group_index: int | None = None,
    seed: int = 0,
    prompt_seed: object = None,
    n_prompt_tokens: int = 16,
    n_tokens: int = 64,
    n_turns: int = 1,
    weight_version: str = "1",
    status: str = "completed",
    **fields: Any,
) -> Sample:
    """Return one finished sample.

    Args:
        index: number of the sample; with ``seed`` it decides every value.
        group_index: group.
        seed: another seed gives other values.
        prompt_seed: samples that share it have the same prompt. By default the samples of a group do.
        n_prompt_tokens: prompt tokens.
        n_tokens: response tokens, tool output included.
        n_turns: generation calls. Between two of them stands tool output, which ``loss_mask`` hides.
        weight_version: version of every turn.
        status: word for the status. A pending sample has a prompt only, an aborted one has no reward.
        **fields: attributes to set in the end, also ones that are no field.
    """
    if prompt_seed is None:
        prompt_seed = f"{seed}/{index if group_index is None else group_index}"
    question = Random(str(prompt_seed))
    answer = Random(f"{seed}/{group_index}/{index}")
    text = " ".join(question.choices(_WORDS, k=max(1, n_prompt_tokens // 2)))
    sample = Sample(
        group_index=group_index,
        index=index,
        prompt=[{"role": "user", "content": text}],
        tokens=_token_ids(question, n_prompt_tokens),
        label=str(question.randrange(1000)),
        metadata={"source": "made-up", "difficulty": question.randrange(5)},
        status=Sample.Status(status),
    )
    if sample.status is not Sample.Status.PENDING:
        _respond(sample, answer, n_tokens, n_turns, weight_version)
    if sample.status is Sample.Status.ABORTED:
        sample.reward = None
    for name, value in fields.items():
        setattr(sample, name, value)
    return sample


def make_train_output(
    n_groups: int = 2,
    n_samples_per_group: int = 4,
    *,
    seed: int = 0,
    first_group_index: int = 0,
    **fields: Any,
) -> RolloutFnTrainOutput:
    """Return a training rollout of ``[n_groups][n_samples_per_group]`` samples with metrics.

    Args:
        n_groups: groups, each with one prompt.
        n_samples_per_group: samples of each.
        seed: another seed gives other prompts and responses.
        first_group_index: number of the first group; a later rollout goes on where one ended.
        **fields: further arguments of ``make_sample``, the same for all.
    """
    groups = [
        [
            make_sample(group * n_samples_per_group + position, group_index=group, seed=seed, **fields)
            for position in range(n_samples_per_group)
        ]
        for group in range(first_group_index, first_group_index + n_groups)
    ]
    lengths = [sample.response_length for group in groups for sample in group]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    return RolloutFnTrainOutput(groups, {"filter_drop_rate": 0.25, "avg_response_length": mean})


def make_eval_output(
    datasets: Mapping[str, int] | None = None,
    *,
    n_samples_per_prompt: int = 2,
    seed: int = 0,
    **fields: Any,
) -> RolloutFnEvalOutput:
    """Return an eval as slime makes it: no groups, ``index`` from 0 in each dataset.

    Args:
        datasets: dataset name -> number of prompts; two small ones by default.
        n_samples_per_prompt: samples of each prompt, next to one another.
        seed: another seed gives other responses, but the same prompts: an eval asks the same again.
        **fields: further arguments of ``make_sample``, the same for all.
    """
    data: dict[str, dict[str, Any]] = {}
    for name, n_prompts in ({"gsm8k": 3, "aime": 2} if datasets is None else datasets).items():
        samples = [
            make_sample(index, seed=seed, prompt_seed=f"{name}/{index // n_samples_per_prompt}", **fields)
            for index in range(n_prompts * n_samples_per_prompt)
        ]
        data[name] = {
            "rewards": [sample.reward for sample in samples],
            "truncated": [sample.status is Sample.Status.TRUNCATED for sample in samples],
            "samples": samples,
        }
    return RolloutFnEvalOutput(data, {f"{name}_n": len(each["samples"]) for name, each in data.items()})


def _respond(sample: Sample, random: Random, n_tokens: int, n_turns: int, weight_version: str) -> None:
    mask: list[int] = []
    for turn in range(n_turns):
        n_tool = _TOOL_TOKENS if turn else 0
        mask += [0] * n_tool + [1] * max(0, n_tokens // n_turns - n_tool)
    mask = (mask + [1] * n_tokens)[:n_tokens]
    sample.tokens += _token_ids(random, n_tokens)
    sample.response = " ".join(random.choices(_WORDS, k=max(1, n_tokens // 2)))
    sample.response_length = n_tokens
    sample.reward = float(random.random() < 0.5)
    sample.loss_mask = mask
    sample.weight_versions = [weight_version] * n_turns
    # through float32 and back: the engine computes in float32 and hands out Python floats
    exact = array("f", [-(random.expovariate(2.0) ** 3) for _ in range(n_tokens)]).tolist()
    sample.rollout_log_probs = [value if kept else 0.0 for value, kept in zip(exact, mask, strict=True)]
    sample.prefix_cache_info = Sample.PrefixCacheInfo(n_tokens // 2, n_tokens)
    sample.spec_info = Sample.SpecInfo(n_tokens // 2, n_tokens, n_tokens // 4, n_tokens)
    sample.non_generation_time = random.random() if n_turns > 1 else 0.0


def _token_ids(random: Random, count: int) -> list[int]:
    return [int(_VOCABULARY_SIZE ** random.random()) - 1 for _ in range(count)]
