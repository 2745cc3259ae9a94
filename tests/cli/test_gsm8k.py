"""The commands on real answers: four models' solutions of GSM8K, one eval for each model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from slime_store.testing.contract.opening import run_of
from tests.cli.conftest import Command
from tests.services.outside import DATA_VARIABLE, gsm8k_path
from tests.store.test_gsm8k import MODELS, evaluation


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    path = gsm8k_path()
    if not path.exists():
        pytest.skip(f"there is no {path}; {DATA_VARIABLE} names its folder")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_the_commands_say_what_the_file_says(
    command: Command, store_url: str, tmp_path: Path, problems: list[dict[str, Any]]
) -> None:
    with run_of(store_url, "gsm8k") as run:
        for rollout_id, model in enumerate(MODELS):
            run.record_eval(rollout_id, evaluation(problems, model), weight_version=model)
    right = {model: [problem[model]["is_correct"] for problem in problems] for model in MODELS}
    shares = {model: pytest.approx(sum(some) / len(problems)) for model, some in right.items()}

    rewards = json.loads(command("rewards", "gsm8k", "--format", "json").stdout)
    assert {row["weight_version"]: row["reward_mean"] for row in rewards} == shares

    before, after = MODELS.index("6b_finetuning"), MODELS.index("175b_verification")
    flips = json.loads(command("eval", "compare", "gsm8k", str(before), str(after), "--format", "json").stdout)
    pairs = list(zip(right["6b_finetuning"], right["175b_verification"], strict=True))
    for flip, pair in (("gained", (False, True)), ("lost", (True, False))):
        assert sum(row["flip"] == flip for row in flips) == pairs.count(pair) > 0

    file = tmp_path / "evals.parquet"
    assert command("eval", "export", "gsm8k", "--format", "parquet", "--out", str(file)).exit_code == 0
    found = duckdb.sql(f"SELECT weight_version, avg(eval_reward) FROM '{file}' GROUP BY weight_version").fetchall()
    assert dict(found) == shares
