"""slime's real rollout functions and data source, over the fake engine; SLIME_CHECKOUT names the checkout."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from tests.plugins.fake_framework import train
from tests.plugins.real_frameworks.hooks import HERE, StreamingClient
from tests.plugins.real_frameworks.stand_ins import Tokenizer, no_workers, use_checkout

STREAMING = "slime.rollout.sglang_streaming_rollout.generate_streaming"


def make_args(directory: Path, **options: Any) -> Namespace:
    """Return slime's arguments, with its modules loaded and its engine replaced."""
    use_checkout("slime")
    import slime.rollout.data_source as data_source
    import slime.rollout.sglang_rollout as sglang_rollout
    import slime.utils.http_utils as http_utils

    for module in (data_source, sglang_rollout):
        module.load_tokenizer = lambda *_, **__: Tokenizer()
        module.load_processor = lambda *_, **__: None

    async def get(url: str) -> Any:
        return {"workers": []}

    sglang_rollout.get = get
    sglang_rollout.abort_servers_until_idle = no_workers
    http_utils._http_client = StreamingClient()
    args = train.make_args(directory, **{**ARGUMENTS, **options})
    args.load, args.prompt_data = args.save, str(prompts(directory, args.n_prompts))
    if args.dynamic_filter:
        args.dynamic_sampling_filter_path = f"{HERE}.dynamic_filter"
    return args


def prompts(directory: Path, n: int) -> Path:
    file = directory / "prompts.jsonl"
    if not file.exists():
        file.write_text("".join(json.dumps({"text": f"prompt {i}", "label": str(i)}) + "\n" for i in range(n)))
    return file


ARGUMENTS: dict[str, Any] = {
    "function": "slime_store.plugins.slime.generate_rollout",
    "source": "slime_store.plugins.slime.StoreDataSource",
    "rollout_global_dataset": True,
    "hf_checkpoint": "none",
    "dump_details": None,
    "rollout_max_prompt_len": None,
    "input_key": "text",
    "label_key": "label",
    "metadata_key": "metadata",
    "multimodal_keys": None,
    "tool_key": None,
    "apply_chat_template": False,
    "apply_chat_template_kwargs": None,
    "buffer_filter_path": None,
    "mask_offpolicy_in_partial_rollout": False,
    "dynamic_sampling_filter_path": None,
    "rollout_sample_filter_path": None,
    "rollout_all_samples_process_path": f"{HERE}.note_all",
    "rollout_sample_hook_path": None,
    "custom_generate_function_path": f"{HERE}.generate_for_slime",
    "custom_rm_path": f"{HERE}.reward",
    "rm_type": None,
    "reward_key": None,
    "eval_reward_key": None,
    "sglang_server_concurrency": 8,
    "sglang_dp_size": 1,
    "sglang_router_ip": "127.0.0.1",
    "sglang_router_port": 1,
    "rollout_num_gpus": 1,
    "rollout_num_gpus_per_engine": 1,
    "rollout_num_engines": 1,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "rollout_max_response_len": 100,
    "rollout_stop": None,
    "rollout_stop_token_ids": None,
    "rollout_skip_special_tokens": True,
    "use_rollout_routing_replay": False,
    "ci_test": False,
}
