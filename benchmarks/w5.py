"""``python -m benchmarks.w5 [--rollouts N] [--keep FILE]``: a long run, and what questions about it cost.

Workload W5: rollouts of 128 prompts x 8 samples with few tokens, since questions about scalars read none. Prints what
recording a rollout costs with and without its aggregates, and the time of each question, as a table.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sqlalchemy import text

from slime_store import RolloutFnTrainOutput, Run, Sample, SampleStore
from slime_store.dataframes import weight_versions_df
from slime_store.repositories.aggregates import AggregateRepository

PROMPTS, SAMPLES_PER_PROMPT, EPOCH = 128, 8, 12_800
RUN = "w5"

SCAN = """
SELECT v.label, v.ordinal, count(*), count(s.reward), avg(s.reward), min(s.reward), max(s.reward),
    avg(CASE WHEN s.status = 'truncated' THEN 1.0 ELSE 0.0 END), avg(s.response_length)
FROM samples s JOIN rollouts r ON r.id = s.rollout_pk JOIN weight_versions v ON v.id = s.last_weight_version_pk
GROUP BY v.label, v.ordinal
"""
QUESTIONS = {
    "the same by a scan of samples (no standard deviation)": SCAN,
    "v_rewards_by_weight_version": "SELECT * FROM v_rewards_by_weight_version WHERE run = 'w5'",
    "v_rollouts, all": "SELECT * FROM v_rollouts WHERE run = 'w5'",
    "v_metrics, one metric": "SELECT rollout_id, value FROM v_metrics WHERE run = 'w5' AND metric = 'loss'",
    "v_samples, one rollout's truncated": (
        "SELECT * FROM v_samples WHERE run = 'w5' AND kind = 'train' AND rollout_id = 40 AND truncated = 1"
    ),
    "v_sample_texts, one rollout's": "SELECT * FROM v_sample_texts WHERE run = 'w5' AND rollout_id = 40",
    "v_samples, one prompt through all epochs": (
        "SELECT rollout_id, reward FROM v_samples WHERE prompt_id = (SELECT min(prompt_id) FROM v_samples"
        " WHERE run = 'w5' AND kind = 'train' AND rollout_id = 40)"
    ),
    "v_samples, mean of one weight version": (
        "SELECT count(*), avg(reward) FROM v_samples WHERE run = 'w5' AND kind = 'train' AND weight_version = '42'"
    ),
    "v_prompts, one prompt": "SELECT * FROM v_prompts WHERE prompt_id = 'no such'",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--keep", help="make, or use again, the store at this path or URL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        measure(options.keep or Path(directory) / "w5.db", options.rollouts)


def measure(target: str | Path, n_rollouts: int) -> None:
    with SampleStore.open(target) as store:
        run = store.run(RUN)
        missing = range(len(run.rollouts()), n_rollouts)
        if missing:
            seconds = record(run, missing)
            print(f"recorded {len(missing)} x 1,024 samples, {statistics.median(seconds) * 1000:.1f} ms each (median)")
        print_recording_costs(store.run("costs"))
        ask(run)


def record(run: Run, rollout_ids: range) -> list[float]:
    """Record rollouts; return the seconds that each took."""
    samples = [Sample(index=i, group_index=i // 8, label="7") for i in range(PROMPTS * SAMPLES_PER_PROMPT)]
    return [timed(lambda: run.record_train(i, output(samples, i)))[0] for i in rollout_ids]  # noqa: B023


def output(samples: list[Sample], rollout_id: int) -> Any:
    """Fill the samples anew: a version every rollout, a few samples of the version before, one in ten truncated."""
    rng = np.random.default_rng(rollout_id)
    rewards = (rng.random(len(samples)) < 0.3 + 0.4 * rollout_id / 1000).astype(float).tolist()
    cut, late = rng.random(len(samples)) < 0.1, rng.random(len(samples)) < 0.05
    for i, sample in enumerate(samples):
        question = (rollout_id * PROMPTS + i // 8) % EPOCH
        sample.prompt = f"Question {question}: how many apples are left over?"
        sample.tokens = [1, 2, 3, 4, 5, question]
        n = 2 + i % 3
        sample.response, sample.response_length = f"The answer is {i}.", n
        sample.reward, sample.loss_mask, sample.rollout_log_probs = rewards[i], [1] * n, [-0.25] * n
        sample.status = Sample.Status.TRUNCATED if cut[i] else Sample.Status.COMPLETED
        sample.weight_versions = [str(max(rollout_id - 1, 0)), str(rollout_id)] if late[i] else [str(rollout_id)]
    groups = [samples[i : i + SAMPLES_PER_PROMPT] for i in range(0, len(samples), SAMPLES_PER_PROMPT)]
    return RolloutFnTrainOutput(groups, metrics={"loss": float(rng.random()), "kl": 0.01})


def print_recording_costs(run: Run, turns: int = 30) -> None:
    """Print what recording costs with and without aggregates, in turns; the CPU seconds feel a busy machine less."""
    samples = [Sample(index=i, group_index=i // 8, label="7") for i in range(PROMPTS * SAMPLES_PER_PROMPT)]
    rollout, taken = output(samples, 500), ([], [])
    for turn in range(2 * turns + 2):
        with without_aggregates() if turn % 2 else contextlib.nullcontext():
            cpu = time.process_time()
            seconds, _ = timed(lambda: run.record_train(turn, rollout))  # noqa: B023
            taken[turn % 2].append((seconds, time.process_time() - cpu))
    for i, what in enumerate(("elapsed", "CPU")):
        own, without = (statistics.median(each[i] for each in half[1:]) for half in taken)
        ratio = f"{own * 1000:.1f} ms, without aggregates {without * 1000:.1f} ms: {own / without:.3f}x"
        print(f"record 1,024 samples, {what:7}: {ratio}")


@contextlib.contextmanager
def without_aggregates() -> Iterator[None]:
    with mock.patch.object(AggregateRepository, "add"):
        yield


def ask(run: Run) -> None:
    """Time each question: the first time, and the median of five more."""
    print(f"{'question':58} {'rows':>7} {'first s':>8} {'again s':>8}")
    show("weight_versions_df", lambda: weight_versions_df(run))
    with run._handle.reading() as connection:
        for name, query in QUESTIONS.items():
            show(name, lambda: connection.execute(text(query)).all())  # noqa: B023


def show(name: str, work: Callable[[], Any]) -> None:
    first, answer = timed(work)
    again = statistics.median(timed(work)[0] for _ in range(5))
    print(f"{name:58} {len(answer):7,} {first:8.4f} {again:8.4f}")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
