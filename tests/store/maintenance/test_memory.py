"""What ``verify``, ``backup`` and ``copy_store`` take of memory: a few payloads, whatever a rollout holds."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.memory import peak
from slime_store import Sample, SampleStore, copy_store
from slime_store.testing import make_sample, make_train_output

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux says how much memory was used"),
]

MB = 1 << 20
PAYLOAD = 40 * MB  # more than what the C library keeps of freed memory
N_SMALL = 20_000


def random_bytes(seed: int, n_bytes: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(np.random.default_rng(seed).bytes(n_bytes), np.uint8).copy()


def samples_of(what: str) -> list[list[Sample]]:
    if what == "small":
        return make_train_output(N_SMALL // 8, 8, n_tokens=32).samples
    groups = [[make_sample(i, group_index=i)] for i in range(5)]
    for i, (sample,) in enumerate(groups):
        if what == "tables":
            sample.rollout_routed_experts = random_bytes(i, PAYLOAD).reshape(-1, 64, 8)
        elif what == "narrowed":
            sample.rollout_routed_experts = (random_bytes(i, PAYLOAD // 4) // 2).astype(np.int32).reshape(-1, 64, 8)
        else:
            sample.multimodal_train_inputs = {"pixel_values": random_bytes(i, PAYLOAD)}
    return groups


def fill(url: str, what: str) -> None:
    with SampleStore.open(url) as store:
        store.run("memory").record_train(0, samples_of(what))


def peaks_of(url: str, directory: str) -> dict[str, int]:
    """Return how much each operation takes, in this process; each was done with a tiny store before."""
    here = Path(directory)
    with SampleStore.open(here / "tiny.db") as store:
        store.run("memory").record_train(0, make_train_output(1, 2))
        works(store, here / "tiny")
    with SampleStore.open(url, read_only=True) as store:
        return works(store, here / "measured")


def works(store: SampleStore, to: Path) -> dict[str, int]:
    to.mkdir()
    return {
        "verify": peak(lambda: store.verify()),
        "backup": peak(lambda: store.backup(to / "backup.db")),
        "copy": peak(lambda: copy_store(store, to / "copy.db")),
    }


def measured(url: str, what: str, directory: Path) -> dict[str, int]:
    """Fill a store in one process and measure in another, whose heap is new."""
    for work, arguments in ((fill, (url, what)), (peaks_of, (url, str(directory)))):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            result: Any = pool.submit(work, *arguments).result(300)
    found: dict[str, int] = result
    return found


@pytest.mark.parametrize("what", ["tables", "narrowed", "tensors"])
def test_large_payloads_are_verified_backed_up_and_copied_two_at_a_time(
    store_url: str, tmp_path: Path, what: str
) -> None:
    found = measured(store_url, what, tmp_path)
    assert found["verify"] < 2 * PAYLOAD + 64 * MB
    assert found["copy"] < 2 * PAYLOAD + 16 * MB
    assert found["backup"] < (8 * MB if store_url.startswith("sqlite") else 2 * PAYLOAD + 16 * MB)


def test_many_small_samples_take_no_more(store_url: str, tmp_path: Path) -> None:
    found = measured(store_url, "small", tmp_path)
    assert found["verify"] < 64 * MB
    assert found["copy"] < 32 * MB
    assert found["backup"] < 32 * MB
