"""Section K of the cases, as far as it shows at the public door: shared databases (K3), nothing left behind (K6)."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sqlalchemy import MetaData, create_engine, event, func, make_url, select, text
from sqlalchemy.pool import Pool

from slime_store import Sample, SampleFilter, SampleStore
from slime_store.errors import ForeignDatabaseError, NewerSchemaError, RolloutNotFoundError
from slime_store.repositories.blobs import BlobRepository
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.services.filling import rich_train

MLFLOW = """
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
INSERT INTO alembic_version VALUES ('v2.4.0.a');
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256) UNIQUE NOT NULL);
INSERT INTO experiments VALUES (1, 'Default');
CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), experiment_id INTEGER REFERENCES experiments);
INSERT INTO runs VALUES ('abc', 'theirs', 1), ('def', 'contract', 1);
CREATE TABLE metrics (key VARCHAR(250), value FLOAT, run_uuid VARCHAR(32) REFERENCES runs, PRIMARY KEY (key, run_uuid));
INSERT INTO metrics VALUES ('reward', 0.5, 'abc');
CREATE TABLE samples (id INTEGER PRIMARY KEY, position TEXT);
"""
THEIR_TABLES = ("alembic_version", "experiments", "runs", "metrics", "samples")


def _their_rows(url: str) -> dict[str, list[tuple[Any, ...]]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = {
            name: [tuple(row) for row in connection.execute(text(f"SELECT * FROM public.{name}"))]
            for name in THEIR_TABLES
        }
    engine.dispose()
    return rows


@pytest.fixture
def shared_url(postgres_url: str) -> str:
    """A database in which another program keeps its tables, some of them named as ours."""
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        for statement in MLFLOW.strip().split(";\n"):
            connection.execute(text(statement.strip(";\n")))
    engine.dispose()
    return postgres_url


@pytest.mark.postgresql
def test_k3_a_store_lives_beside_another_programs_tables_of_the_same_names(shared_url: str) -> None:
    before = _their_rows(shared_url)
    assert len(before["runs"]) == 2
    for _ in range(2):  # made, then found
        with opened(shared_url) as store:
            run = store.run("contract")
            run.record_train(0, make_train_output())
            assert [info.name for info in store.runs()] == ["contract"]
            assert run.rollouts()[0].n_samples == 8
            run.delete_rollout(0)
            assert store.stats().n_samples == 0
    assert _their_rows(shared_url) == before


@pytest.mark.postgresql
def test_k3_two_teams_share_a_database_in_schemas_of_their_own(shared_url: str) -> None:
    teams = [make_url(shared_url).update_query_dict({"schema": team}) for team in ("team_a", "team_b")]
    for n, url in enumerate(teams):
        with SampleStore.open(url) as store:
            store.run(f"run-{n}").record_train(n, make_train_output(seed=n))
    for n, url in enumerate(teams):
        with SampleStore.open(url, read_only=True) as store:
            assert [info.name for info in store.runs()] == [f"run-{n}"]
            assert_same(store.run(f"run-{n}").load_train(n), make_train_output(seed=n))


def test_k3_another_programs_sqlite_file_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(MLFLOW)
    connection.close()
    before = hashlib.sha256(path.read_bytes()).digest()
    for read_only in (False, True):
        with pytest.raises(ForeignDatabaseError, match="tables of another program"):
            SampleStore.open(path, read_only=read_only)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert [each.name for each in tmp_path.iterdir()] == ["mlflow.db"]


def test_k3_a_store_of_a_newer_version_is_refused_and_not_touched(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output())
    table = "slime_store_version" if store_url.startswith("sqlite") else "slime_store.slime_store_version"
    engine = create_engine(store_url)
    with engine.begin() as connection:
        [known] = connection.execute(text(f"SELECT version_num FROM {table}")).scalars()
        connection.execute(text(f"UPDATE {table} SET version_num = 'zzzz'"))
    for read_only in (False, True):
        with pytest.raises(NewerSchemaError, match="made by a newer slime_store"):
            SampleStore.open(store_url, read_only=read_only)
    with engine.begin() as connection:
        assert list(connection.execute(text(f"SELECT version_num FROM {table}")).scalars()) == ["zzzz"]
        connection.execute(text(f"UPDATE {table} SET version_num = '{known}'"))
    engine.dispose()
    assert_same(loaded_train(store_url, 0), make_train_output())


# -- K6: what is deleted leaves nothing behind

KEPT_TABLES = {"runs", "sessions", "weight_versions", "slime_store_version"}
"""Tables that tell a run's history, which the deletion of a rollout does not change."""


def _n_rows(url: str) -> dict[str, int]:
    address = make_url(url)
    schema = None if url.startswith("sqlite") else str(address.query.get("schema", "slime_store"))
    engine, metadata = create_engine(address.difference_update_query(["schema"])), MetaData()
    with engine.connect() as connection:
        metadata.reflect(connection, schema=schema)
        counts = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return counts


def _side_files(url: str) -> list[Path]:
    if not url.startswith("sqlite"):
        return []
    return sorted(path for path in Path(f"{make_url(url).database}-blobs").glob("*/*") if path.is_file())


def _fill(store: SampleStore) -> None:
    run = store.run("contract")
    run.record_train(0, rich_train(0), state={"buffer": [[make_sample(7)]], "noise": bytes(3000)})
    run.record_train(0, rich_train(1))
    run.record_train(1, rich_train(2))
    run.record_eval(0, make_eval_output(), weight_version="3", state={"cursor": 1})


def test_k6_every_table_is_filled_by_these_tests(store_url: str) -> None:
    with opened(store_url) as store:
        _fill(store)
    empty = {name for name, n in _n_rows(store_url).items() if n == 0}
    assert empty <= {"adoptions", "checkpoints", "imports", "pins"}  # which have tests of their own
    assert _side_files(store_url) or not store_url.startswith("sqlite")


def test_k6_deleting_every_rollout_leaves_no_row_and_no_file(store_url: str) -> None:
    with opened(store_url) as store:
        _fill(store)
        run = store.run("contract")
        assert run.delete_rollout(0) == 2
        assert_same(run.load_train(1), rich_train(2))  # which shares images and prompts with it
        assert run.delete_rollout(1) == 1
        assert run.delete_rollout(0, kind="eval") == 1
        assert run.rollouts(attempts=True) == []
    assert {name for name, n in _n_rows(store_url).items() if n} <= KEPT_TABLES
    assert _side_files(store_url) == []


@pytest.mark.parametrize("how", ["an attempt is deleted", "replaced"])
def test_k6_what_goes_leaves_exactly_what_stays(store_url: str, tmp_path: Path, how: str) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        run.record_train(0, rich_train(1))
        if how == "replaced":
            run.record_train(0, rich_train(0), on_conflict="replace")
        else:
            run.record_train(0, rich_train(0))
            run.delete_rollout(0, attempt=1)
        assert_same(run.load_train(0), rich_train(0))
        after = store.stats()
    if store_url.startswith("sqlite"):
        alone = f"sqlite:///{tmp_path / 'alone.db'}"
    else:
        alone = make_url(store_url).update_query_dict({"schema": "alone"}).render_as_string(hide_password=False)
    with opened(alone) as store:
        store.run("contract").record_train(0, rich_train(0))
        expected = store.stats()
    assert (after.n_blobs, after.blob_bytes, after.n_prompts) == (
        expected.n_blobs,
        expected.blob_bytes,
        expected.n_prompts,
    )
    counts, expected_counts = _n_rows(store_url), _n_rows(alone)
    for name in KEPT_TABLES:
        del counts[name], expected_counts[name]
    assert counts == expected_counts
    assert not store_url.startswith("sqlite") or len(_side_files(store_url)) == len(_side_files(alone))


@pytest.fixture
def foreign_key_settings() -> Iterator[dict[int, int]]:
    """PRAGMA foreign_keys of every SQLite connection that was used, at its last use."""
    settings: dict[int, int] = {}

    def note(connection: Any, _record: Any, _proxy: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            settings[id(connection)] = connection.execute("PRAGMA foreign_keys").fetchone()[0]

    event.listen(Pool, "checkout", note)
    yield settings
    event.remove(Pool, "checkout", note)


def test_k6_every_pooled_connection_enforces_foreign_keys(
    sqlite_url: str, foreign_key_settings: dict[int, int]
) -> None:
    barrier = Barrier(4)
    with opened(sqlite_url) as store, ThreadPoolExecutor(4) as pool:
        run = store.run("contract")
        run.record_train(0, make_train_output())
        foreign_key_settings.clear()

        def use() -> None:
            with store._handle.reading():  # a connection of its own for each thread
                barrier.wait(60)

        list(pool.map(lambda _: use(), range(4)))
        assert list(foreign_key_settings.values()) == [1] * 4


def _shared_groups(number: int, picture: int) -> list[list[Sample]]:
    image = Image.frombytes("RGB", (600, 600), np.random.default_rng(picture).bytes(1_080_000))
    return [[make_sample(number, prompt="the same", multimodal_inputs={"images": [image]})]]


def test_k6_deleting_while_others_record_the_same_content_loses_nothing(store_url: str) -> None:
    """Content goes with its last rollout; a record that finds it there must not lose it to a deletion meanwhile."""
    with opened(store_url) as store:
        store.run("contract")

    def work(writer: int) -> None:
        with run_of(store_url) as run:
            for turn in range(12):
                rollout_id = 100 * writer + turn
                run.record_train(rollout_id, _shared_groups(rollout_id, turn % 2))
                assert_same(run.load_train(rollout_id).samples, _shared_groups(rollout_id, turn % 2))
                if turn:
                    run.delete_rollout(rollout_id - 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    with opened(store_url) as store:
        run = store.run("contract")
        assert [info.rollout_id for info in run.rollouts()] == [11, 111, 211, 311]
        for rollout_id in (11, 111, 211, 311):
            assert_same(run.load_train(rollout_id).samples, _shared_groups(rollout_id, 1))
        assert (store.stats().n_blobs, store.stats().n_prompts) == (1, 1)
    assert not store_url.startswith("sqlite") or len(_side_files(store_url)) == 1


def test_k6_a_reader_that_a_deletion_overtakes_sees_the_rollout_wholly_or_not(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store_url) as store, opened(store_url) as other:
        run = store.run("contract")
        for rollout_id in (0, 1):
            run.record_train(rollout_id, _shared_groups(rollout_id, rollout_id))
        run.record_train(2, _shared_groups(2, 2))
        original = BlobRepository.read
        pending = [
            lambda: other.run("contract").delete_rollout(0),
            lambda: other.run("contract").record_train(1, _shared_groups(7, 7), on_conflict="replace"),
        ]

        def read(self: BlobRepository, pk: int) -> Any:
            if pending:
                pending.pop(0)()
            return original(self, pk)

        monkeypatch.setattr(BlobRepository, "read", read)
        with suppress(RolloutNotFoundError):  # or as it was when loading began
            assert_same(run.load_train(0).samples, _shared_groups(0, 0))
        loaded = run.load_train(1).samples
        assert_same(loaded, _shared_groups(1, 1) if loaded[0][0].index == 1 else _shared_groups(7, 7))
        pending.append(lambda: other.run("contract").delete_rollout(2))
        found = list(run.iter_samples(SampleFilter(rollout_ids=2)))
        assert_same(found, _shared_groups(2, 2)[0] if found else [])
