"""``python -m benchmarks.profile [--full] [--workload W1]``: where the time of recording and loading goes.

For each operation: the share of every function of slime_store itself, what it calls not counted, and of every function
of C that it calls. What is counted is the processor time of the calling thread, so that a busy machine blurs little:
neither waiting for the disk nor the threads that compress and decompress. cProfile makes Python functions look slower
than they are, C functions not.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import render
from benchmarks.systems import Place
from benchmarks.systems.stores import BackgroundStore, SqliteStore
from benchmarks.workloads import WORKLOADS, Workload, samples_of


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--full", dest="size", action="store_const", const="full", default="quick")
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny")
    parser.add_argument("--workload", choices=WORKLOADS, default="W1")
    parser.add_argument("--top", type=int, default=12, help="lines of each operation")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(arguments)
    workload = WORKLOADS[options.workload]
    print(workload.describe(options.size))
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
        for what, seconds, rows in profiles(workload, options.size, Path(directory)):
            print(f"\n{what}: {seconds:.3f} s of the thread, under the profiler\n")
            titles = ["function", "share", "calls"]
            print(render([titles, *rows[: options.top]], markdown=options.markdown))


def profiles(workload: Workload, size: str, directory: Path) -> list[tuple[str, float, list[list[str]]]]:
    """Return (operation, seconds, rows of function, share and calls) of each operation, done once before."""
    output = workload.make(workload.sizes[size])
    store, background = SqliteStore(Place(directory)), BackgroundStore(Place(directory))
    operations: dict[str, Callable[[int], Any]] = {
        "record": lambda number: store.record(number, output),
        "record in the background, the caller's part": lambda number: background.record(number, output),
        "load_train": store.load_train,
        "load_batch": store.load_batch,
        "load_one": lambda number: store.load_one(number, 0, samples_of(output)[0].group_index),
    }
    found = []
    for what, operation in operations.items():
        operation(0)
        profiler = cProfile.Profile(time.thread_time)
        profiler.enable()
        operation(1 if what.startswith("record") else 0)
        profiler.disable()
        found.append((what, *_shares(pstats.Stats(profiler))))
    store.close()
    background.close()
    return found


def _shares(stats: Any) -> tuple[float, list[list[str]]]:
    total = stats.total_tt
    rows = sorted(stats.stats.items(), key=lambda item: -item[1][2])
    return total, [[_name(*where), f"{own / total:.1%}", f"{calls:,}"] for where, (_, calls, own, _, _) in rows]


def _name(path: str, line: int, function: str) -> str:
    if path == "~":
        return f"C: {function.strip('<>').removeprefix('built-in method ').removeprefix('method ')[:60]}"
    parts = Path(path).parts
    for package in ("slime_store", "site-packages"):
        if package in parts:
            at = len(parts) - 1 - parts[::-1].index(package)
            shown = parts[at:] if package == "slime_store" else parts[at + 1 :]
            return f"{'/'.join(shown)}: {function}"
    return f"{parts[-1]}: {function}"


if __name__ == "__main__":
    main()
