"""Columns that several frames share."""

from __future__ import annotations

from dataclasses import replace

from slime_store.dataframes.columns import Column

RUN = Column("run", "text", "name of the run")
KIND = Column("kind", "text", '"train" or "eval"')
ROLLOUT_ID = Column("rollout_id", "int", "the number slime hands to `generate_rollout`")
ATTEMPT = Column(
    "attempt", "int", "which recording of this rollout id, from 1; by default only the newest complete one"
)
SESSION = Column("session", "int", "which process of the run recorded it, from 1; a restart is a new session")
DATASET = Column("dataset", "text", "name of the eval dataset; none for train")
GROUP_INDEX = Column("group_index", "int", "group, by the number slime gave it")
WEIGHT_VERSION = Column(
    "weight_version",
    "text",
    "label of the version that generated the end of it; for samples of an eval that name none, the one that the eval "
    "was recorded with",
)
REWARD = Column(
    "reward",
    "float",
    "the number; NaN for NaN, None and what is no number (`reward_type` says which). With `reward_key` in the filter: "
    "that entry of the dict reward",
)
RESPONSE_LENGTH = Column("response_length", "int", "length of the response, as the sample says", "tokens")
PROMPT_ID = Column(
    "prompt_id",
    "text",
    "16 hex digits that the prompt's content decides: the same in every store. `SampleFilter(prompt_id=...)` finds it",
)

ROLLOUT = (RUN, KIND, ROLLOUT_ID, ATTEMPT, SESSION)
"""Which rollout a row is of."""

N_SAMPLES = Column("n_samples", "int", "samples", "samples")
N_REWARDS = Column(
    "n_rewards", "int", "samples whose reward is a number and not NaN: those that means are of", "samples"
)
N_NONE = Column("n_none", "int", "samples whose reward is None", "samples")
N_NAN = Column("n_nan", "int", "samples whose reward is NaN", "samples")
REWARD_MEAN = Column("reward_mean", "float", "mean of the rewards; NaN when there is none")
REWARD_STD = Column(
    "reward_std",
    "float",
    "sample standard deviation of the rewards (n - 1, as in pandas and torch); NaN for fewer than two",
)
REWARD_MIN = Column("reward_min", "float", "lowest reward; NaN when there is none")
REWARD_MAX = Column("reward_max", "float", "highest reward; NaN when there is none")
TRUNCATED_SHARE = Column("truncated_share", "float", 'share of the samples with status "truncated"', "0 to 1")
RESPONSE_LENGTH_MEAN = Column(
    "response_length_mean", "float", "mean response length of the samples that have one; NaN without", "tokens"
)


def optional(column: Column) -> Column:
    """Return the column as one that is only there when it is asked for."""
    return replace(column, default=False)
