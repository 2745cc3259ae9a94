"""The plug-in inside miles's own rollout classes and data source, from the checkout that MILES_CHECKOUT names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from slime_store import SampleStore
from tests.plugins.modes import assert_nothing_is_lost, trained_prompts
from tests.plugins.processes import log_of, run_to_the_end, run_until_crash

pytestmark = pytest.mark.skipif(
    not os.environ.get("MILES_CHECKOUT"), reason="MILES_CHECKOUT does not name a checkout of miles"
)

LEGACY = {
    "function": "slime_store.plugins.miles.generate_rollout",
    "custom_generate_function_path": "tests.plugins.real_frameworks.hooks.generate_for_older_miles",
}
SAME: dict[str, dict[str, Any]] = {
    "plain": {},
    "async": {"loop": "async"},
    "group rewards": {"group_rm": True},
    "filter, async": {"dynamic_filter": True, "over_sampling_batch_size": 1, "loop": "async"},
    "older calling form": LEGACY,
    "a function where a class is the rule": {
        **LEGACY,
        "function": "tests.plugins.real_frameworks.miles.rollout",
        "slime_store_rollout_function_path": "miles.rollout.sglang_rollout.generate_rollout",
    },
}
FULLY_ASYNC = {
    "slime_store_rollout_function_path": "miles.rollout.fully_async_rollout.FullyAsyncRolloutFn",
    "rollout_all_samples_process_path": None,
    "eval_interval": 2,
}
TIMED: dict[str, dict[str, Any]] = {
    "partial rollout": {"partial_rollout": True, "over_sampling_batch_size": 7},
    "fully async": FULLY_ASYNC,
    "fully async, filter": {**FULLY_ASYNC, "dynamic_filter": True},
    "fully async, one slot a group": {**FULLY_ASYNC, "rollout_submission_granularity": "group", "loop": "async"},
}


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {"real": "miles", "settle": True, **given}


@pytest.mark.parametrize("name", SAME)
def test_training_has_the_history_of_an_uninterrupted_run(name: str, tmp_path: Path) -> None:
    options = _options(SAME[name])
    control = run_to_the_end(tmp_path / "control", **options)
    for at in (control.n_generated * 2 // 3, control.n_generated // 5):
        assert run_until_crash(tmp_path / "crashed", {"token": at}, **options)
    ledger = run_to_the_end(tmp_path / "crashed", **options)
    assert ledger.history == control.history
    assert "could not" not in log_of(tmp_path / "crashed")


@pytest.mark.parametrize("name", TIMED)
def test_no_prompt_is_lost_or_trained_twice(name: str, tmp_path: Path) -> None:
    options = _options({**TIMED[name], "token_seconds": 0.001})
    control = run_to_the_end(tmp_path / "control", **options)
    for at in (150, 60):
        assert run_until_crash(tmp_path / "crashed", {"token": at}, **options)
    ledger = run_to_the_end(tmp_path / "crashed", **options)
    assert_nothing_is_lost(ledger, options, trained_prompts(control))
    assert "could not" not in log_of(tmp_path / "crashed")


def test_the_engines_weight_versions_are_recorded_with_their_rollouts_and_evals(tmp_path: Path) -> None:
    run_to_the_end(tmp_path, **_options({"n_rollouts": 2, "eval_interval": 1}))
    with SampleStore.open(tmp_path / "store.db") as store:
        run = store.run("run", create=False)
        versions = {version.label: version.metadata for version in run.weight_versions()}
        assert versions["1"] == {"rollout_id": 0}
        assert versions["2"] == {"rollout_id": 1}
        with run._handle.reading() as connection:
            query = (
                "select rollouts.rollout_id, weight_versions.label from rollouts join weight_versions "
                "on weight_versions.id = rollouts.weight_version_pk where rollouts.kind = 'eval' order by 1"
            )
            assert [tuple(row) for row in connection.execute(sa.text(query))] == [(0, "eval 0"), (1, "eval 1")]
