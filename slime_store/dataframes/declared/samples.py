"""Frames with a row for each sample."""

from __future__ import annotations

from slime_store.dataframes.columns import Column, Family, Frame
from slime_store.dataframes.declared.common import (
    DATASET,
    GROUP_INDEX,
    PROMPT_ID,
    RESPONSE_LENGTH,
    REWARD,
    ROLLOUT,
    WEIGHT_VERSION,
    optional,
)

_POSITION = Column("position", "int", "order in the rollout, from 0: with the rollout it names the sample")
_INDEX = Column("index", "int", "`Sample.index`; not unique, and not always set")
_STATUS = Column("status", "text", 'the plain word, e.g. "completed", "truncated", "aborted"')
_REWARD_TYPE = Column("reward_type", "text", "none, float, nan, int, bool, str, dict or other")
_EVAL = (
    Column("eval_reward", "float", "what the dataset's own `rewards` list says of the sample; NaN for None and NaN"),
    Column("eval_truncated", "flag", "what the dataset's own `truncated` list says of it"),
)
_LENGTHS = (
    Column("effective_response_length", "int", "sum of the loss mask; without one the response length", "tokens"),
    Column("n_tokens", "int", "prompt and response", "tokens"),
)
_OPTIONAL = (
    Column("first_weight_version", "text", "label of the version that generated its beginning", default=False),
    Column("group_position", "int", "which group of the rollout, from 0; none for eval", default=False),
    Column("sample_position", "int", "which execution of its group, from 0", default=False),
    Column("segment_position", "int", "which segment of an execution that was split", default=False),
    Column("execution_id", "int", "`Sample.rollout_id`: shared by siblings of a fan-out, not the step", default=False),
    Column("non_generation_time", "float", "time outside the engine, as the sample says", "seconds", default=False),
    Column("spec_accept_token_num", "int", "accepted by speculative decoding", "tokens", default=False),
    Column("spec_draft_token_num", "int", "drafted by speculative decoding", "tokens", default=False),
    Column("spec_verify_ct", "int", "verifications of speculative decoding", default=False),
    Column("completion_token_num", "int", "completed while decoding speculatively", "tokens", default=False),
    Column("cached_tokens", "int", "prompt tokens that the prefix cache had", "tokens", default=False),
    Column("total_prompt_tokens", "int", "prompt tokens that were asked of the prefix cache", "tokens", default=False),
    optional(PROMPT_ID),
    Column("prompt", "json", "the prompt; chat messages as JSON. Reads the prompts", default=False),
    Column(
        "response",
        "text",
        "the generated text; U+2400 for NUL, U+FFFD for lone surrogates. Reads the texts",
        default=False,
    ),
    Column("label", "json", "the label; what is no text as JSON. Reads the texts and documents", default=False),
    Column("reward_json", "json", "the whole reward: dicts and lists as JSON. Reads the documents", default=False),
    Column("metadata", "json", "the whole metadata as JSON. Reads the documents", default=False),
)
_FAMILIES = (
    Family(
        "metadata",
        "json",
        "a top-level entry of the metadata: text as it is, anything else as JSON; none for None and where the sample "
        "lacks the key. Reads the documents",
    ),
    Family("reward", "float", "an entry of dict rewards; NaN where it is no number, is NaN, or is not there"),
)
_ORDER = "run, train before eval, rollout_id, attempt, position"

SAMPLES = Frame(
    "samples_df",
    f"One row for each sample, in the order {_ORDER}.",
    (
        *ROLLOUT,
        DATASET,
        _POSITION,
        GROUP_INDEX,
        _INDEX,
        _STATUS,
        REWARD,
        _REWARD_TYPE,
        WEIGHT_VERSION,
        RESPONSE_LENGTH,
        *_LENGTHS,
        Column("removed", "flag", "`remove_sample` is set: not trained on"),
        *map(optional, _EVAL),
        *_OPTIONAL,
    ),
    _FAMILIES,
)

EVAL = Frame(
    "eval_df",
    f"One row for each sample of an eval, in the order {_ORDER}.",
    (
        *ROLLOUT,
        DATASET,
        _POSITION,
        GROUP_INDEX,
        _INDEX,
        _STATUS,
        REWARD,
        _REWARD_TYPE,
        *_EVAL,
        WEIGHT_VERSION,
        RESPONSE_LENGTH,
        *map(optional, _LENGTHS),
        Column("removed", "flag", "`remove_sample` is set", default=False),
        *_OPTIONAL,
    ),
    _FAMILIES,
)
