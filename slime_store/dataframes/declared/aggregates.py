"""Frames with a row for each rollout, group, weight version or prompt."""

from __future__ import annotations

from dataclasses import replace

from slime_store.dataframes.columns import Column, Family, Frame
from slime_store.dataframes.declared.common import (
    ATTEMPT,
    DATASET,
    GROUP_INDEX,
    KIND,
    N_NAN,
    N_NONE,
    N_REWARDS,
    N_SAMPLES,
    PROMPT_ID,
    RESPONSE_LENGTH_MEAN,
    REWARD_MAX,
    REWARD_MEAN,
    REWARD_MIN,
    REWARD_STD,
    ROLLOUT,
    ROLLOUT_ID,
    RUN,
    SESSION,
    TRUNCATED_SHARE,
    WEIGHT_VERSION,
    optional,
)

PASS_AT = "pass_at_"
_REWARDS = (N_SAMPLES, N_REWARDS, N_NONE, N_NAN, REWARD_MEAN, REWARD_STD, REWARD_MIN, REWARD_MAX)
_REWARD_KEY = (
    "With `reward_key` in the filter, rewards are that entry of the dict rewards, and `n_none` counts samples "
    "without it."
)


def pass_at(k: int) -> Column:
    """Return the column of pass@k."""
    return Column(
        f"{PASS_AT}{k}",
        "float",
        f"unbiased estimate of the chance that at least one of {k} samples of a prompt is correct: its reward is "
        f"`threshold` or more; NaN where there are fewer than {k} rewards",
        "0 to 1",
    )


WEIGHT_VERSIONS = Frame(
    "weight_versions_df",
    'One row for each session, kind and weight version (`by="session"`), or for each kind and label (`by="label"`), in '
    "the order run, first use, train before eval; samples that name no version come last.",
    (
        RUN,
        replace(SESSION, meaning="the session that the version belongs to: labels begin anew in each; none by label"),
        KIND,
        replace(WEIGHT_VERSION, meaning="label; none: no version is known of these samples"),
        Column("ordinal", "int", "order of first use in the run, from 1; by label, of its first session"),
        *_REWARDS,
        TRUNCATED_SHARE,
        RESPONSE_LENGTH_MEAN,
        Column("first_rollout_id", "int", "lowest rollout id that has such a sample"),
        Column("last_rollout_id", "int", "highest rollout id that has such a sample"),
    ),
    notes=f"`reward` is the sample's own number, also in evals. {_REWARD_KEY} With infinite rewards of one sign the "
    "mean is infinite; with those of both, or with a reward beyond 1e100, there is no mean; in all of these no spread.",
)

GROUPS = Frame(
    "groups_df",
    "One row for each group of a train rollout, and for each prompt of a dataset of an eval, in the order of their "
    "first samples.",
    (
        *ROLLOUT,
        DATASET,
        Column("group_position", "int", "which group of the rollout, from 0; none for eval"),
        replace(GROUP_INDEX, meaning="group, by the number slime gave it, when its samples agree"),
        *_REWARDS,
        Column("zero_std", "flag", "all rewards are equal, so that GRPO learns nothing from it; none without rewards"),
        TRUNCATED_SHARE,
        RESPONSE_LENGTH_MEAN,
        optional(PROMPT_ID),
        optional(replace(WEIGHT_VERSION, meaning="last version of its first sample")),
    ),
    notes=f"{_REWARD_KEY} Segments of a fan-out count as samples. In evals the reward is the dataset's own, where it "
    "gives rewards. Then `pass_at_<k>` for each `k` asked for.",
)

ROLLOUTS = Frame(
    "rollouts_df",
    "One row for each rollout that holds a sample which the filter names, in the order run, train before eval, "
    "rollout_id, attempt.",
    (
        *ROLLOUT,
        Column("status", "text", '"complete"'),
        Column("n_groups", "int", "groups; 0 for eval"),
        replace(N_SAMPLES, meaning="all its samples, also those that the filter leaves out"),
        Column("n_trajectories", "int", "samples, segments of one fan-out counted once"),
        Column("n_tokens", "int", "prompts and responses", "tokens"),
        Column("n_bytes", "int", "what it takes in the store", "bytes"),
        replace(WEIGHT_VERSION, meaning="the version that an eval was recorded with; none for train"),
        Column("started_at", "time", "when recording began"),
        Column("finished_at", "time", "when it was stored"),
        Column("metrics", "json", "all metrics as JSON", default=False),
    ),
    (Family("metrics", "float", "a metric that is a number; NaN where it is none, is NaN, or is not there"),),
)

PROMPTS = Frame(
    "prompts_df",
    "One row for each prompt, rollout and dataset: the prompt's history, in the order prompt (by first appearance), "
    "run, train before eval, rollout_id, attempt.",
    (
        PROMPT_ID,
        *ROLLOUT,
        DATASET,
        replace(WEIGHT_VERSION, meaning="last version of its first sample"),
        *_REWARDS,
        TRUNCATED_SHARE,
        RESPONSE_LENGTH_MEAN,
        Column("prompt", "json", "the prompt; chat messages as JSON. Reads the prompts", default=False),
    ),
    notes=f"{_REWARD_KEY} In evals the reward is the dataset's own, where at least one of its rewards is a number.",
)

METRICS_WIDE = Frame(
    "metrics_df",
    'One row for each rollout, in the order of `rollouts_df` (`layout="wide"`).',
    (*ROLLOUT, Column("finished_at", "time", "when the rollout was stored", default=False)),
    (Family("metrics", "float", "a metric that is a number; NaN where it is none, is NaN, or is not there"),),
    notes="Then a column `metrics.<name>` for each metric that is a number in any rollout of the source, whatever the "
    "filter, in alphabetical order. Numbers are int, float, bool (1 and 0), numpy numbers and tensors of one element; "
    'inside dicts, the path is the name: `metrics.["eval","acc"]`, as `v_metrics` spells it.',
)

METRICS_LONG = Frame(
    "metrics_df",
    'One row for each rollout and metric that is a number (`layout="long"`).',
    (
        *ROLLOUT,
        Column("metric", "text", "its name; inside dicts, the path as a JSON list"),
        Column("value", "float", "its value; NaN is a value too"),
    ),
)

EVAL_SUMMARY = Frame(
    "eval_summary_df",
    "One row for each eval rollout and dataset, in the order run, rollout_id, attempt, and of the datasets.",
    (
        RUN,
        SESSION,
        ROLLOUT_ID,
        ATTEMPT,
        DATASET,
        replace(WEIGHT_VERSION, meaning="last version of its first sample, else the one the eval was recorded with"),
        N_SAMPLES,
        Column("n_prompts", "int", "distinct prompts"),
        N_REWARDS,
        Column("reward_mean", "float", "mean over the prompts of each prompt's mean reward"),
        Column("ci_low", "float", "lower end of the interval of `reward_mean`; NaN for fewer than two prompts"),
        Column("ci_high", "float", "upper end"),
        replace(TRUNCATED_SHARE, meaning="share of samples that the dataset's list, or else the status, calls so"),
        RESPONSE_LENGTH_MEAN,
    ),
    notes="The reward is the dataset's own `rewards` entry; of datasets that give none, the sample's; with "
    "`reward_key` in the filter, that entry. The interval is Student's t over the prompts' means: samples of the same "
    "prompt are not independent. A prompt that a dataset has twice is one prompt with twice the samples. "
    "`pass_at_<k>`, before `truncated_share`, is the mean over the prompts with at least k rewards, and NaN when these "
    "are fewer than half.",
)

EVAL_COMPARE = Frame(
    "eval_compare_df",
    "One row for each dataset and prompt that both evals have a reward for, in the order of the first.",
    (
        DATASET,
        PROMPT_ID,
        Column("before", "float", "mean reward of the prompt in the first eval"),
        Column("after", "float", "mean reward of the prompt in the second"),
        Column("delta", "float", "after - before"),
        Column("flip", "text", '"gained": solved after and not before; "lost": the other way round; else "same"'),
        Column("n_before", "int", "rewards in the first eval", default=False),
        Column("n_after", "int", "rewards in the second", default=False),
        Column("prompt", "json", "the prompt; chat messages as JSON. Reads the prompts", default=False),
    ),
    notes="A prompt is solved when at least half of its rewards are `threshold` or more. Rewards as in "
    "`eval_summary_df`.",
)

EVAL_COMPARE_SUMMARY = Frame(
    "eval_compare_summary_df",
    "One row for each dataset that both evals have.",
    (
        DATASET,
        Column("n_prompts", "int", "prompts that both have a reward for"),
        Column("before_mean", "float", "mean over these prompts of `before`"),
        Column("after_mean", "float", "mean over these prompts of `after`"),
        Column("delta_mean", "float", "mean of `delta`"),
        Column("ci_low", "float", "lower end of the confidence interval of `delta_mean`: Student's t over the prompts"),
        Column("ci_high", "float", "upper end"),
        Column("n_gained", "int", "prompts solved after and not before"),
        Column("n_lost", "int", "prompts solved before and not after"),
        Column("n_same", "int", "all others"),
        Column("n_before_only", "int", "prompts that only the first eval has a reward for"),
        Column("n_after_only", "int", "prompts that only the second eval has a reward for"),
    ),
)
