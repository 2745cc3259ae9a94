"""Case H8: a writer is killed in the middle of a record; the store holds the rollout wholly or not at all."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, MetaData, create_engine, event, func, make_url, select, text

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.blobs import BlobDirectory, syncing
from slime_store.repositories import blobs as blob_repository
from slime_store.repositories import samples as sample_repository
from slime_store.store import recording
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import opened, run_of
from tests.cases.children import PATIENCE_SECONDS, join_all

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
N_GROUPS, N_SAMPLES_PER_GROUP = 64, 8
N_ROUTED = 4
"""Samples with a routing table of more than a megabyte, which goes to a file of its own."""
N_OUTPUTS = 3


@pytest.fixture(scope="module")
def outputs() -> list[RolloutFnTrainOutput]:
    """Rollouts of 512 samples; number i is recorded as the rollouts i, i + 3, i + 6 ..."""
    shared = np.random.default_rng(99).bytes(1_000_000)
    made = []
    for number in range(N_OUTPUTS):
        output = make_train_output(N_GROUPS, N_SAMPLES_PER_GROUP, seed=number, n_tokens=32)
        rng = np.random.default_rng(number)
        for group in output.samples[:N_ROUTED]:
            group[0].rollout_routed_experts = rng.integers(0, 256, (6000, 50, 4), dtype=np.uint8)
            group[1].multimodal_train_inputs = {"shared": shared, "own": rng.bytes(900_000)}
        made.append(output)
    return made


@pytest.fixture(scope="module")
def small() -> list[RolloutFnTrainOutput]:
    """Rollouts of few samples, with side files and shared content all the same."""
    made = []
    for number in range(N_OUTPUTS):
        output = make_train_output(2, 2, seed=number, n_tokens=8)
        rng = np.random.default_rng(number)
        output.samples[0][0].rollout_routed_experts = rng.integers(0, 256, (4000, 50, 4), dtype=np.uint8)
        output.samples[1][0].multimodal_train_inputs = {"own": rng.bytes(800_000), "shared": bytes(5000)}
        made.append(output)
    return made


# -- looking at what is left


def _blob_files(url: str) -> set[str]:
    return set(BlobDirectory(Path(f"{make_url(url).database}-blobs")).names())


@dataclass
class Remains:
    """A store after a crash."""

    url: str
    outputs: list[RolloutFnTrainOutput]
    orphans: int = field(default=0, init=False)

    def ids(self) -> list[int]:
        """Open the store, see that nothing in it is broken, and return the ids of its rollouts."""
        self._wait_for_the_server()
        with SampleStore.open(self.url) as store:
            infos = store.run("killed").rollouts(attempts=True)
            stats = store.stats()
        ids = [info.rollout_id for info in infos]
        assert [info.attempt for info in infos] == [1] * len(infos)
        assert [info.status for info in infos] == ["complete"] * len(infos)
        n_samples = sum(len(group) for number in ids for group in self.outputs[number % N_OUTPUTS].samples)
        assert (stats.n_rollouts, stats.n_samples) == (len(infos), n_samples)
        self._check_rows(n_samples)
        return ids

    def assert_equal(self, rollout_ids: list[int]) -> None:
        with SampleStore.open(self.url, read_only=True) as store:
            run = store.run("killed", create=False)
            for rollout_id in rollout_ids:
                assert_same(run.load_train(rollout_id), self.outputs[rollout_id % N_OUTPUTS])

    def delete(self, rollout_ids: list[int]) -> None:
        """Keep the store small."""
        with SampleStore.open(self.url) as store:
            for rollout_id in rollout_ids:
                store.run("killed").delete_rollout(rollout_id)

    def _wait_for_the_server(self) -> None:
        """A COMMIT that the dead client had sent may still be under way on a PostgreSQL server."""
        if self.url.startswith("sqlite"):
            return
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        engine = create_engine(self.url, isolation_level="AUTOCOMMIT")
        deadline = time.monotonic() + PATIENCE_SECONDS
        with engine.connect() as connection:
            while connection.scalar(text(others)) and time.monotonic() < deadline:
                time.sleep(0.005)
        engine.dispose()

    def _check_rows(self, n_samples: int) -> None:
        """Every row belongs to a rollout that is there, and every blob's bytes are."""
        engine, metadata = create_engine(self.url), MetaData()
        with engine.connect() as connection:
            if self.url.startswith("sqlite"):
                assert connection.scalar(text("PRAGMA integrity_check")) == "ok"
                assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
            metadata.reflect(connection, schema=None if self.url.startswith("sqlite") else "slime_store")
            tables = {table.name: table for table in metadata.sorted_tables}
            blobs, references = tables["blobs"], tables["blob_references"]
            assert connection.scalar(select(func.count()).select_from(tables["samples"])) == n_samples
            unused = select(blobs.c.id).where(blobs.c.id.not_in(select(references.c.blob_pk)))
            assert connection.execute(unused).all() == []
            named = set(connection.execute(select(blobs.c.file_name)).scalars()) - {None}
        engine.dispose()
        if self.url.startswith("sqlite"):
            present = _blob_files(self.url)
            assert named <= present
            self.orphans = len(present - named)


# -- killed at random moments


def _record_for_ever(url: str, outputs: list[RolloutFnTrainOutput], first: int, log: str) -> None:
    """Record rollout after rollout; append to the log when one begins and when its record has returned."""
    with SampleStore.open(url) as store, open(log, "ab", buffering=0) as file:
        run = store.run("killed")
        for rollout_id in itertools.count(first):
            file.write(f"begin {rollout_id} {time.monotonic()}\n".encode())
            run.record_train(rollout_id, outputs[rollout_id % N_OUTPUTS])
            file.write(f"end {rollout_id} {time.monotonic()}\n".encode())
            os.fsync(file.fileno())


def _read_log(log: Path) -> list[tuple[str, int, float]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(word, int(number), float(at)) for word, number, at in map(str.split, lines)]


def _wait_for(log: Path, word: str, child: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(each == word for each, *_ in _read_log(log)):
        assert child.is_alive() and time.monotonic() < deadline, "the writer ended or hangs"
        time.sleep(0.001)


def _kill(child: Any) -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.join(PATIENCE_SECONDS)
    assert child.exitcode == -signal.SIGKILL


def _seconds_of_a_record(url: str, outputs: list[RolloutFnTrainOutput], log: Path) -> float:
    child = FORK.Process(target=_record_for_ever, args=(url, outputs, -N_OUTPUTS, str(log)))
    child.start()
    _wait_for(log, "end", child)
    _kill(child)
    times = {word: at for word, number, at in _read_log(log) if number == -N_OUTPUTS}
    return times["end"] - times["begin"]


def _kill_often(url: str, outputs: list[RolloutFnTrainOutput], tmp_path: Path, n_kills: int) -> tuple[int, int]:
    """Kill writers and check what is left; return how many died in their first record and how many after it."""
    rng = random.Random(8)
    remains = Remains(url, outputs)
    scale = 1.5 * _seconds_of_a_record(url, outputs, tmp_path / "log")
    remains.delete(remains.ids())
    first, n_before, n_after, kept = 0, 0, 0, list[int]()
    for kill in range(n_kills):
        log = tmp_path / f"log-{kill}"
        child = FORK.Process(target=_record_for_ever, args=(url, outputs, first, str(log)))
        child.start()
        _wait_for(log, "begin", child)
        time.sleep(scale * rng.random())
        _kill(child)
        begun = [number for word, number, _ in _read_log(log) if word == "begin"]
        returned = [number for word, number, _ in _read_log(log) if word == "end"]
        present = remains.ids()
        under_way = set(present) - set(kept) - set(returned)
        assert set(kept) | set(returned) <= set(present)  # what had returned is there
        assert under_way <= {begun[-1]}  # and at most the one that was being recorded
        new = sorted({*returned, *under_way})
        remains.assert_equal(new)  # wholly
        if returned or under_way:
            n_after, scale = n_after + 1, scale * (0.8 if n_after > n_before else 1.0)
        else:
            n_before, scale = n_before + 1, scale * (1.25 if n_before > n_after else 1.0)
        first = begun[-1] + 1
        kept = sorted({*kept, *new})
        if len(kept) > 2:
            remains.delete(kept[:-2])
            kept = kept[-2:]
    with SampleStore.open(url) as store:  # as if nothing had happened
        store.run("killed").record_train(first, outputs[first % N_OUTPUTS])
    remains.assert_equal([*kept, first])
    return n_before, n_after


def test_h8_a_rollout_whose_writer_is_killed_is_there_wholly_or_not_at_all(
    store_url: str, outputs: list[RolloutFnTrainOutput], tmp_path: Path
) -> None:
    n_before, n_after = _kill_often(store_url, outputs, tmp_path, 5)
    assert n_before >= 1 and n_after >= 1


@pytest.mark.slow
@pytest.mark.parametrize("n_kills", [50])
def test_h8_fifty_kills_lose_nothing_that_had_returned(
    sqlite_url: str, outputs: list[RolloutFnTrainOutput], tmp_path: Path, n_kills: int
) -> None:
    n_before, n_after = _kill_often(sqlite_url, outputs, tmp_path, n_kills)
    assert n_before >= 5 and n_after >= 5


@pytest.mark.slow
@pytest.mark.postgresql
def test_h8_ten_kills_lose_nothing_on_postgresql(
    postgres_url: str, outputs: list[RolloutFnTrainOutput], tmp_path: Path
) -> None:
    n_before, n_after = _kill_often(postgres_url, outputs, tmp_path, 10)
    assert n_before >= 1 and n_after >= 1


# -- killed at a step that is known

DIED = 99


def _die(*_args: Any, **_options: Any) -> None:
    os._exit(DIED)


def _die_after(owner: Any, name: str) -> None:
    """Have this process die when a function returns."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args, **options: _die(original(*args, **options)))


def _in_the_middle_of_a_file() -> None:
    syncing.os = SimpleNamespace(**vars(os) | {"fsync": _die})  # type: ignore[assignment]


def _before_a_file_gets_its_name() -> None:
    syncing.os = SimpleNamespace(**vars(os) | {"rename": _die})  # type: ignore[assignment]


def _after_the_first_file() -> None:
    _die_after(BlobDirectory, "write")


def _after_all_files() -> None:
    _die_after(recording, "prepare")


def _with_the_transaction_open() -> None:
    recording._Recording = _die  # type: ignore[assignment,misc]


def _at_the_commit(*, before: bool) -> None:
    original = recording._Recording.run

    def run(self: Any, *args: Any) -> Any:
        info = original(self, *args)
        if before:
            self._connection.dialect.do_commit = _die
        else:
            _die_after(self._connection.dialect, "do_commit")
        return info

    recording._Recording.run = run  # type: ignore[method-assign]


STEPS: dict[str, Callable[[], None]] = {
    "in the middle of a file": _in_the_middle_of_a_file,
    "before a file gets its name": _before_a_file_gets_its_name,
    "after the first file": _after_the_first_file,
    "after all files": _after_all_files,
    "with the transaction open": _with_the_transaction_open,
    "before the commit": partial(_at_the_commit, before=True),
    "after the commit": partial(_at_the_commit, before=False),
}
ONLY_WITH_FILES = list(STEPS)[:3]


def _record_and_die(url: str, output: RolloutFnTrainOutput, arm: Callable[[], None]) -> None:
    with SampleStore.open(url) as store:
        run = store.run("killed")
        arm()
        run.record_train(1, output)


def _exit_code_of(work: Callable[..., None], *args: Any) -> int:
    child = FORK.Process(target=work, args=args)
    child.start()
    [code] = join_all([child])
    return code


@pytest.mark.parametrize("step", STEPS)
def test_h8_a_writer_that_dies_at_a_known_step_leaves_all_or_nothing(
    store_url: str, small: list[RolloutFnTrainOutput], step: str
) -> None:
    if step in ONLY_WITH_FILES and not store_url.startswith("sqlite"):
        pytest.skip("there are no side files on PostgreSQL")
    with run_of(store_url, "killed") as run:
        run.record_train(0, small[0])
    with opened(store_url, read_only=True) as store:
        before = store.stats()
    assert _exit_code_of(_record_and_die, store_url, small[1], STEPS[step]) == DIED
    remains = Remains(store_url, small)
    expected = [0, 1] if step == "after the commit" else [0]
    assert remains.ids() == expected
    remains.assert_equal(expected)
    if step in ("after the first file", "after all files"):  # there are files, which no question counts
        assert remains.orphans > 0 or not store_url.startswith("sqlite")
    with opened(store_url, read_only=True) as store:
        after = store.stats()
    if expected == [0]:
        assert (after.n_blobs, after.blob_bytes) == (before.n_blobs, before.blob_bytes)
    with run_of(store_url, "killed") as run:
        run.record_train(1, small[1], on_conflict="replace")
        run.record_train(2, small[2])
    remains.assert_equal([0, 1, 2])


class _Countdown:
    """Counts statements and bulk inserts, and ends the process at one of them."""

    def __init__(self, die_at: int | None, count: Any = None) -> None:
        self._die_at, self._count, self._shared = die_at, 0, count

    def arm(self) -> None:
        event.listen(Engine, "before_cursor_execute", self._step)
        for module in (sample_repository, blob_repository):
            self._wrap(module)

    def _wrap(self, module: Any) -> None:
        original = module.insert_rows

        def insert_rows(*args: Any) -> None:
            original(*args)
            self._step()

        module.insert_rows = insert_rows

    def _step(self, *_args: Any) -> None:
        if self._count == self._die_at:
            _die()
        self._count += 1
        if self._shared is not None:
            self._shared.value = self._count


@pytest.mark.slow
def test_h8_a_writer_that_dies_at_any_statement_leaves_nothing(
    store_url: str, small: list[RolloutFnTrainOutput]
) -> None:
    with run_of(store_url, "killed") as run:
        run.record_train(0, small[0])
    remains = Remains(store_url, small)
    n_steps = FORK.Value("i", 0)
    assert _exit_code_of(_record_and_die, store_url, small[1], _Countdown(None, n_steps).arm) == 0
    assert remains.ids() == [0, 1]
    remains.delete([1])
    assert n_steps.value > 20
    for step in range(n_steps.value):
        assert _exit_code_of(_record_and_die, store_url, small[1], _Countdown(step).arm) == DIED
        assert remains.ids() == [0], f"killed at statement {step}"
    remains.assert_equal([0])
    with run_of(store_url, "killed") as run:
        run.record_train(1, small[1])
    remains.assert_equal([0, 1])
