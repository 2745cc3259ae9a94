"""The plug-in inside slime's own rollout loops and data source, from the checkout that SLIME_CHECKOUT names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.modes import assert_nothing_is_lost, trained_prompts
from tests.plugins.processes import log_of, run_to_the_end, run_until_crash
from tests.plugins.real_frameworks.slime import STREAMING

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not os.environ.get("SLIME_CHECKOUT"), reason="SLIME_CHECKOUT does not name a checkout of slime"
)

SAME: dict[str, dict[str, Any]] = {
    "plain": {},
    "async": {"loop": "async"},
    "streaming": {"custom_generate_function_path": STREAMING},
    "group rewards, async": {"group_rm": True, "loop": "async"},
    "fan-out": {"fan_out": True},
    "filter": {"dynamic_filter": True, "over_sampling_batch_size": 1},
    "no buffer": {"slime_store_data_source_path": "slime.rollout.data_source.RolloutDataSource"},
    "exact end of an epoch, async": {"n_prompts": 8, "loop": "async"},
}
TIMED: dict[str, dict[str, Any]] = {
    "partial rollout": {"partial_rollout": True, "over_sampling_batch_size": 7},
    "partial rollout, filter, async": {
        "partial_rollout": True, "over_sampling_batch_size": 6, "dynamic_filter": True, "loop": "async",
    },
    "fully async": {
        "slime_store_rollout_function_path": "slime.rollout.fully_async_rollout.generate_rollout_fully_async",
        "rollout_all_samples_process_path": None,
    },
}  # fmt: skip


def _options(given: dict[str, Any]) -> dict[str, Any]:
    return {"real": "slime", "settle": True, **given}


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


CONTRACTS = {
    "test_plugin_rollout_contracts.py": {
        "SLIME_CONTRACT_ROLLOUT_FUNCTION_PATH": "slime_store.plugins.slime.generate_rollout",
        "SLIME_STORE_ROLLOUT_FUNCTION_PATH": "plugin_contracts.test_plugin_rollout_contracts.valid_rollout_function",
    },
    "test_plugin_path_loading_contracts.py": {
        "SLIME_CONTRACT_EVAL_FUNCTION_PATH": "slime_store.plugins.slime.generate_rollout",
        "SLIME_CONTRACT_DATA_SOURCE_PATH": "slime_store.plugins.slime.StoreDataSource",
        "SLIME_STORE_EVAL_FUNCTION_PATH": "plugin_contracts.test_plugin_path_loading_contracts.valid_eval_function",
    },
    "test_plugin_generate_contracts.py": {},
    "test_plugin_runtime_hook_contracts.py": {},
}


@pytest.mark.parametrize("file", CONTRACTS)
def test_slimes_own_contracts_hold(file: str, tmp_path: Path) -> None:
    checkout = Path(os.environ["SLIME_CHECKOUT"])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, checkout, checkout / "tests"])),
        "SLIME_STORE_URL": str(tmp_path / "store.db"),
        "SLIME_STORE_RUN": "contracts",
        **CONTRACTS[file],
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/plugin_contracts/{file}"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
