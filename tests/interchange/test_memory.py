"""Reading a large dump takes about its size in memory, not several times (case I8)."""

from __future__ import annotations

import multiprocessing
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import SampleStore
from slime_store.interchange import import_path
from slime_store.testing import make_train_output
from slime_store.types import iter_leaf_samples
from tests.interchange.archives import dump_of, saved

N_SAMPLES, N_TOKENS, N_LAYERS, TOP_K = 16, 8_200, 48, 8


STATUS = Path("/proc/self/status")


def peak_bytes() -> int:
    """The most memory that this process had; getrusage would count what its parent had, too."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def growth_of_an_import(url: str, small: str, large: str) -> int:
    """Return by how much the largest memory of this process grows with the second, large import."""
    with SampleStore.open(url) as store:
        run = store.run("contract")
        assert import_path(run, small).recorded
        before = peak_bytes()
        assert import_path(run, large).recorded
        return peak_bytes() - before


def routed_dump(path: Path, n_tokens: int, kind: str) -> Path:
    random = np.random.default_rng(0)
    output = make_train_output(2, N_SAMPLES // 2)
    for sample in iter_leaf_samples(output.samples):
        routing = random.integers(0, 128, (n_tokens, N_LAYERS, TOP_K), dtype=np.int32)
        sample.rollout_routed_experts = torch.from_numpy(routing) if kind == "tensor" else routing
    return saved(path, dump_of(output.samples))


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the system does not say how much memory a process had")
@pytest.mark.parametrize("kind", ["tensor", "array"])
def test_i8_the_import_of_a_large_dump_takes_about_its_size(sqlite_url: str, tmp_path: Path, kind: str) -> None:
    small = routed_dump(tmp_path / "1.pt", 10, kind)
    large = routed_dump(tmp_path / "2.pt", N_TOKENS, kind)
    size = large.stat().st_size
    assert size > 200_000_000
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        arguments: Any = (sqlite_url, str(small), str(large))
        growth = pool.submit(growth_of_an_import, *arguments).result(300)
    assert growth < 1.5 * size
