"""Case L1: more values than a database takes bind variables: 999 on some builds of SQLite, 65,535 on PostgreSQL."""

from __future__ import annotations

import random
import sqlite3
from itertools import islice
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from slime_store import Sample, SampleFilter
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of

N_SAMPLES = 3_000
N_GROUPS = 750


def _groups() -> list[list[Sample]]:
    """Samples with a prompt, a tensor-like blob in some, a weight version and reward keys of their own."""
    samples = [
        make_sample(
            i,
            group_index=i // 4,
            prompt=f"prompt {i}",
            n_prompt_tokens=2,
            n_tokens=2,
            weight_version=str(i % 1200),
            reward={"task": float(i % 2), f"key {i}": 1.0},
            metadata={"number": i, "bytes": i.to_bytes(2, "big") * 600} if i % 2 else {"number": i},
        )
        for i in range(N_SAMPLES)
    ]
    return [samples[i : i + 4] for i in range(0, N_SAMPLES, 4)]


@pytest.fixture(scope="module")
def groups() -> list[list[Sample]]:
    return _groups()


def test_l1_the_suite_runs_on_the_strictest_sqlite(sqlite_url: str) -> None:
    if not hasattr(sqlite3.Connection, "getlimit"):
        pytest.skip("Python 3.10 cannot set SQLite's limits")
    limits: list[int] = []

    def note(connection: Any, _record: Any, _proxy: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            limits.append(connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER))

    event.listen(Pool, "checkout", note)
    with opened(sqlite_url) as store:
        store.runs()
    event.remove(Pool, "checkout", note)
    assert set(limits) == {999}


def test_l1_thousands_of_distinct_values_load_filter_and_go(store_url: str, groups: list[list[Sample]]) -> None:
    samples = [sample for group in groups for sample in group]
    with opened(store_url) as store:
        run = store.run("contract")
        assert run.record_train(0, groups).n_samples == N_SAMPLES
        assert store.stats().n_prompts == N_SAMPLES
        assert store.stats().n_blobs == N_SAMPLES / 2
        run.record_train(1, groups)  # all of it is there already
        assert store.stats().n_prompts == N_SAMPLES
        assert len(run.weight_versions()) == 1200
    assert_same(loaded_train(store_url, 0).samples, groups)
    with opened(store_url) as store:
        run = store.run("contract")
        for batch_size in (256, 5_000):  # every other sample: as many spans as samples
            odd = SampleFilter(rollout_ids=0, reward_min=1, reward_key="task")
            found = [s.index for s in run.iter_samples(odd, fields=["index"], batch_size=batch_size)]
            assert found == list(range(1, N_SAMPLES, 2))
        assert_same(list(run.iter_samples(odd, batch_size=5_000)), samples[1::2])
        [one] = run.iter_samples(SampleFilter(rollout_ids=0, prompt="prompt 2345"))
        assert_same(one, samples[2345])
        assert [s.index for s in run.iter_samples(SampleFilter(rollout_ids=0, weight_version="17"))] == [17, 1217, 2417]
        run.delete_rollout(0)
        assert store.stats().n_prompts == N_SAMPLES
        run.record_train(1, groups[:1], on_conflict="replace")
        assert (store.stats().n_prompts, store.stats().n_blobs) == (4, 2)
        assert_same(run.load_train(1).samples, groups[:1])


def test_l1_thousands_of_scattered_rollout_ids_are_one_filter(store_url: str) -> None:
    ids = sorted(random.Random(1).sample(range(100_000), 5_000))
    present = [*ids[::500], *(i + 1 for i in ids[::500] if i + 1 not in ids)]
    with run_of(store_url) as run:
        for rollout_id in present:
            run.record_train(rollout_id, [[make_sample(rollout_id, n_tokens=2)]])
        expected = [rollout_id for rollout_id in sorted(present) if rollout_id in set(ids)]
        assert len(expected) == 10 < len(present)
        for given in (ids, set(ids), random.Random(2).sample(ids, len(ids)), ids + ids):
            found = [sample.index for sample in run.iter_samples(SampleFilter(rollout_ids=given), fields=["index"])]
            assert found == expected
        far = [-(2**63), 2**63 - 1, *range(0, 300_000, 3)]
        found = [sample.index for sample in run.iter_samples(SampleFilter(rollout_ids=far), fields=["index"])]
        assert found == [rollout_id for rollout_id in sorted(present) if rollout_id % 3 == 0]


def _steps_of_a_page(url: str, n_samples: int) -> int:
    """Return the virtual machine steps, in hundreds, that SQLite takes for a page of every other sample."""
    steps: list[None] = []
    with run_of(url, f"run of {n_samples}") as run:
        run.record_train(0, [[Sample(index=i, prompt=str(i), reward=float(i % 2)) for i in range(n_samples)]])

    def count(connection: Any, _record: Any) -> None:
        connection.set_progress_handler(lambda: steps.append(None), 100)

    event.listen(Pool, "connect", count)
    with opened(url, read_only=True) as store:
        run = store.run(f"run of {n_samples}", create=False)
        steps.clear()
        assert [s.index for s in islice(run.iter_samples(SampleFilter(reward_min=1), batch_size=100), 50)] == list(
            range(1, 100, 2)
        )
    event.remove(Pool, "connect", count)
    return len(steps)


def test_l1_a_page_of_scattered_samples_costs_the_same_in_a_rollout_of_any_size(sqlite_url: str) -> None:
    small, large = (_steps_of_a_page(sqlite_url, n_samples) for n_samples in (400, 4_000))
    assert large < 1.3 * small


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.parametrize("n_samples", [70_000])
def test_l1_more_samples_than_postgresql_takes_variables(postgres_url: str, n_samples: int) -> None:
    groups = [[Sample(index=i, prompt=str(i), reward=float(i % 2))] for i in range(n_samples)]
    with run_of(postgres_url) as run:
        assert run.record_train(0, groups).n_groups == n_samples
    assert_same(loaded_train(postgres_url, 0).samples, groups)
    with run_of(postgres_url) as run:
        odd = SampleFilter(reward_min=1)
        found = [s.index for s in run.iter_samples(odd, fields=["index", "prompt"], batch_size=n_samples)]
        assert found == list(range(1, n_samples, 2))
        run.delete_rollout(0)
        assert run.rollouts() == []
