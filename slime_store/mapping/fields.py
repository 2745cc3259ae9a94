"""Where each attribute of a sample is stored: the one table that says it.

An attribute that is not in the table, known to nobody today, is stored in the sample's ``extra`` document. So is a
value that its home cannot hold exactly; ``extra`` always wins when a sample is read.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class Home(Enum):
    """The place where an attribute's exact value usually is."""

    INTEGER = "a BIGINT column of samples"
    SECONDS = "a DOUBLE column of samples"
    FLAG = "a BOOLEAN column of samples"
    STATUS = "samples.status"
    REWARD = "samples.reward and reward_type, sample_rewards"
    COUNTERS = "BIGINT columns of samples, one for each counter"
    PROMPT = "prompts"
    TEXT = "sample_texts"
    VERSIONS = "sample_weight_versions"
    ARRAY = "sample_arrays"
    METADATA = "sample_documents.metadata"
    EXTRA = "sample_documents.extra"


FIELDS: dict[str, Home] = {
    # slime's and miles's fields, in slime's order
    "group_index": Home.INTEGER,
    "index": Home.INTEGER,
    "rollout_id": Home.INTEGER,
    "prompt": Home.PROMPT,
    "tokens": Home.ARRAY,
    "multimodal_inputs": Home.EXTRA,
    "multimodal_train_inputs": Home.EXTRA,
    "multimodal_train_input_id": Home.EXTRA,
    "apply_chat_template_kwargs": Home.EXTRA,
    "response": Home.TEXT,
    "response_length": Home.INTEGER,
    "label": Home.TEXT,
    "reward": Home.REWARD,
    "loss_mask": Home.ARRAY,
    "weight_versions": Home.VERSIONS,
    "rollout_log_probs": Home.ARRAY,
    "rollout_top_p_token_ids": Home.ARRAY,
    "rollout_top_p_token_offsets": Home.ARRAY,
    "rollout_routed_experts": Home.ARRAY,
    "rollout_indexer_topk": Home.ARRAY,
    "remove_sample": Home.FLAG,
    "teacher_log_probs": Home.ARRAY,
    "opd_reverse_kl": Home.ARRAY,
    "status": Home.STATUS,
    "metadata": Home.METADATA,
    "generate_function_path": Home.EXTRA,
    "custom_rm_path": Home.EXTRA,
    "train_metadata": Home.EXTRA,
    "adapter": Home.EXTRA,
    "reward_spec": Home.EXTRA,
    "routing_key": Home.EXTRA,
    "session_id": Home.EXTRA,
    "non_generation_time": Home.SECONDS,
    "spec_info": Home.COUNTERS,
    "prefix_cache_info": Home.COUNTERS,
}

EMPTY_DICT_DEFAULTS = frozenset({"apply_chat_template_kwargs"})
"""Attributes at home in ``extra`` whose omitted value is ``{}``; of all others it is None.

Frozen: stored data relies on it.
"""

COUNTERS: dict[str, tuple[str, ...]] = {
    "spec_info": (
        "spec_accept_token_num",
        "spec_draft_token_num",
        "spec_verify_ct",
        "completion_token_num",
    ),
    "prefix_cache_info": ("cached_tokens", "total_prompt_tokens"),
}

INFO_CLASSES = {"spec_info": "SpecInfo", "prefix_cache_info": "PrefixCacheInfo"}

INTEGER_COLUMNS = {
    "group_index": "group_index",
    "index": "sample_index",
    "rollout_id": "execution_id",
    "response_length": "response_length",
}
"""Columns of the attributes at home in ``INTEGER``."""

ARRAY_FIELDS = tuple(name for name, home in FIELDS.items() if home is Home.ARRAY)

MAX_TEXT = 64 * 1024 * 1024
"""Longest text, in characters, that a TEXT column takes; of longer ones, kept as blobs, it holds the beginning."""

MAX_TURNS = 1 << 17
"""Most weight versions of one sample that are made of the numbers of turns; of more, ``extra`` holds the list."""


def columns_of(name: str) -> tuple[str, ...]:
    """Return the columns of ``samples`` that an attribute is read from; none for one that is stored elsewhere."""
    home = FIELDS.get(name, Home.EXTRA)
    if home is Home.INTEGER:
        return (INTEGER_COLUMNS[name],)
    if home is Home.COUNTERS:
        return COUNTERS[name]
    if home is Home.REWARD:
        return ("reward", "reward_type")
    if home is Home.PROMPT:
        return ("prompt_pk",)
    return (name,) if home in (Home.SECONDS, Home.FLAG, Home.STATUS) else ()


def omitted_value(name: str) -> Any:
    """Return the value of an ``extra`` attribute that was left out of the document."""
    return {} if name in EMPTY_DICT_DEFAULTS else None


def is_omitted(name: str, value: Any) -> bool:
    """True when ``omitted_value`` gives this value back, so that it need not be stored."""
    if name in EMPTY_DICT_DEFAULTS:
        return type(value) is dict and not value
    return value is None
