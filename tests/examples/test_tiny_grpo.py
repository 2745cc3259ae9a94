"""The example as a user runs it: it records, reads back, checks, and says so with its exit code."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import tiny_grpo
from slime_store import Sample, SampleStore
from slime_store.testing import assert_same
from tiny.args import Args
from tiny.report import REWARD_BY_WEIGHT_VERSION

SMALL = Args(
    num_rollout=4, rollout_batch_size=4, n_samples_per_prompt=4, eval_interval=2, n_eval_prompts=8, dataset_size=10
)


@pytest.mark.slow
def test_quick_run_from_another_directory_records_verifies_and_learns(tmp_path: Path) -> None:
    script = Path(tiny_grpo.__file__)
    done = subprocess.run(
        [sys.executable, script, "--quick"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(script.parents[1])},  # the store need not be installed
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 train rollouts and 4 evals load back equal" in done.stdout
    assert "the mean reward rose" in done.stdout
    with closing(SampleStore.open(tmp_path / "runs" / "tiny_grpo.db", read_only=True)) as store:
        assert [(info.name, info.n_rollouts) for info in store.runs()] == [("tiny-grpo", 28)]


def test_rerun_adds_a_run_to_the_store_and_leaves_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tiny_grpo, "QUICK", SMALL)
    path = tmp_path / "demo.db"
    for _ in range(2):
        tiny_grpo.main(["--quick", "--store", str(path)])
    assert "Run 'tiny-grpo-2' goes to the existing store" in capsys.readouterr().out
    with closing(SampleStore.open(path, read_only=True)) as store:
        first, second = (store.run(name, create=False) for name in ("tiny-grpo", "tiny-grpo-2"))
        for rollout_id in range(SMALL.num_rollout):  # the same seed: the same samples
            assert_same(second.load_train(rollout_id), first.load_train(rollout_id))


def test_reward_that_does_not_rise_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tiny_grpo, "QUICK", replace(SMALL, lr=0.0))
    assert tiny_grpo.main(["--quick", "--store", str(tmp_path / "demo.db")]) == 1
    assert "FAILED to rise" in capsys.readouterr().out


def test_a_store_that_lacks_a_rollout_fails_the_check(tmp_path: Path) -> None:
    with closing(SampleStore.open(tmp_path / "demo.db")) as store:
        run = store.run("demo")
        control = tiny_grpo.train(replace(SMALL), run)
        control.assert_loads_back(run)
        run.delete_rollout(2)
        with pytest.raises(AssertionError, match=r"\('train', 2\)"):
            control.assert_loads_back(run)


def test_a_store_that_alters_a_value_fails_the_check(tmp_path: Path) -> None:
    with closing(SampleStore.open(tmp_path / "demo.db")) as store:
        run = store.run("demo")
        control = tiny_grpo.train(replace(SMALL), run)
        control.train[1].samples[2][3].reward = 2  # an int
        with pytest.raises(AssertionError):
            control.assert_loads_back(run)


def test_the_printed_sql_says_what_the_samples_say(tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    with closing(SampleStore.open(path)) as store:
        control = tiny_grpo.train(replace(SMALL), store.run("demo"))
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(REWARD_BY_WEIGHT_VERSION, {"run": "demo", "versions_per_bar": 1}).fetchall()

    def expected(rollout_id: int) -> tuple[object, ...]:
        samples = [sample for group in control.train[rollout_id].samples for sample in group]
        truncated = sum(sample.status is Sample.Status.TRUNCATED for sample in samples) / len(samples)
        reward = sum(sample.get_reward_value(SMALL) for sample in samples) / len(samples)
        return rollout_id + 1, rollout_id + 1, len(samples), pytest.approx(truncated), pytest.approx(reward)

    assert rows == [expected(rollout_id) for rollout_id in range(SMALL.num_rollout)]


def test_training_resumed_from_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path) -> None:
    args = replace(SMALL, save=str(tmp_path / "checkpoints"), save_interval=2)
    with closing(SampleStore.open(tmp_path / "demo.db")) as store:
        whole = tiny_grpo.train(replace(args), store.run("whole"))
        resumed = tiny_grpo.train(replace(args, start_rollout_id=2), store.run("resumed"))
    assert list(resumed.train) == [2, 3]
    for rollout_id, output in resumed.train.items():
        for group in output.samples:
            for sample in group:
                sample.weight_versions = [str(rollout_id + 1)]  # they start again at 1 in a new process, as in slime
        assert_same(output, whole.train[rollout_id])
