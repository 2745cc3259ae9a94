"""``python -m benchmarks.frames [--rollouts 200] [--samples 512]``: how fast questions are answered, and by which path.

Makes a store of that many rollouts, unless ``--store`` names one that it made before, and prints seconds, the best of
several turns. A small prompt and response a sample: no frame of scalars may read them, however long they are.
"""

from __future__ import annotations

import random
from typing import Any

from slime_store import Sample, SampleStore

GROUP = 8


def fill(store: SampleStore, n_rollouts: int, n_samples: int) -> None:
    """Record train rollouts of groups of eight, each by a new weight version, and an eval after every tenth."""
    run = store.run("bench")
    for rollout_id in range(n_rollouts):
        run.record_train(rollout_id, rollout(rollout_id, n_samples))
        if rollout_id % 10 == 0:
            data = {"samples": [sample for group in rollout(-1, 64) for sample in group]}
            run.record_eval(rollout_id, {"math": data}, weight_version=str(rollout_id))


def rollout(rollout_id: int, n_samples: int) -> list[list[Sample]]:
    """Return groups of samples with every scalar set."""
    source = random.Random(rollout_id)
    share = 0.3 + 0.4 * max(rollout_id, 0) / 1000
    return [
        [_sample(source, rollout_id, group, group * GROUP + i, share) for i in range(GROUP)]
        for group in range(n_samples // GROUP)
    ]


def _sample(source: random.Random, rollout_id: int, group: int, index: int, share: float) -> Sample:
    sample: Any = Sample(index=index, group_index=group, prompt=f"problem {group + rollout_id % 50 * 1000}")
    sample.response, sample.response_length = "so the sum is 42 " * 4, source.randrange(100, 4000)
    sample.reward = float(source.random() < share)
    sample.weight_versions = [str(max(rollout_id, 0))]
    sample.metadata = {"source": ("math", "code", "logic")[group % 3], "difficulty": source.randrange(5)}
    sample.status = Sample.Status.TRUNCATED if source.random() < 0.02 else Sample.Status.COMPLETED
    return sample  # type: ignore[no-any-return]
