"""``python -m benchmarks [--full]``: slime_store beside slime's own dump, in one run, with ratios.

Systems take turns in one process, so that a busy machine slows them alike; figures are medians. PostgreSQL is measured
when ``SLIME_STORE_BENCH_POSTGRES`` holds the URL of a database for it.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.systems import BackgroundStore, Store, System, TorchDump
from benchmarks.workloads import W1, W1_QUICK, text_rollout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the full size of each workload")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each system (default 5)")
    options = parser.parse_args()
    size = W1 if options.full else W1_QUICK
    output = text_rollout(size)
    print(f"W1: {size.prompts} prompts x {size.samples_per_prompt} samples, {size.n_tokens:,} tokens")
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        report(measure(systems(Path(directory)), output, options.repeat))


def systems(directory: Path) -> list[System]:
    found: list[System] = [
        TorchDump(directory),
        Store("slime_store, SQLite", directory / "store.db"),
        BackgroundStore("slime_store, SQLite, background", directory / "background.db"),
    ]
    postgres = os.environ.get("SLIME_STORE_BENCH_POSTGRES")
    if postgres:
        found.append(Store("slime_store, PostgreSQL", postgres))
    return found


def measure(systems: list[System], output: Any, repeat: int) -> dict[str, tuple[float, float, int]]:
    """Return (write seconds, read seconds, bytes) of each system."""
    turns: dict[str, list[tuple[float, float, int]]] = {system.name: [] for system in systems}
    for number in range(repeat + 1):
        for system in systems:
            write_seconds, n_bytes = timed(lambda: system.write(number, output))  # noqa: B023
            if isinstance(system, Store):
                n_bytes = system.settle()
            read_seconds, _ = timed(lambda: system.read(number))  # noqa: B023
            if number:  # the first turn warms up
                turns[system.name].append((write_seconds, read_seconds, n_bytes))
    return {
        name: (
            statistics.median(turn[0] for turn in taken),
            statistics.median(turn[1] for turn in taken),
            taken[-1][2],
        )
        for name, taken in turns.items()
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def report(figures: dict[str, tuple[float, float, int]]) -> None:
    base = next(iter(figures.values()))
    print(f"{'system':34} {'write s':>8} {'faster':>7} {'read s':>8} {'faster':>7} {'MB':>7} {'size':>6}")
    for name, (write_seconds, read_seconds, n_bytes) in figures.items():
        print(
            f"{name:34} {write_seconds:8.3f} {base[0] / write_seconds:6.1f}x {read_seconds:8.3f} "
            f"{base[1] / read_seconds:6.1f}x {n_bytes / 1e6:7.1f} {n_bytes / base[2]:5.2f}x"
        )


if __name__ == "__main__":
    main()
