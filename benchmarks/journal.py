"""``python -m benchmarks.journal``: what the journal adds to each group, inside the event loop of a rollout function.

An event loop generates groups on a fake engine that only sleeps, with and without the plug-in, taking turns. Printed
are the time that the loop itself spends on handing a group to the journal, how long a group takes to be on disk, and
by how much other tasks of the loop wake up late meanwhile.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slime_store import Sample, SampleStore
from slime_store.plugins.guard import Guard
from slime_store.plugins.tracker import GroupTracker

TICK_SECONDS = 0.002


@dataclass(frozen=True)
class Shape:
    name: str
    groups: int
    samples: int
    tokens: int


SHAPES = (
    Shape("8 samples x 4,000 tokens", 64, 8, 4_000),
    Shape("8 samples x 64,000 tokens", 8, 8, 64_000),
)


def main() -> None:
    print(f"{'group':28} {'in the loop':>16} {'tasks late by, worst':>22} {'without':>9} {'on disk after':>14}")
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as directory:
            groups = [group(shape, index) for index in range(shape.groups)]
            without = asyncio.run(generate(groups, None))
            with SampleStore.open(Path(directory) / "store.db") as store:
                journal = store.run("bench").recovery.journal()
                tracker = GroupTracker(Guard("raise"), carry_over=False)
                tracker.begin(0, journal)
                report = asyncio.run(generate(groups, tracker))
                started = time.perf_counter()
                tracker.finished(groups[0], groups[0])
                journal.flush()
                on_disk = time.perf_counter() - started
                journal.close()
        inside = statistics.median(report.inside) * 1e3
        print(
            f"{shape.name:28} {inside:13.2f} ms {report.latest * 1e3:19.1f} ms {without.latest * 1e3:6.1f} ms "
            f"{on_disk * 1e3:11.1f} ms"
        )


@dataclass
class Report:
    inside: list[float]
    latest: float


async def generate(groups: list[Any], tracker: GroupTracker | None) -> Report:
    """Let the groups finish one after the other, while another task of the loop looks at the clock."""
    inside: list[float] = []
    late: list[float] = []
    ticking = asyncio.create_task(tick(late))
    for finished in groups:
        await asyncio.sleep(0.01)
        started = time.perf_counter()
        if tracker is not None:
            tracker.finished(finished, finished)
        inside.append(time.perf_counter() - started)
    await asyncio.sleep(0.05)
    ticking.cancel()
    return Report(inside, max(late))


async def tick(late: list[float]) -> None:
    while True:
        started = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        late.append(time.perf_counter() - started - TICK_SECONDS)


def group(shape: Shape, index: int) -> list[Sample]:
    rng = np.random.default_rng(index)
    return [
        Sample(
            group_index=index,
            index=index * shape.samples + i,
            prompt="a prompt " * 50,
            tokens=rng.integers(0, 150_000, shape.tokens).tolist(),
            response="four" * shape.tokens,
            response_length=shape.tokens,
            loss_mask=[1] * shape.tokens,
            rollout_log_probs=(-rng.exponential(size=shape.tokens).astype(np.float32)).tolist(),
            reward=1.0,
            status=Sample.Status.COMPLETED,
            metadata={"source": "bench", "turns": [{"role": "user"}] * 4},
        )
        for i in range(shape.samples)
    ]


if __name__ == "__main__":
    main()
