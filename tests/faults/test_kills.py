"""Processes that record are killed at random instants, again and again: what had returned is never lost (case H8)."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore
from tests.faults.given import FORK, PATIENCE_SECONDS, RUN, Left, output_of

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

REPLACED = 500_000
"""What is added to the number of an output that is replaced later."""


def _record_for_ever(url: str, first: int, log: str) -> None:
    """Record, in every way there is; append to the log when a record begins and when it has returned."""
    with SampleStore.open(url) as store, open(log, "ab", buffering=0) as file:
        run = store.run(RUN)

        def record(rollout_id: int, seed: int, **options: Any) -> None:
            output = output_of(seed)
            file.write(f"begin {rollout_id} {seed}\n".encode())
            done = run.record_train(rollout_id, output, **options)
            if "background" in options:
                done.result()
            file.write(f"end {rollout_id} {seed}\n".encode())

        for rollout_id in itertools.count(first):
            way = rollout_id % 4
            if way == 1:
                record(rollout_id, rollout_id, background=True)
            elif way == 2:
                record(rollout_id, rollout_id + REPLACED)
                record(rollout_id, rollout_id, on_conflict="replace")
            else:
                record(rollout_id, rollout_id)


def _lines(log: Path) -> list[tuple[str, int, int]]:
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(word, int(rollout_id), int(seed)) for word, rollout_id, seed in map(str.split, lines)]


def _killed_once(url: str, first: int, log: Path, seconds: float) -> list[tuple[str, int, int]]:
    child = FORK.Process(target=_record_for_ever, args=(url, first, str(log)))
    child.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not _lines(log):
        assert child.is_alive() and time.monotonic() < deadline, "the writer ended or hangs"
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join(PATIENCE_SECONDS)
    assert child.exitcode == -signal.SIGKILL
    return _lines(log)


def kill_often(url: str, tmp_path: Path, n_kills: int) -> tuple[int, int]:
    """Kill writers; return how many died in the middle of a record, and how many of those records were there whole."""
    rng, left = random.Random(n_kills), Left(url)
    kept: dict[int, int] = {}
    n_inside = n_whole = first = 0
    with SampleStore.open(url) as store:
        store.run(RUN)
    started, scale = time.monotonic(), 0.1  # seconds of about two records; learned on the way
    for kill in range(n_kills):
        first += 10
        lines = _killed_once(url, first, tmp_path / f"log-{kill}", scale * rng.random())
        returned = {**kept, **{rollout_id: seed for word, rollout_id, seed in lines if word == "end"}}
        word, *last = lines[-1]
        under_way = (last[0], last[1]) if word == "begin" else None
        kept = left.check(returned, under_way)
        if under_way is not None:
            n_inside += 1
            n_whole += kept.get(under_way[0]) == under_way[1]
        first = last[0]
        scale *= 0.8 if len(lines) > 3 else 1.2
        if len(kept) > 3:
            kept = {rollout_id: kept[rollout_id] for rollout_id in sorted(kept)[-2:]}
            left.keep_only(set(kept))
    left.record(first + 9, first + 9)
    left.check({**kept, first + 9: first + 9})
    print(
        f"{n_kills} kills in {time.monotonic() - started:.0f} s: {n_inside} inside a record, {n_whole} of them whole;"
        f" {left.n_orphans} orphan files collected; nothing lost"
    )
    return n_inside, n_whole


@pytest.mark.parametrize("n_kills", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_h8_a_writer_killed_at_a_random_instant_costs_nothing_that_had_returned(
    store_url: str, tmp_path: Path, n_kills: int
) -> None:
    n_inside, _ = kill_often(store_url, tmp_path, n_kills)
    assert n_inside >= n_kills // 4  # the instants were not all between two records
