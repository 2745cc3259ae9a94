"""The example as a user runs it: it records, crashes, resumes, checks, and says so with its exit code."""

from __future__ import annotations

import copy
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny_grpo
from slime_store import Sample, SampleStore
from tests.examples.runs import SMALL, Training
from tiny import verdict
from tiny.checkpoints import checkpoint_path, last_checkpoint, load_checkpoint
from tiny.experiment import Outcome
from tiny.report import REWARD_BY_WEIGHT_VERSION


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Training:
    """A run that was recorded and not killed."""
    training = Training(tmp_path_factory.mktemp("trained"))
    training.finish()
    return training


@pytest.mark.slow
def test_quick_run_from_another_directory_is_killed_resumes_and_learns(tmp_path: Path) -> None:
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
    assert done.stderr == ""
    assert "SIGKILL to training process" in done.stdout
    assert "24 train rollouts and 4 evals load back equal" in done.stdout
    assert "they are equal, bit for bit" in done.stdout
    assert "the mean reward rose" in done.stdout
    assert done.stdout.count("slime-store ") == 3 and "slime-store eval compare tiny-grpo 0 23\n" in done.stdout
    with closing(SampleStore.open(tmp_path / "runs" / "tiny_grpo.db", read_only=True)) as store:
        assert [(info.name, info.n_rollouts) for info in store.runs()] == [("tiny-grpo", 28)]


def test_rerun_adds_a_run_to_the_store_and_a_reward_that_does_not_rise_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "demo.db"
    for lr in (SMALL.lr, 0.0):
        monkeypatch.setattr(tiny_grpo, "QUICK", replace(SMALL, lr=lr))
        code = tiny_grpo.main(["--quick", "--store", str(path)])
    out = capsys.readouterr().out
    assert code == 1
    assert "FAILED to rise" in out
    assert "slime_store_run: tiny-grpo-2" in out
    assert "8 train rollouts and 3 evals load back equal" in out
    with closing(SampleStore.open(path, read_only=True)) as store:
        assert [(info.name, info.n_rollouts) for info in store.runs()] == [("tiny-grpo", 11), ("tiny-grpo-2", 11)]


def test_a_store_that_lacks_a_rollout_fails_the_check(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.finish()
    with closing(SampleStore.open(training.url)) as store:
        run = store.run("demo")
        training.copies.assert_loads_back(run)
        run.delete_rollout(2)
        with pytest.raises(AssertionError, match=r"\('train', 2\)"):
            training.copies.assert_loads_back(run)


def test_a_store_that_alters_a_value_fails_the_check(trained: Training) -> None:
    copies = copy.deepcopy(trained.copies)
    copies.train[1].samples[2][3].reward = 2  # an int
    with closing(SampleStore.open(trained.url, read_only=True)) as store, pytest.raises(AssertionError):
        copies.assert_loads_back(store.run("demo", create=False))


@pytest.mark.parametrize("part", ["policy", "optimizer", "scheduler", "rng"])
def test_a_training_state_that_differs_in_one_bit_fails_the_check(
    part: str, trained: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = last_checkpoint(trained.args)
    state = load_checkpoint(trained.args, step)
    if part == "policy":
        state["policy"]["norm.bias"].view(torch.int32)[5] ^= 1
    elif part == "optimizer":
        state["optimizer"]["state"][0]["exp_avg"].view(torch.int32)[0, 0] ^= 1
    elif part == "scheduler":
        state["scheduler"]["last_epoch"] += 1
    else:
        state["rng"][100] ^= 1
    other = replace(trained.args, save=str(tmp_path))
    torch.save(state, checkpoint_path(other, step))

    with closing(SampleStore.open(trained.url, read_only=True)) as store:
        run = store.run("demo", create=False)
        for control, passes in ((trained.args, True), (other, False)):
            outcome = Outcome(trained.args, control, trained.tally, trained.copies)
            assert verdict.print_verdict(outcome, run, (0.0, 1.0)) is passes
            assert ("NOT EQUAL: FAILED" in capsys.readouterr().out) is not passes


def test_a_run_that_was_never_killed_fails_the_check(trained: Training, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(trained.args, trained.args, trained.tally, trained.copies)
    assert not verdict.print_crash(outcome, trained.url)
    assert "FAILED: the run ended before it could be killed" in capsys.readouterr().out


def test_the_printed_sql_says_what_the_samples_say(trained: Training) -> None:
    with closing(sqlite3.connect(trained.url)) as database:
        rows = database.execute(REWARD_BY_WEIGHT_VERSION, {"run": "demo", "versions_per_bar": 1}).fetchall()

    def expected(rollout_id: int) -> tuple[object, ...]:
        samples = [sample for group in trained.copies.train[rollout_id].samples for sample in group]
        truncated = sum(sample.status is Sample.Status.TRUNCATED for sample in samples) / len(samples)
        reward = sum(sample.get_reward_value(SMALL) for sample in samples) / len(samples)
        return rollout_id + 1, rollout_id + 1, len(samples), pytest.approx(truncated), pytest.approx(reward)

    assert rows == [expected(rollout_id) for rollout_id in range(SMALL.num_rollout)]
