"""A store of revision 0003 with data in it: 0004 gives its rollouts the aggregates that recording gives new ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from alembic import command
from alembic.config import Config

from slime_store import RolloutFnTrainOutput, Sample
from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, schema_change
from slime_store.schema import HEAD
from slime_store.schema.location import migrations_directory
from slime_store.testing import make_eval_output
from slime_store.testing.contract.opening import opened, run_of
from tests.services.tables import counts, row, rows

_SUMS = "n_samples, n_rewards, n_none, n_nan, reward_sum, reward_m2, reward_min, reward_max, n_truncated"
AGGREGATES = (
    f"SELECT rollout_pk, attribution, weight_version_pk, {_SUMS}, n_response_lengths, response_length_sum"
    " FROM rollout_weight_versions ORDER BY rollout_pk, attribution, COALESCE(weight_version_pk, 0)"
)
METRICS = "SELECT rollout_pk, depth, key, value FROM rollout_metrics ORDER BY rollout_pk, depth, key"
OURS = ("rollout_weight_versions", "rollout_metrics")
LATER = ("pins", "rollout_digests")


def downgrade(url: str) -> None:
    """Make the store one of revision 0003."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    engine = create_store_engine(StoreConfig.parse(url))
    with schema_change(engine) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0003")
    engine.dispose()


def fill(url: str) -> None:
    """Two sessions, two attempts, an eval and a journalled group; rewards, versions and metrics of every kind."""
    rng = np.random.default_rng(0)
    odd: list[Any] = [None, math.nan, True, 3, "x", {"score": 1.0}, math.inf, -1e200, 1e-200, 0.1, 1e100]
    metrics: dict[Any, Any] = {
        "a": 1,
        "b": np.float32(0.1),
        "c": torch.tensor([2.5]),
        "d": {"e": math.nan, "f": -math.inf},
    }
    metrics |= {"g": 2**70, "h": "text", "i": [1], "j": {1: 2.0, "k": 3.0}, "l": np.bool_(True), "m": np.uint16(9)}
    metrics |= {"k" * 601: 1.0, "n": 10**400, "o": torch.ones(2), "": 0.5, "p": {}, "$q": 4, "r": {"$s": 5}}
    for session in (1, 2):
        with run_of(url) as run:
            for rollout_id in (0, 1, session):
                groups = [
                    [
                        Sample(
                            reward=odd[i] if g == 0 and rollout_id and i < len(odd) else float(rng.normal(3, 0.01)),
                            weight_versions=[str(v) for v in rng.integers(1, 4, rng.integers(0, 4))],
                            response_length=int(rng.integers(0, 1000)),
                            status=Sample.Status.TRUNCATED if i % 3 else Sample.Status.COMPLETED,
                        )
                        for i in range(16)
                    ]
                    for g in range(3)
                ]
                run.record_train(rollout_id, RolloutFnTrainOutput(groups, metrics if rollout_id else None))
            run.record_eval(session, make_eval_output({"a": 5}, n_prompt_tokens=2, n_tokens=2), weight_version="7")
            journal = run.recovery.journal()
            journal.put(9, [Sample(reward=1.0, weight_versions=["1"])])
            journal.close()


def test_an_older_store_gets_the_aggregates_that_recording_would_have_made(store_url: str) -> None:
    fill(store_url)
    recorded, metrics, full = rows(store_url, AGGREGATES), rows(store_url, METRICS), counts(store_url)
    assert len(recorded) > 40 and len(metrics) > 40
    downgrade(store_url)
    old = counts(store_url)
    assert old == {name: n for name, n in full.items() if name not in (*OURS, *LATER)}
    with opened(store_url):
        pass
    assert row(store_url, "SELECT version_num FROM slime_store_version") == (HEAD,)
    upgraded = counts(store_url)
    assert {name: upgraded[name] for name in old} == old
    digests = rows(store_url, "SELECT prompt_id, digest FROM prompts")
    assert digests and all(prompt_id == digest.hex()[:16] for prompt_id, digest in digests)
    for found, expected in zip(rows(store_url, AGGREGATES), recorded, strict=True):
        for got, right in zip(found, expected, strict=True):
            assert got == right or got == pytest.approx(right, rel=1e-12, abs=1e-14), (found, expected)
    assert rows(store_url, METRICS) == metrics


def test_the_upgrade_of_a_store_without_rollouts_works(store_url: str) -> None:
    with run_of(store_url):
        pass
    downgrade(store_url)
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward=1.0)]])
    assert row(store_url, "SELECT weight_version, reward_mean FROM v_rewards_by_weight_version") == (None, 1.0)
