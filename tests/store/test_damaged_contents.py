"""Content that the store holds, but no longer whole: recorded again, it is put right for all that refer to it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from slime_store import Sample, SampleStore, copy_store
from slime_store.errors import BlobCorruptError
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import opened
from tests.services.filling import side_files
from tests.services.tables import execute, rows

Damage = Callable[[str], None]


def content(n_bytes: int) -> list[list[Sample]]:
    pixels = np.frombuffer(np.random.default_rng(n_bytes).bytes(n_bytes), np.uint8)
    return [[make_sample(i, multimodal_train_inputs={"pixels": pixels.copy()}) for i in range(2)]]


def cut(url: str) -> None:
    for path in side_files(url):
        os.truncate(path, 1000)


def emptied(url: str) -> None:
    for path in side_files(url):
        os.truncate(path, 0)


def lengthened(url: str) -> None:
    for path in side_files(url):
        path.write_bytes(path.read_bytes() + b"\0")


def removed(url: str) -> None:
    for path in side_files(url):
        path.unlink()


def without_parts(url: str) -> None:
    execute(url, "DELETE FROM blob_parts")


def without_a_part(url: str) -> None:
    execute(url, "DELETE FROM blob_parts WHERE part = 0")


def with_short_parts(url: str) -> None:
    execute(url, "UPDATE blob_parts SET data = substr(data, 1, 100)")


def damaged_and_recorded_again(url: str, damage: Damage, n_bytes: int) -> None:
    with opened(url) as store:
        run = store.run("contract")
        run.record_train(0, content(n_bytes))
        run.record_train(1, [[make_sample(0, rollout_routed_experts=np.arange(10, dtype=np.uint8))]])
        assert store.verify().problems == ()
        damage(url)
        assert not store.verify().ok
        run.record_train(2, content(n_bytes))
        for rollout_id in (0, 2):
            assert_same(run.load_train(rollout_id).samples, content(n_bytes))
        assert store.verify(grace_seconds=0).problems == ()  # also no file is left that no row names


@pytest.mark.parametrize("damage", [without_parts, without_a_part, with_short_parts])
@pytest.mark.parametrize("n_bytes", [100_000, 2_000_000])
def test_content_whose_parts_are_gone_or_short_is_stored_anew(postgres_url: str, damage: Damage, n_bytes: int) -> None:
    damaged_and_recorded_again(postgres_url, damage, n_bytes)


def test_a_record_that_stores_content_anew_and_one_that_holds_it_do_not_wait_for_each_other(postgres_url: str) -> None:
    with opened(postgres_url) as store, SampleStore.open(postgres_url, busy_timeout=1) as other:
        run = store.run("contract")
        run.record_train(0, content(100_000))
        digests = [digest for (digest,) in rows(postgres_url, "SELECT digest FROM blobs WHERE digest IS NOT NULL")]
        without_parts(postgres_url)
        with store._handle.writing("hold what is shared") as connection:
            assert store._handle.blobs(connection).known(digests, hold=True) == {}
            other.run("other").record_train(0, content(100_000))
        assert_same(run.load_train(0).samples, content(100_000))


@pytest.mark.parametrize("damage", [without_parts, with_short_parts])
def test_small_content_whose_parts_are_gone_or_short_is_stored_anew_too(sqlite_url: str, damage: Damage) -> None:
    damaged_and_recorded_again(sqlite_url, damage, 100_000)


@pytest.mark.parametrize("damage", [cut, emptied, lengthened, removed])
def test_content_whose_side_file_is_not_whole_is_stored_anew(sqlite_url: str, damage: Damage) -> None:
    damaged_and_recorded_again(sqlite_url, damage, 2_000_000)


@pytest.mark.parametrize("name", ["replace(file_name, '.blob', '.blnb')", "x'00ff'", "'../../etc/passwd'"])
def test_content_whose_side_file_has_a_name_that_is_none_is_stored_anew(sqlite_url: str, name: str) -> None:
    with opened(sqlite_url) as store:
        run = store.run("contract")
        run.record_train(0, content(2_000_000))
        execute(sqlite_url, f"UPDATE blobs SET file_name = {name} WHERE file_name IS NOT NULL")
        run.record_train(2, content(2_000_000))
        for rollout_id in (0, 2):
            assert_same(run.load_train(rollout_id).samples, content(2_000_000))
        assert {problem.code for problem in store.verify(grace_seconds=0).problems} <= {"file_unused"}


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse file of a terabyte", "directory"])
def test_a_side_file_that_is_none_is_damage_and_neither_waited_for_nor_read(sqlite_url: str, kind: str) -> None:
    with opened(sqlite_url) as store:
        run = store.run("contract")
        run.record_train(0, content(2_000_000))
        for path in side_files(sqlite_url):
            if kind.startswith("sparse"):
                os.truncate(path, 1 << 40)
                continue
            path.unlink()
            if kind == "pipe":
                os.mkfifo(path)
            elif kind == "device":
                path.symlink_to("/dev/zero")
            else:
                path.mkdir()
        with pytest.raises(BlobCorruptError):
            run.load_train(0)
        assert not store.verify().ok


def test_a_copy_puts_right_what_its_target_has_damaged(sqlite_url: str) -> None:
    target = f"{sqlite_url}.copy"
    with opened(sqlite_url) as store:
        run = store.run("contract")
        run.record_train(0, content(2_000_000))
        copy_store(store, target)
        cut(target)
        run.record_train(1, content(2_000_000))
        copy_store(store, target)
    with opened(target) as copied:
        assert_same(copied.run("contract").load_train(1).samples, content(2_000_000))
        assert copied.verify(grace_seconds=0).problems == ()
