"""Rollouts with large arrays: read and compressed a few at a time, refused where nothing could hold them."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store import Sample, SampleFilter
from slime_store.blobs import BlobDirectory
from slime_store.errors import UnsupportedValueError
from slime_store.mapping import batch_tensors, limits
from slime_store.repositories.blobs import BlobRepository
from slime_store.store import Run, loading, payloads, walking
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import opened
from tests.store.test_statement_counts import statements

N_BYTES = 1 << 20  # of a table, of which compression saves nothing


def table(seed: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(np.random.default_rng(seed).bytes(N_BYTES), np.uint8).reshape(-1, 4, 8).copy()


def rollout(n_samples: int) -> list[list[Sample]]:
    return [[make_sample(i, group_index=i, rollout_routed_experts=table(i))] for i in range(n_samples)]


def test_large_payloads_are_compressed_batch_by_batch(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "BATCH_BYTES", 3 * N_BYTES)
    monkeypatch.setattr(batch_tensors, "_TOGETHER_BYTES", N_BYTES)
    groups = rollout(8)
    groups[0][0].multimodal_train_inputs = {"pixels": [table(100), table(101), table(102), table(103)]}
    groups[1][0].multimodal_train_inputs = {"pixels": table(102)}
    with opened(store_url) as store:
        run = store.run("large")
        info = run.record_train(0, groups)
        assert 12 * N_BYTES < info.n_bytes < 12.1 * N_BYTES
        assert_same(run.load_train(0).samples, groups)
        batch = run.load_batch(0)
        assert all((a.numpy() == table(i)).all() for i, a in enumerate(batch["rollout_routed_experts"]))
        run.delete_rollout(0)
        assert store.stats().n_blobs == 0


def test_large_packs_cost_no_statement_each(store_url: str) -> None:
    counts = []
    with opened(store_url) as store:
        run = store.run("large")
        run.record_train(0, rollout(6))  # the prompts are there from now on
        for number, n_samples in ((1, 2), (2, 6)):
            with statements() as sent:
                run.record_train(number, rollout(n_samples))
            counts.append(len(sent))
    assert counts[0] == counts[1]


def test_a_walk_holds_a_few_large_samples_at_a_time(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "_PAGE_BYTES", N_BYTES)
    with opened(sqlite_url) as store:
        run = store.run("large")
        run.record_train(0, rollout(8))
        first = next(run.iter_samples(SampleFilter(kind="train"), fields=["index"]))
        assert first.index == 0
        assert peak(lambda: list(map(lambda s: s.index, run.iter_samples()))) < 6 * N_BYTES
        assert peak(lambda: run.load_train(0)) < 8 * N_BYTES + 4 * N_BYTES


def peak(work: Any) -> int:
    work()
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_only_the_packs_of_a_sample_are_read(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sqlite_url) as store:
        run = store.run("large")
        groups = rollout(5)
        run.record_train(0, groups)
        read: list[str] = []
        whole = BlobDirectory.read
        monkeypatch.setattr(BlobDirectory, "read", lambda self, name, *n: read.append(name) or whole(self, name, *n))
        found = next(run.iter_samples(SampleFilter(kind="train", group_index=3)))
        assert_same(found, groups[3][0])
        assert len(read) == 1


def test_a_large_pack_that_is_gone_is_reported(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(store_url) as store:
        run = store.run("large")
        run.record_train(0, rollout(1))
        rows = BlobRepository._rows
        monkeypatch.setattr(BlobRepository, "_rows", lambda self, column, values: rows(self, column, values)[:0])
        with pytest.raises(loading.BlobMissingError):
            run.load_train(0)


@pytest.mark.parametrize("background", [False, True])
def test_documents_that_no_row_can_hold_are_refused_before_anything_is_written(
    store_url: str, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    monkeypatch.setattr(limits, "MAX_ROW_BYTES", 10_000)
    many = {"steps": [f"step {i}" for i in range(2_000)]}
    with opened(store_url) as store:
        run = store.run("large")
        for groups, where in (
            ([[make_sample(0)], [make_sample(1), make_sample(2, metadata=many)]], "group 1, sample 1"),
            ([[make_sample(0, train_metadata=many)]], "group 0, sample 0"),
        ):
            refused(run, groups, where, background)
        with pytest.raises(UnsupportedValueError, match="state"):
            run.record_train(0, [[make_sample(0)]], state=many, background=background)
        assert store.stats().n_rollouts == 0


def test_arrays_that_no_blob_can_hold_are_refused_before_anything_is_written(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payloads, "MAX_BYTES", N_BYTES - 1)
    with opened(postgres_url) as store:
        refused(store.run("large"), rollout(1), f"{N_BYTES} bytes", False)
        assert store.stats().n_rollouts == 0
    with opened(tmp_path / "store.db") as store:  # a file has no such limit
        store.run("large").record_train(0, rollout(1))


def refused(run: Run, groups: list[list[Sample]], words: str, background: bool) -> None:
    with pytest.raises(UnsupportedValueError, match=re.escape(words)):
        run.record_train(0, groups, background=background)
