"""Stores as each released schema wrote them, upgraded and used (cases K1, K2)."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from slime_store import SampleFilter, SampleStore
from slime_store.errors import DatabaseError, OutdatedSchemaError
from slime_store.schema import HEAD, REVISIONS, migrator
from slime_store.schema.location import migrations_directory
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import opened
from tests.migrations import old_content
from tests.migrations.old_stores import ASSETS, asset, put, unpack
from tests.services.tables import counts, value

RUN = old_content.RUN
MADE_BY_0004 = {"rollout_weight_versions", "rollout_metrics"}
"""Tables that an upgrade fills from what is there."""


def revision_of(url: str) -> str:
    return str(value(url, "SELECT version_num FROM slime_store_version"))


def test_every_revision_has_its_store() -> None:
    found = sorted(path.name for path in ASSETS.glob("*.tar.gz"))
    assert found == [f"schema-{revision}.tar.gz" for revision in REVISIONS]
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < 200_000


def test_a_missing_store_fails_and_is_not_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.migrations.old_stores.ASSETS", tmp_path)
    with pytest.raises(AssertionError, match=r"schema-0001\.tar\.gz is missing"):
        asset("0001")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_k1_an_old_store_is_upgraded_and_used_and_has_lost_no_row(
    store_url: str, tmp_path: Path, revision: str
) -> None:
    put(revision, store_url, tmp_path)
    assert revision_of(store_url) == revision
    before = counts(store_url)
    assert before["samples"] > 20 and before["blobs"] > 1 and before["blob_parts"] > 0
    with opened(store_url) as store:
        run = store.run(RUN, create=False)
        assert_same(run.load_train(0), old_content.train(0))
        assert_same(run.load_train(0, attempt=1), old_content.train(100))
        assert_same(run.load_train(1), old_content.train(1))
        assert_same(run.load_eval(1), old_content.evaluation())
        assert run.recovery.load_state(0) == {"cursor": 1}
        found = list(run.iter_samples(SampleFilter(kind="train", reward_key="score", reward_min=1.0)))
        assert [sample.metadata["n"] for sample in found] == [2, 2]
        report = store.verify(grace_seconds=0)
        assert report.ok, report.problems
    after = counts(store_url)
    assert {name: after[name] for name in before} == before
    assert revision_of(store_url) == HEAD
    assert value(store_url, "SELECT count(*) FROM rollout_weight_versions") > 0
    with opened(store_url) as store:  # as any other store
        run = store.run(RUN)
        run.record_train(1, old_content.train(7), on_conflict="replace")
        run.record_train(2, old_content.train(8))
        assert_same(run.load_train(1), old_content.train(7))
        run.delete_rollout(0)
        run.prune(keep_arrays_last=1)
        store.vacuum()
        assert store.verify(grace_seconds=0).ok
    with opened(store_url, read_only=True) as store:
        assert_same(store.run(RUN, create=False).load_train(2), old_content.train(8))


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_a_reader_leaves_an_old_store_as_it_is(sqlite_url: str, tmp_path: Path, revision: str) -> None:
    put(revision, sqlite_url, tmp_path)
    path = Path(str(make_url(sqlite_url).database))
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(OutdatedSchemaError, match=revision):
        SampleStore.open(sqlite_url, read_only=True)
    assert hashlib.sha256(path.read_bytes()).digest() == before


FAILING = """
    op.execute("INSERT INTO nowhere VALUES (1)")


"""


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_k2_an_upgrade_that_fails_in_its_last_step_leaves_the_old_store_and_works_when_it_is_mended(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    put(revision, store_url, tmp_path)
    before = counts(store_url)
    broken = tmp_path / "migrations"
    shutil.copytree(migrations_directory(), broken, ignore=shutil.ignore_patterns("__pycache__"))
    [last] = (broken / "versions").glob(f"{HEAD}_*.py")
    head, tail = last.read_text().split("def downgrade", 1)
    last.write_text(f"{head.rstrip()}{FAILING}def downgrade{tail}")
    with monkeypatch.context() as patched:
        patched.setattr(migrator, "migrations_directory", lambda: broken)
        for _ in range(2):
            with pytest.raises(DatabaseError, match="nowhere"):
                SampleStore.open(store_url)
            assert (revision_of(store_url), counts(store_url)) == (revision, before)
    with opened(store_url) as store:
        assert_same(store.run(RUN, create=False).load_train(1), old_content.train(1))
        assert store.verify(grace_seconds=0).ok


def test_references_that_dangled_before_do_not_keep_a_store_from_being_upgraded(tmp_path: Path) -> None:
    path = unpack("0005", tmp_path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES mine (id))")
        connection.execute("INSERT INTO mine VALUES (1, 99)")
        connection.execute("DELETE FROM prompts WHERE id = 1")  # keys are not enforced here
    with SampleStore.open(path) as store:
        assert "reference_dangling" in {problem.code for problem in store.verify().problems}


def test_the_committed_stores_name_no_machine() -> None:
    for revision in REVISIONS:
        with tarfile.open(asset(revision)) as tar:
            assert all(not entry.uname and entry.uid == 0 for entry in tar.getmembers())
