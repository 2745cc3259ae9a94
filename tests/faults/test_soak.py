"""Several processes record, resume, query, prune and verify one store for long, and are killed at random.

``SLIME_STORE_SOAK_SECONDS=3600 make test-slow`` makes it an hour.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleFilter, SampleStore
from slime_store.errors import ArraysPrunedError, RolloutNotFoundError
from slime_store.testing import assert_same
from tests.faults.given import COLLECTABLE, FORK, PATIENCE_SECONDS, output_of

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

LOG_BYTES = 80 << 20
RSS_GROWTH_KB = 60_000
"""Of the process that asks and verifies, in the last two thirds of the time."""
N_WRITERS = 2


def _rss_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def _write(url: str, log: str, name: str) -> None:
    """Resume where the last one of this name was killed; record and prune."""
    with SampleStore.open(url) as store, open(log, "ab", buffering=0) as file:
        run = store.run(name)
        run.resume()
        infos = run.rollouts("train")
        rollout_id = infos[-1].rollout_id + 1 if infos else 0
        while True:
            run.record_train(rollout_id, output_of(rollout_id % 50), state={"cursor": rollout_id})
            file.write(f"{name} {rollout_id}\n".encode())
            if rollout_id % 5 == 4:
                run.recovery.record_checkpoint(rollout_id)
                run.prune(keep_arrays_last=5, keep_rollouts_last=20)
            rollout_id += 1


def _ask(url: str, sizes: Any, stop: Any, warm_up_seconds: float) -> None:
    """Query and verify; the one process that lives through it all."""
    with SampleStore.open(url, read_only=True) as store:
        turn, first, warm = 0, 0, time.monotonic() + warm_up_seconds  # caches and the allocator's arenas fill up
        while not stop.is_set():
            for info in store.runs():
                run = store.run(info.name, create=False)
                list(run.iter_samples(SampleFilter(kind="train"), fields=["reward"]))
                for rollout in run.rollouts("train")[-2:]:
                    try:
                        assert_same(run.load_train(rollout.rollout_id), output_of(rollout.rollout_id % 50))
                    except (ArraysPrunedError, RolloutNotFoundError):
                        continue
            report = store.verify(grace_seconds=0)
            assert {each.code for each in report.problems} <= COLLECTABLE, report.problems
            turn += 1
            first = first or (_rss_kb() if turn >= 3 and time.monotonic() > warm else 0)
        sizes.put((turn, first, _rss_kb()))


def soak(url: str, directory: Path, seconds: float) -> str:
    """Let them work; return what happened."""
    rng, stop, sizes = random.Random(5), FORK.Event(), FORK.SimpleQueue()
    names = [f"run-{n}" for n in range(N_WRITERS)]
    with SampleStore.open(url) as store:
        for name in names:
            store.run(name)
    asker = FORK.Process(target=_ask, args=(url, sizes, stop, seconds / 3))
    asker.start()
    log, longest, n_kills = str(directory / "log"), 0, 0
    writers: dict[str, Any] = {}
    deadline = time.monotonic() + seconds
    wal = Path(f"{url.removeprefix('sqlite:///')}-wal")
    while time.monotonic() < deadline:
        for name in names:
            if name not in writers:
                writers[name] = FORK.Process(target=_write, args=(url, log, name))
                writers[name].start()
        time.sleep(0.3 + rng.random())
        victim = rng.choice(names)
        assert writers[victim].is_alive() and asker.is_alive(), "somebody met an error"
        os.kill(writers[victim].pid, signal.SIGKILL)
        writers.pop(victim).join(PATIENCE_SECONDS)
        n_kills += 1
        longest = max(longest, wal.stat().st_size if wal.exists() else 0)
    for writer in writers.values():
        writer.kill()
        writer.join()
    stop.set()
    asker.join(PATIENCE_SECONDS)
    assert asker.exitcode == 0
    turns, before, after = sizes.get()
    lines = [line.split() for line in Path(log).read_text().splitlines()]
    with SampleStore.open(url) as store:
        assert store.verify(fix=True, grace_seconds=0).ok
        for name in names:
            ids = [int(number) for writer, number in lines if writer == name]
            infos = store.run(name).rollouts("train", attempts=True)
            present = [info.rollout_id for info in infos]
            assert len(present) == len(set(present)), "a resumed run recorded a rollout again"
            assert set(ids[-15:]) <= set(present), "what had returned is gone"
            assert len(present) <= 40  # the rest was pruned
    assert longest < LOG_BYTES, longest
    assert not before or after - before < RSS_GROWTH_KB, (before, after)
    return (
        f"{seconds:.0f} s: {len(lines)} rollouts, {n_kills} kills, {turns} rounds of questions and verify, log at most "
        f"{longest >> 20} MB, memory {before >> 10} -> {after >> 10} MB; nothing lost"
    )


def test_a_store_is_soaked_for_some_seconds(store_url: str, tmp_path: Path) -> None:
    print(soak(store_url, tmp_path, 2.5))


@pytest.mark.slow
def test_a_store_is_soaked_for_long(store_url: str, tmp_path: Path) -> None:
    print(soak(store_url, tmp_path, float(os.environ.get("SLIME_STORE_SOAK_SECONDS", "120"))))
