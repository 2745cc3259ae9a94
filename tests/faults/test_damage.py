"""Damaged files: a typed error or a report, never a crash; the rest is read, and the file is not touched (case H10)."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.errors import DamagedStoreError, SchemaError, StoreError
from slime_store.testing import assert_same
from tests.services.filling import RUN, make_filled

PAGE_BYTES = 16384


class Whole:
    """A filled store in one file with its side files, and what it gives back."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "whole.db"
        make_filled(f"sqlite:///{self.path}")
        with SampleStore.open(self.path) as store:
            self.loaded = contents(store)
        self.bytes = self.path.read_bytes()
        assert not list(directory.glob("*-wal"))

    def damaged(self, path: Path, content: bytes) -> Path:
        """Write a damaged copy beside whole side files."""
        path.write_bytes(content)
        files = Path(f"{path}-blobs")
        if not files.exists():
            shutil.copytree(f"{self.path}-blobs", files)
        return path


def contents(store: SampleStore) -> dict[Any, Any]:
    """Return every rollout by its address; an error stands for one that cannot be read."""
    run = store.run(RUN, create=False)
    found: dict[Any, Any] = {}
    for info in run.rollouts(attempts=True):
        load: Callable[..., Any] = run.load_train if info.kind == "train" else run.load_eval
        try:
            found[info.kind, info.rollout_id, info.attempt] = load(info.rollout_id, attempt=info.attempt)
        except StoreError as error:
            found[info.kind, info.rollout_id, info.attempt] = error
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def _equal(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True


def look_at(path: Path, whole: Whole) -> str:
    """Read and check a damaged store; return what became of it: refused, reported, unseen or unharmed."""
    before = hashlib.sha256(path.read_bytes()).digest()
    try:
        with SampleStore.open(path, read_only=True) as store:
            try:
                loaded = contents(store)
            except StoreError:
                loaded = {}
            report = store.verify()
    except SchemaError:
        return "refused"
    finally:
        assert hashlib.sha256(path.read_bytes()).digest() == before
        assert path.exists()
    changed = [
        key
        for key, value in whole.loaded.items()
        if not isinstance(loaded.get(key), StoreError) and key in loaded and not _equal(loaded[key], value)
    ]
    if not report.ok:
        return "reported"
    assert len(changed) <= 1, changed  # one flipped bit reaches no more than the one row it is in
    return "unseen" if changed else "unharmed"


def _flipped(content: bytes, rng: random.Random, page: int) -> bytes:
    made = bytearray(content)
    used = [at for at in range(page * PAGE_BYTES, (page + 1) * PAGE_BYTES) if content[at]]  # not where nothing is
    made[rng.choice(used or [page * PAGE_BYTES])] ^= 1 << rng.randrange(8)
    return bytes(made)


@pytest.mark.parametrize("n_each", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_h10_a_flipped_bit_in_any_page_is_no_crash_and_harms_no_other_rollout(
    whole: Whole, tmp_path: Path, n_each: int
) -> None:
    rng, seen = random.Random(n_each), list[str]()
    n_pages = len(whole.bytes) // PAGE_BYTES
    for page in range(n_pages) if n_each > 1 else range(0, n_pages, 2):
        for _ in range(n_each):
            seen.append(look_at(whole.damaged(tmp_path / "runs.db", _flipped(whole.bytes, rng, page)), whole))
    counted = {what: seen.count(what) for what in sorted(set(seen))}
    print(f"{len(seen)} flipped bits in {n_pages} pages: {counted}")
    assert counted.get("reported", 0) > len(seen) // 2
    assert not counted.get("unseen")  # what is loaded is as it was recorded, or verify says which is not


SPOILT = {
    "a time": "UPDATE rollouts SET finished_at = replace(finished_at, ':', '/')",
    "a text": ("UPDATE sample_texts SET response = CAST(X'bdff' AS TEXT) WHERE position = 0"),
    "a number": ("UPDATE rollouts SET n_samples = 'x' WHERE rollout_id = 1"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_h10_a_value_that_has_become_another_is_a_typed_error_and_reported(
    whole: Whole, tmp_path: Path, what: str
) -> None:
    path = whole.damaged(tmp_path / "runs.db", whole.bytes)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(SPOILT[what])
        connection.commit()
    assert look_at(path, whole) == "reported"


def test_h10_a_schema_that_is_no_text_any_more_is_refused(whole: Whole, tmp_path: Path) -> None:
    content = whole.bytes.replace(b"CREATE VIEW", b"CREATE V\xbdEW")
    assert content != whole.bytes
    assert look_at(whole.damaged(tmp_path / "runs.db", content), whole) == "refused"


def test_h10_a_schema_revision_that_is_no_text_any_more_is_refused(whole: Whole, tmp_path: Path) -> None:
    path = whole.damaged(tmp_path / "runs.db", whole.bytes)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE slime_store_version SET version_num = CAST(X'3030bd36' AS TEXT)")
        connection.commit()
    assert look_at(path, whole) == "refused"


@pytest.mark.parametrize("read_only", [False, True])
def test_h10_a_file_cut_anywhere_is_refused_or_reported_and_not_made_anew(
    whole: Whole, tmp_path: Path, read_only: bool
) -> None:
    rng = random.Random(4)
    size = len(whole.bytes)
    for length in [1, 15, 16, 99, 100, 101, 4096, PAGE_BYTES, size - 1, *(rng.randrange(size) for _ in range(12))]:
        path = whole.damaged(tmp_path / f"cut-{length}.db", whole.bytes[:length])
        try:
            with SampleStore.open(path, read_only=read_only) as store:
                report = store.verify()
                assert not report.ok, length
        except SchemaError as error:
            assert isinstance(error, DamagedStoreError), (length, error)
        assert (
            path.read_bytes()[: length // PAGE_BYTES * PAGE_BYTES] == whole.bytes[: length // PAGE_BYTES * PAGE_BYTES]
        )
        assert path.stat().st_size == length


def test_h10_a_zeroed_page_is_refused_or_reported(whole: Whole, tmp_path: Path) -> None:
    seen = []
    for page in range(0, len(whole.bytes) // PAGE_BYTES, 4):
        content = bytearray(whole.bytes)
        content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = bytes(PAGE_BYTES)
        seen.append(look_at(whole.damaged(tmp_path / "runs.db", bytes(content)), whole))
    assert set(seen) <= {"refused", "reported"}, seen


def test_h10_a_damaged_log_costs_at_most_what_was_in_it(whole: Whole, tmp_path: Path) -> None:
    """SQLite's log has a checksum for each frame: what is behind a damaged one was never committed, as it sees it."""
    path = tmp_path / "live.db"
    shutil.copy(whole.path, path)
    shutil.copytree(f"{whole.path}-blobs", f"{path}-blobs")
    with SampleStore.open(path) as store:
        from slime_store.testing import make_train_output

        store.run(RUN).record_train(77, make_train_output(seed=77))
        log, pages = Path(f"{path}-wal").read_bytes(), path.read_bytes()
    rng = random.Random(6)
    for case in range(8):
        broken = bytearray(log)
        if case % 2:
            del broken[rng.randrange(len(log)) :]
        else:
            broken[rng.randrange(32, len(log))] ^= 1 << rng.randrange(8)
        copy = whole.damaged(tmp_path / f"log-{case}.db", pages)
        Path(f"{copy}-wal").write_bytes(broken)
        with SampleStore.open(copy) as store:
            found = contents(store)
            assert found.keys() - whole.loaded.keys() <= {("train", 77, 1)}
            for key, value in whole.loaded.items():
                assert_same(found[key], value)
            if ("train", 77, 1) in found:
                assert_same(found["train", 77, 1], make_train_output(seed=77))
            assert store.verify().ok


def test_h10_a_damaged_side_file_is_reported_for_its_samples_and_no_others(whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(8)
    path = whole.damaged(tmp_path / "runs.db", whole.bytes)
    files = sorted(Path(f"{path}-blobs").glob("*/*.blob"))
    for file in files:
        content = file.read_bytes()
        for case in range(4):
            broken = bytearray(content)
            if case == 3:
                del broken[rng.randrange(len(content)) :]
            else:
                broken[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
            file.write_bytes(broken)
            with SampleStore.open(path, read_only=True) as store:
                report = store.verify()
                assert not report.ok
                hit = {
                    (each.kind, each.rollout_id, each.attempt)
                    for each in report.problems
                    if each.rollout_id is not None
                }
                found = contents(store)
            for key, value in whole.loaded.items():
                if key in hit:
                    assert isinstance(found[key], StoreError)
                else:
                    assert_same(found[key], value)
            assert any(each.samples for each in report.problems)
            assert file.read_bytes() == broken
            file.write_bytes(content)


@pytest.mark.parametrize("what", ["a directory", "a file in place of the directory", "nothing"])
def test_h10_side_files_that_are_something_else_are_reported(whole: Whole, tmp_path: Path, what: str) -> None:
    path = whole.damaged(tmp_path / "runs.db", whole.bytes)
    files = Path(f"{path}-blobs")
    if what == "a directory":
        for file in files.glob("*/*.blob"):
            file.unlink()
            file.mkdir()
    else:
        shutil.rmtree(files)
        if what != "nothing":
            files.write_text("not a directory")
    with SampleStore.open(path, read_only=True) as store:
        found = contents(store)
        assert any(isinstance(value, StoreError) for value in found.values())
        report = store.verify()
        assert not report.ok and any(each.code in ("blob_missing", "blob_damaged") for each in report.problems)
    if what != "nothing":
        assert files.exists()
