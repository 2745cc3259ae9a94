"""miles's real rollout classes, functions and data source, over the fake engine; MILES_CHECKOUT names the checkout."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from tests.plugins.fake_framework import train
from tests.plugins.real_frameworks import slime
from tests.plugins.real_frameworks.hooks import HERE
from tests.plugins.real_frameworks.stand_ins import Tokenizer, no_workers, use_checkout


def make_args(directory: Path, **options: Any) -> Namespace:
    """Return miles's arguments, with its modules loaded and its engine replaced."""
    use_checkout("miles")
    import miles.rollout.data_source as data_source
    import miles.rollout.inference_rollout.inference_rollout_common as common
    import miles.rollout.inference_rollout.inference_rollout_train as rollout_train
    import miles.rollout.sglang_rollout as sglang_rollout

    for module in (data_source, common, sglang_rollout):
        module.load_tokenizer = lambda *_, **__: Tokenizer()
        module.load_processor = lambda *_, **__: None
    rollout_train.get_worker_urls = no_workers
    rollout_train.dumper_utils.configure_sglang = no_workers

    async def get(url: str) -> Any:
        return {"workers": []}

    sglang_rollout.get = get
    args = train.make_args(directory, **{**slime.ARGUMENTS, **ARGUMENTS, **options})
    args.load, args.prompt_data = args.save, str(slime.prompts(directory, args.n_prompts))
    if args.dynamic_filter:
        args.dynamic_sampling_filter_path = f"{HERE}.dynamic_filter"
    return args


_functions: dict[int, Any] = {}


def rollout(args: Namespace, rollout_id: int, source: Any, evaluation: bool = False) -> Any:
    """Call the plug-in's rollout class as miles's rollout manager does."""
    from miles.rollout.base_types import RolloutFnConstructorInput, RolloutFnEvalInput, RolloutFnTrainInput
    from miles.rollout.inference_rollout.compatibility import call_rollout_function, load_rollout_function

    made = RolloutFnConstructorInput(args=args, data_source=source)
    function = _functions.get(id(source))
    if function is None:
        function = _functions[id(source)] = load_rollout_function(made, "slime_store.plugins.miles.StoreRolloutFn")
    asked: Any = (
        RolloutFnEvalInput(rollout_id=rollout_id, weight_version=f"eval {rollout_id}")
        if evaluation
        else RolloutFnTrainInput(rollout_id=rollout_id, weight_version=rollout_id + 1)
    )
    return call_rollout_function(function, asked)


ARGUMENTS: dict[str, Any] = {
    "function": f"{__name__}.rollout",
    "source": "slime_store.plugins.miles.StoreDataSource",
    "custom_generate_function_path": f"{HERE}.generate_for_miles",
    "chat_template_path": None,
    "sglang_router_policy": None,
    "use_miles_router": False,
    "rollout_submission_granularity": None,
    "custom_agent_function_path": None,
    "recompute_logprobs_via_prefill": False,
    "async_unused_samples_handler": "retry",
    "async_data_buffer_capacity_factor": 2.0,
    "async_max_concurrent_samples": None,
    "custom_async_data_buffer_path": None,
    "max_weight_staleness": None,
    "eval_datasets": [],
}
