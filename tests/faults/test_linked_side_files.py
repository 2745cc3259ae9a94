"""Links among the side files, and files whose rows have lost their names: nothing outside is touched or handed out."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.errors import BlobCorruptError, BlobMissingError
from slime_store.store.upkeep import store_status
from slime_store.testing import assert_same, make_sample
from tests.services.files import let_listing_fail

SECRET = b"-----BEGIN PRIVATE KEY-----" * 99


def output_with_file(seed: int) -> RolloutFnTrainOutput:
    noise = torch.randn(600_000, generator=torch.Generator().manual_seed(seed))
    return RolloutFnTrainOutput([[make_sample(seed, multimodal_train_inputs={"pixels": noise})]])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SampleStore]:
    with SampleStore.open(tmp_path / "s.db") as store:
        store.run("r").record_train(0, output_with_file(0))
        yield store


def side_file(tmp_path: Path, name: str = "s.db") -> Path:
    (path,) = (tmp_path / f"{name}-blobs").glob("*/*.blob")
    return path


def test_what_a_linked_subdirectory_leads_to_is_neither_deleted_nor_read(store: SampleStore, tmp_path: Path) -> None:
    with SampleStore.open(tmp_path / "other.db") as other:
        other.run("r").record_train(0, output_with_file(1))
        theirs = side_file(tmp_path, "other.db")
        half = theirs.with_name(f"{'0' * 32}.blob.tmp")
        half.write_bytes(b"half")
        link = tmp_path / "s.db-blobs" / theirs.parent.name
        if link.exists():
            shutil.move(link, link.with_name("fe"))  # one time in 256; its rollout is damaged then
        link.symlink_to(theirs.parent, target_is_directory=True)
        store.verify(fix=True, grace_seconds=-1)
        assert (theirs.exists(), half.exists()) == (True, True)
        assert_same(other.run("r").load_train(0), output_with_file(1))
        directory = store._handle.directory
        assert directory is not None
        name = f"{theirs.parent.name}/{theirs.name}"
        assert name not in list(directory.names()) and not directory.has(name)
        with pytest.raises(BlobCorruptError):
            directory.read(name)
        with pytest.raises(OSError):
            directory.remove(name)
        assert theirs.exists()


@pytest.mark.parametrize("target", ["secret", "/dev/zero", "itself", "a pipe"])
def test_a_side_file_that_is_a_link_or_no_file_is_damage(
    store: SampleStore, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    path = side_file(tmp_path)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection, connection:
        connection.execute("UPDATE blobs SET n_bytes = ? WHERE file_name IS NOT NULL", (len(SECRET),))
    path.unlink()
    if target == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"secret": secret, "itself": path}.get(target, Path(target)))
    with pytest.raises((BlobCorruptError, BlobMissingError)):
        store.run("r").load_train(0)
    assert store.stats().blob_bytes >= 0
    assert {problem.code for problem in store.verify().problems} >= {"blob_missing"}
    monkeypatch.setattr(os, "link", _no_links)
    report = store.backup(tmp_path / "backup.db")
    assert len(report.missing_files) == 1
    assert not list((tmp_path / "backup.db-blobs").glob("*/*.blob"))
    store.verify(fix=True, grace_seconds=-1)
    assert secret.read_bytes() == SECRET


def _no_links(*_: object, **__: object) -> None:
    raise OSError(18, "another file system")


def test_verify_says_of_a_directory_that_it_cannot_be_listed(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.db-blobs" / "ab").mkdir(exist_ok=True)
    let_listing_fail(monkeypatch, tmp_path / "s.db-blobs" / "ab")
    for fix in (False, True):
        (problem,) = store.verify(fix=fix, grace_seconds=-1).problems
        assert problem.code == "directory_unreadable" and "Too many open files" in problem.what
    assert store.stats().n_runs == 1 and store_status(store.url).state == "current"


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "s.db-blobs").symlink_to(tmp_path / "disk", target_is_directory=True)
    with SampleStore.open(tmp_path / "s.db") as store:
        store.run("r").record_train(0, output_with_file(0))
        assert_same(store.run("r").load_train(0), output_with_file(0))
        assert store.verify(fix=True, grace_seconds=-1).problems == ()
        assert list((tmp_path / "disk").glob("*/*.blob"))


@pytest.mark.parametrize("damage", ["upper(file_name)", "file_name || ' '", "NULL", "CAST(file_name AS BLOB)"])
def test_a_file_whose_row_has_lost_its_name_is_not_taken_for_unused(
    store: SampleStore, tmp_path: Path, damage: str
) -> None:
    path, url = side_file(tmp_path), tmp_path / "s.db"
    name = f"{path.parent.name}/{path.name}"
    with closing(sqlite3.connect(url)) as connection, connection:
        connection.execute(f"UPDATE blobs SET file_name = {damage} WHERE file_name = ?", (name,))
    report = store.verify(fix=True, grace_seconds=-1)
    assert not report.ok and path.exists()
    with closing(sqlite3.connect(url)) as connection, connection:
        connection.execute("UPDATE blobs SET file_name = ?", (name,))
    assert_same(store.run("r").load_train(0), output_with_file(0))
