"""Writing many samples as rows takes the memory of a few (issue: exports stream)."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleFilter, SampleStore
from slime_store.interchange import export_samples
from slime_store.testing import make_sample
from tests.interchange.test_memory import STATUS, peak_bytes

N_ROLLOUTS, N_SAMPLES, N_TOKENS = 24, 16, 12_000


def growth_of_an_export(url: str, folder: str, form: Any) -> int:
    """Return by how much the largest memory of this process grows when three times as much is written."""
    with SampleStore.open(url, read_only=True) as store:
        run = store.run("contract", create=False)
        export_samples(run, Path(folder) / "few", SampleFilter(rollout_ids="0:8"), format=form)
        before = peak_bytes()
        export_samples(run, Path(folder) / "many", format=form)
        return peak_bytes() - before


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say how much memory a process had")
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_takes_no_more_memory_for_more_rollouts(sqlite_url: str, tmp_path: Path, form: str) -> None:
    group = [make_sample(i, group_index=0, n_tokens=N_TOKENS) for i in range(N_SAMPLES)]
    with SampleStore.open(sqlite_url) as store:
        for rollout_id in range(N_ROLLOUTS):
            store.run("contract").record_train(rollout_id, [group])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        growth = pool.submit(growth_of_an_export, sqlite_url, str(tmp_path), form).result(300)
    whole = N_ROLLOUTS * N_SAMPLES * N_TOKENS * 16  # bytes of the numbers as arrays
    assert growth < whole / 4, f"{growth / 1e6:.0f} MB more for {whole / 1e6:.0f} MB of numbers"
