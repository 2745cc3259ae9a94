"""Hypothesis strategies for everything the store promises to keep exactly.

``documents()`` is any value, ``samples()`` any sample, ``train_outputs()`` and ``eval_outputs()`` whatever a
rollout function may return. The parts are in ``document_strategies``. Needs hypothesis, numpy, torch and Pillow.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch
from hypothesis import strategies as st

from slime_store.testing.document_strategies import (
    arrays,
    documents,
    images,
    numpy_scalars,
    scalar_values,
    tensors,
    text_values,
)
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample

__all__ = [
    "arrays",
    "documents",
    "eval_outputs",
    "images",
    "nested",
    "rewards",
    "samples",
    "tensors",
    "train_outputs",
]

_T = TypeVar("_T")
_MAX_TOKENS = 12


@cache
def rewards() -> st.SearchStrategy[Any]:
    """Rewards as reward functions return them: numbers of any type, None, text, dicts."""
    numbers = st.one_of(st.floats(), st.integers(), st.booleans(), numpy_scalars().filter(_is_number))
    keys = text_values() | st.sampled_from(["score", "math.acc", "a b", 'q"uote', "准确", ""])
    return st.one_of(
        st.none(),
        numbers,
        st.sampled_from(["correct", "1.0"]),
        st.dictionaries(keys, numbers | scalar_values(), max_size=3),
    )


def nested(leaves: st.SearchStrategy[_T]) -> st.SearchStrategy[list[Any]]:
    """Every nesting that rollout functions return: flat, two and three levels, ragged, empty."""
    flat = st.lists(leaves, max_size=4)
    groups = st.lists(flat, max_size=3)
    segments = st.lists(st.lists(flat, max_size=2), max_size=2)
    ragged = st.lists(st.lists(leaves | flat, max_size=3), max_size=3)
    return st.one_of(flat, groups, segments, ragged)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any sample: usual values in most fields, anything at all in some, undeclared attributes."""
    count = draw(st.integers(0, _MAX_TOKENS))
    values = draw(st.fixed_dictionaries({}, optional=_usual_fields(count)))
    values |= draw(st.dictionaries(st.sampled_from(_ANYTHING), documents(), max_size=1))
    sample = Sample(**values)
    for name, value in draw(st.dictionaries(_ATTRIBUTES, documents(), max_size=2)).items():
        setattr(sample, name, value)
    return sample


def train_outputs() -> st.SearchStrategy[RolloutFnTrainOutput]:
    """Any training output."""
    return st.builds(RolloutFnTrainOutput, nested(samples()), _metrics())


def eval_outputs() -> st.SearchStrategy[RolloutFnEvalOutput]:
    """Any eval output: no dataset or several, lists missing, longer or shorter, other keys."""
    dataset = st.fixed_dictionaries(
        {},
        optional={
            "rewards": st.lists(rewards(), max_size=3),
            "truncated": st.lists(st.booleans(), max_size=3),
            "samples": st.lists(samples(), max_size=3),
            "note": documents(),
        },
    )
    data = st.dictionaries(st.sampled_from(["gsm8k", "aime", "a b/c", "准确", ""]), dataset, max_size=3)
    return st.builds(RolloutFnEvalOutput, data, _metrics())


# fields whose value is declared to be anything, or that user code is known to fill with other types
_ANYTHING = (
    "metadata",
    "label",
    "prompt",
    "index",
    "multimodal_inputs",
    "multimodal_train_inputs",
    "train_metadata",
)
_ATTRIBUTES = st.sampled_from(["tool_call_count", "trace", "rollout_indexer_topk", "准确"])


@cache
def _usual_fields(count: int) -> dict[str, st.SearchStrategy[Any]]:
    def per_token(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | st.lists(values, min_size=count, max_size=count)

    ids = st.integers(0, 200_000)
    small = st.none() | st.integers(0, 2**33)
    log_probs = per_token(st.floats(width=32) | st.floats())
    mapping = st.dictionaries(text_values(), documents(), max_size=2)
    ragged_ids = st.lists(ids, max_size=8) | st.just(torch.arange(5, dtype=torch.int32))
    experts = st.integers(0, 3).map(
        lambda layers: np.arange(count * layers * 2, dtype=np.int32).reshape(count, layers, 2)
    )
    routed = st.one_of(
        st.none(), st.lists(st.lists(ids, max_size=3), max_size=3), experts, experts.map(torch.from_numpy)
    )
    return {
        "group_index": small,
        "index": small,
        "rollout_id": small,
        "prompt": text_values() | st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": text_values()})),
        "tokens": st.lists(ids, min_size=count, max_size=count + 4),
        "multimodal_inputs": st.none() | st.fixed_dictionaries({"images": st.none() | st.lists(images(), max_size=2)}),
        "multimodal_train_inputs": st.none() | st.fixed_dictionaries({"pixel_values": tensors()}),
        "multimodal_train_input_id": st.none() | text_values(),
        "apply_chat_template_kwargs": mapping,
        "response": text_values(),
        "response_length": st.just(count),
        "label": st.none() | text_values(),
        "reward": rewards(),
        "loss_mask": per_token(st.integers(0, 1)),
        "weight_versions": st.lists(st.sampled_from(["3", "13", "default"]), max_size=3),
        "rollout_log_probs": log_probs,
        "rollout_top_p_token_ids": st.none() | ragged_ids,
        "rollout_top_p_token_offsets": st.none() | ragged_ids,
        "rollout_routed_experts": routed,
        "remove_sample": st.booleans(),
        "teacher_log_probs": log_probs | st.just(torch.zeros(count)),
        "status": st.sampled_from(Sample.Status),
        "metadata": st.none() | mapping,
        "train_metadata": st.none() | mapping,
        "session_id": st.none() | text_values(),
        "non_generation_time": st.floats(0, 1e6),
        "spec_info": st.builds(Sample.SpecInfo, *[st.integers(0, 2**40)] * 4),
        "prefix_cache_info": st.builds(Sample.PrefixCacheInfo, *[st.integers(0, 2**40)] * 2),
    }


@cache
def _metrics() -> st.SearchStrategy[Any]:
    return st.none() | st.dictionaries(text_values(), scalar_values() | st.just(torch.tensor(1.0)), max_size=3)


def _is_number(value: Any) -> bool:
    return value.dtype.kind in "biuf"
