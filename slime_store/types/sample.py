"""One prompt with its response, as slime's rollout functions return it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch

_InfoT = TypeVar("_InfoT", bound="_Counters")


class _Counters:
    """What ``SpecInfo`` and ``PrefixCacheInfo`` share: they are counters kept as a small dict."""

    def to_dict(self) -> dict[str, Any]:
        """Return the counters, and any attribute set beside them, by name."""
        return dict(self.__dict__)

    @classmethod
    def _from_dict(cls: type[_InfoT], data: Any) -> _InfoT:
        info = cls()
        info.__dict__.update(data if isinstance(data, Mapping) else data.to_dict())
        return info


@dataclass
class Sample:
    """One prompt-response pair and everything the trainer needs to know about it.

    The fields, their order and their defaults are those of slime's current ``Sample``; a dict made
    by either class's ``to_dict`` is taken by the other's ``from_dict``. Any other attribute may be
    set on an instance: it is part of ``to_dict`` and is kept by the store.

    With P prompt tokens and R response tokens, ``tokens`` has P + R entries and each per-token
    field of the response has R. The store does not enforce this: what was recorded comes back.

    Attributes:
        group_index: the group, shared by all responses to one prompt. None in evals.
        index: number of the sample, unique over a training run. Evals count from 0 per dataset,
            and the segments of one execution share it.
        rollout_id: id of the *execution* the sample was split from, not the step; the same on all
            its segments. The store's queries call it ``execution_id``.
        prompt: text, or chat messages with ``role`` and ``content``.
        tokens: prompt and response token ids, P + R.
        multimodal_inputs: raw media, e.g. ``{"images": [PIL.Image, ...], "videos": [...]}``.
        multimodal_train_inputs: the processor's output, e.g. ``pixel_values`` as a tensor.
        multimodal_train_input_id: names processor output that is kept elsewhere.
        apply_chat_template_kwargs: keyword arguments the chat template was applied with.
        response: the generated text.
        response_length: number of generated tokens, R.
        label: the ground truth.
        reward: one number, or several objectives by name. None until rewarded.
        loss_mask: R entries, 1 counts in the loss and 0 does not. None trains on all of them.
        weight_versions: weight versions that generated the response, one per generation call.
        rollout_log_probs: R natural logarithms, from the rollout engine.
        rollout_top_p_token_ids: kept token ids of top-p sampling, all response tokens joined.
        rollout_top_p_token_offsets: R + 1 offsets; token i kept ``ids[offsets[i]:offsets[i + 1]]``.
        rollout_routed_experts: expert ids for routing replay, shape (P + R - 1, layers, top_k).
        remove_sample: keep the sample out of training.
        teacher_log_probs: R natural logarithms, from the teacher of an on-policy distillation.
        status: how far generation came.
        metadata: anything.
        generate_function_path: generate function used in place of the run's.
        custom_rm_path: reward function used in place of the run's.
        train_metadata: what training needs beside the data, e.g. which loss to use.
        session_id: key for consistent-hashing routing.
        non_generation_time: seconds spent outside generation, e.g. in tools.
        spec_info: counters of speculative decoding.
        prefix_cache_info: counters of the prefix cache.
    """

    class Status(Enum):
        """How far the generation of a sample came."""

        PENDING = "pending"  # not generated
        COMPLETED = "completed"
        TRUNCATED = "truncated"  # hit the length limit
        ABORTED = "aborted"  # stopped by the system; may be continued in a later rollout
        FAILED = "failed"  # a recoverable failure, e.g. of a tool; may hold usable output

    @dataclass
    class SpecInfo(_Counters):
        """Counters of speculative decoding, summed over a sample's generation calls.

        Attributes:
            spec_accept_token_num: draft tokens accepted.
            spec_draft_token_num: draft tokens proposed.
            spec_verify_ct: verification steps.
            completion_token_num: tokens generated.
        """

        spec_accept_token_num: int = 0
        spec_draft_token_num: int = 0
        spec_verify_ct: int = 0
        completion_token_num: int = 0

        @property
        def spec_accept_rate(self) -> float:
            """Accepted over proposed draft tokens; 0.0 when none was proposed."""
            return _ratio(self.spec_accept_token_num, self.spec_draft_token_num)

        @property
        def spec_accept_length(self) -> float:
            """Tokens generated per verification step; 0.0 without any."""
            return _ratio(self.completion_token_num, self.spec_verify_ct)

        def add(self, meta_info: Mapping[str, Any]) -> None:
            """Add what the engine's ``meta_info`` reports of one call (``completion_tokens`` there)."""
            self.spec_accept_token_num += meta_info.get("spec_accept_token_num", 0)
            self.spec_draft_token_num += meta_info.get("spec_draft_token_num", 0)
            self.spec_verify_ct += meta_info.get("spec_verify_ct", 0)
            self.completion_token_num += meta_info.get("completion_tokens", 0)

        @staticmethod
        def from_dict(data: Mapping[str, Any]) -> Sample.SpecInfo:
            """Return the counters in ``data``; a missing one is 0, an unknown key an attribute."""
            return Sample.SpecInfo._from_dict(data)

    @dataclass
    class PrefixCacheInfo(_Counters):
        """Counters of the engine's prefix cache, summed over a sample's generation calls.

        Attributes:
            cached_tokens: prompt tokens found in the cache.
            total_prompt_tokens: prompt tokens sent.
        """

        cached_tokens: int = 0
        total_prompt_tokens: int = 0

        @property
        def prefix_cache_hit_rate(self) -> float:
            """Cached over sent prompt tokens; 0.0 when none was sent."""
            return _ratio(self.cached_tokens, self.total_prompt_tokens)

        def add(self, meta_info: Mapping[str, Any]) -> None:
            """Add what the engine's ``meta_info`` reports of one call (``prompt_tokens`` there)."""
            self.cached_tokens += meta_info.get("cached_tokens", 0)
            self.total_prompt_tokens += meta_info.get("prompt_tokens", 0)

        @staticmethod
        def from_dict(data: Mapping[str, Any]) -> Sample.PrefixCacheInfo:
            """Return the counters in ``data``; a missing one is 0, an unknown key an attribute."""
            return Sample.PrefixCacheInfo._from_dict(data)

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, Any]] = ""
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    multimodal_train_input_id: str | None = None
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_top_p_token_ids: list[int] | torch.Tensor | None = None
    rollout_top_p_token_offsets: list[int] | torch.Tensor | None = None
    rollout_routed_experts: list[list[int]] | torch.Tensor | np.ndarray[Any, Any] | None = None
    remove_sample: bool = False
    teacher_log_probs: list[float] | None = None
    status: Status = Status.PENDING
    metadata: dict[Any, Any] = field(default_factory=dict)
    generate_function_path: str | None = None
    custom_rm_path: str | None = None
    train_metadata: dict[str, Any] | None = None
    session_id: str | None = None
    non_generation_time: float = 0.0
    spec_info: SpecInfo = field(default_factory=SpecInfo)
    prefix_cache_info: PrefixCacheInfo = field(default_factory=PrefixCacheInfo)

    def get_reward_value(self, args: Any) -> float:
        """Return the reward that training uses.

        Args:
            args: slime's arguments. ``args.reward_key`` names the entry of a dict reward; without
                one the reward itself is returned.

        Raises:
            KeyError: the reward has no entry of that name.
        """
        reward: Any = self.reward
        return reward[args.reward_key] if args.reward_key else reward  # type: ignore[no-any-return]

    @property
    def effective_response_length(self) -> int:
        """Number of response tokens that count in the loss; all of them without a mask."""
        return self.response_length if self.loss_mask is None else sum(self.loss_mask)

    def to_dict(self) -> dict[str, Any]:
        """Return every attribute by name, declared or not, as slime's dumps hold them.

        ``status`` becomes its word, ``spec_info`` and ``prefix_cache_info`` become dicts. The rest is
        shared with the sample, not copied.
        """
        data = dict(self.__dict__)
        data["status"] = self.status.value
        data["spec_info"] = self.spec_info.to_dict()
        data["prefix_cache_info"] = self.prefix_cache_info.to_dict()
        return data

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Sample:
        """Return the sample that ``to_dict`` of this class, slime's or miles's described.

        Keys that are no field become attributes; a missing key leaves its default, ``status`` too.
        Values are shared with ``data``, not copied.

        Raises:
            ValueError: ``status`` is a word that is not known.
        """
        known = {name: data[name] for name in _FIELD_NAMES if name in data}
        if "status" in known:
            known["status"] = _to_status(known["status"])
        if "spec_info" in known:
            known["spec_info"] = Sample.SpecInfo.from_dict(known["spec_info"])
        if "prefix_cache_info" in known:
            known["prefix_cache_info"] = Sample.PrefixCacheInfo.from_dict(known["prefix_cache_info"])
        sample = Sample(**known)
        for name, value in data.items():
            if name not in _FIELD_NAMES:
                setattr(sample, name, value)
        return sample


_FIELD_NAMES = {item.name: None for item in fields(Sample)}  # a dict: constant look-up, in order


def _to_status(value: Any) -> Sample.Status:
    word = value.value if isinstance(value, Enum) else value  # slime's own member is as good
    try:
        return Sample.Status(word)
    except ValueError:
        known = ", ".join(repr(status.value) for status in Sample.Status)
        raise ValueError(f"unknown sample status {word!r}; known are {known}") from None


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0
