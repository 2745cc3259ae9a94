"""What must agree between two sessions for one to be handed the other's rollouts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from slime_store.plugins.stable import stable_text
from slime_store.plugins.state import dataset_fingerprint

ARGUMENTS = (
    # the model and the data
    "hf_checkpoint", "ref_load", "prompt_data", "input_key", "label_key", "metadata_key", "tool_key",
    "multimodal_keys", "apply_chat_template", "apply_chat_template_kwargs", "rollout_seed", "rollout_shuffle",
    # what a rollout is
    "rollout_batch_size", "n_samples_per_prompt", "over_sampling_batch_size", "rollout_temperature", "rollout_top_p",
    "rollout_top_k", "rollout_max_response_len", "rollout_max_prompt_len", "rollout_max_context_len", "rollout_stop",
    "rollout_stop_token_ids", "partial_rollout", "mask_offpolicy_in_partial_rollout", "group_rm", "rm_type",
    "reward_key", "custom_rm_path", "custom_generate_function_path", "dynamic_sampling_filter_path",
    "rollout_sample_filter_path", "buffer_filter_path", "update_weights_interval",
    # what training makes of it
    "seed", "lr", "lr_decay_style", "weight_decay", "optimizer", "global_batch_size", "num_steps_per_rollout",
    "advantage_estimator", "gamma", "lambd", "eps_clip", "eps_clip_high", "kl_coef", "kl_loss_coef", "use_kl_loss",
    "entropy_coef", "loss_type", "normalize_advantages", "use_tis", "custom_loss_function_path",
)  # fmt: skip
"""Arguments that shape what is generated from a checkpoint on, or what is trained from it."""

_SECRETS = ("api_key", "wandb_key", "password", "secret", "auth_token", "access_token")


def lineage_of(args: Any, source: Any, ignore: Collection[str] = ()) -> dict[str, Any]:
    """Return the lineage of a session: those of ``ARGUMENTS`` that the framework has, and the dataset's fingerprint."""
    given = vars(args) if args is not None else {}
    lineage = {name: _plain(given[name]) for name in ARGUMENTS if name in given and name not in ignore}
    fingerprint = dataset_fingerprint(source)
    if fingerprint is not None and "dataset" not in ignore:
        lineage["dataset"] = fingerprint
    return lineage


def describe_args(args: Any) -> dict[str, Any]:
    """Return the framework's plain arguments, without those whose name says that they hold a secret."""
    plain = (bool, int, float, str, type(None))
    described = {}
    for name, value in sorted(vars(args).items()):
        if any(word in name.lower() for word in _SECRETS) or name == "slime_store_url":
            continue
        if isinstance(value, plain) or (isinstance(value, (list, tuple)) and all(isinstance(v, plain) for v in value)):
            described[name] = list(value) if isinstance(value, tuple) else value
    return described


def _plain(value: Any) -> Any:
    """The value if a document can hold it plainly, else its text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return stable_text(value)
