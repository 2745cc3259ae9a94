"""A store with everything that the examples of the commands ask for."""

from __future__ import annotations

from slime_store import RolloutFnTrainOutput
from slime_store.testing import make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import run_of

RUN = "qwen3-4b-dapo"


def fill(url: str) -> None:
    """Record rollouts 0, 10, 40 and 100, the last three with an eval; of 40 half is truncated."""
    with run_of(url, "older"):
        pass
    with run_of(url, RUN) as run:
        run.record_eval(0, make_eval_output({"gsm8k": 4, "aime": 2}, seed=1, weight_version="1"))
        for rollout_id in (0, 10, 40, 100):
            output = make_train_output(2, 9, seed=rollout_id, weight_version=str(rollout_id))
            if rollout_id == 40:
                for sample in output.samples[0]:
                    sample.status = type(sample).Status.TRUNCATED
            output.metrics["raw_reward"] = rollout_id / 100
            run.record_train(rollout_id, output)
        alike = [make_sample(i, group_index=0, reward=1.0, weight_version="100") for i in range(3)]
        run.record_train(101, RolloutFnTrainOutput([alike]))
        for rollout_id in (40, 100):
            output = make_eval_output({"gsm8k": 4, "aime": 2}, seed=rollout_id, weight_version=str(rollout_id))
            run.record_eval(rollout_id, output)
