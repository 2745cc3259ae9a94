"""What the fault tests record, and how they look at what a fault has left."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import create_engine, make_url, text

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.blobs import BlobDirectory
from slime_store.testing import assert_same, make_train_output

FORK = multiprocessing.get_context("fork")
PATIENCE_SECONDS = 120.0
"""How long a test waits for what should have happened; only a hanging process takes so long."""

RUN = "faults"
COLLECTABLE = {"file_unused", "file_temporary"}
"""What a crash may leave: files that no row names."""

DIED = 99


def output_of(seed: int, *, with_files: bool = True) -> RolloutFnTrainOutput:
    """Return the small rollout that every process knows under this number, with a side file of its own."""
    output = make_train_output(3, 2, seed=seed, n_tokens=12, first_group_index=3 * seed)
    rng = np.random.default_rng(seed)
    if with_files:
        output.samples[0][0].rollout_routed_experts = rng.integers(0, 256, (4100, 50, 4), dtype=np.uint8)
        output.samples[1][0].multimodal_train_inputs = {"own": rng.bytes(3000), "shared": bytes(range(250)) * 20}
    return output


def side_files(url: str) -> set[str]:
    """Return the names of a store's side files; none on PostgreSQL."""
    if not url.startswith("sqlite"):
        return set()
    return set(BlobDirectory(Path(f"{make_url(url).database}-blobs")).names())


def exit_code_of(work: Callable[..., None], *args: Any) -> int:
    """Run work in a forked child; return its exit code."""
    child = FORK.Process(target=work, args=args)
    child.start()
    child.join(PATIENCE_SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
        raise AssertionError("the child hangs")
    assert child.exitcode is not None
    return child.exitcode


def wait_for_the_server(url: str) -> None:
    """Wait until PostgreSQL has noticed that its clients died: a COMMIT that they had sent may be under way."""
    if url.startswith("sqlite"):
        return
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    deadline = time.monotonic() + PATIENCE_SECONDS
    with engine.connect() as connection:
        while connection.scalar(text(others)) and time.monotonic() < deadline:
            time.sleep(0.005)
    engine.dispose()


def end_connections(url: str) -> None:
    """End every connection to a PostgreSQL database from the server's side, and wait until it is."""
    import psycopg

    others = b"FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        while connection.execute(b"SELECT pg_terminate_backend(pid) " + others).fetchall():
            time.sleep(0.002)  # the server's own waiting looks ten times a second


@dataclass
class Left:
    """What a fault left of a store.

    Attributes:
        url: where the store is.
        n_orphans: files that no row named, in all looks at the store; ``verify(fix=True)`` has removed them.
    """

    url: str
    n_orphans: int = field(default=0, init=False)

    def check(self, returned: dict[int, int], under_way: tuple[int, int] | None = None) -> dict[int, int]:
        """See that the store holds what had returned, all or nothing of what was under way, and nothing else.

        Args:
            returned: rollout id -> the number of the output whose record had returned.
            under_way: rollout id and output of the record that the fault struck.

        Returns:
            What is there, as ``returned``.
        """
        wait_for_the_server(self.url)
        with SampleStore.open(self.url) as store:
            report = store.verify(fix=True, grace_seconds=0)
            assert report.ok and {problem.code for problem in report.problems} <= COLLECTABLE, report.problems
            self.n_orphans += len(report.problems)
            if report.problems:
                after = store.verify(grace_seconds=0)
                assert after.ok and not after.problems, after.problems
            run = store.run(RUN)
            present: dict[int, int] = {}
            infos = run.rollouts(attempts=True)
            for info in infos:
                assert info.status == "complete" and info.rollout_id not in present, f"recorded twice: {infos}"
                loaded = run.load_train(info.rollout_id)
                present[info.rollout_id] = self._seed_of(loaded, info.rollout_id, returned, under_way)
        allowed = {**returned, **dict([under_way] if under_way else [])}
        assert set(returned) <= set(present) <= set(allowed), (returned, under_way, present)
        for path in Path(str(make_url(self.url).database)).parent.glob(".slime_store-*"):
            raise AssertionError(f"{path} was left")
        return present

    def _seed_of(
        self, loaded: Any, rollout_id: int, returned: dict[int, int], under_way: tuple[int, int] | None
    ) -> int:
        allowed = [returned[rollout_id]] if rollout_id in returned else []
        if under_way is not None and under_way[0] == rollout_id:
            allowed.append(under_way[1])
        for seed in allowed[:-1]:
            try:
                assert_same(loaded, output_of(seed))
            except AssertionError:
                continue
            return seed
        assert allowed, f"rollout {rollout_id} was never begun"
        assert_same(loaded, output_of(allowed[-1]))
        return allowed[-1]

    def keep_only(self, rollout_ids: set[int]) -> None:
        """Keep the store small: delete every other rollout."""
        with SampleStore.open(self.url) as store:
            run = store.run(RUN)
            for info in run.rollouts():
                if info.rollout_id not in rollout_ids:
                    run.delete_rollout(info.rollout_id)

    def record(self, rollout_id: int, seed: int) -> None:
        """See that the next record works, as if nothing had happened."""
        with SampleStore.open(self.url) as store:
            store.run(RUN).record_train(rollout_id, output_of(seed))


def die(*_args: Any, **_options: Any) -> None:
    """End this process at once, as a crash would."""
    os._exit(DIED)
