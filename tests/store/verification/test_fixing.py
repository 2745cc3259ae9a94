"""``store.verify(fix=True)`` and deletions in a damaged store: what a rollout needs, or may need, stays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.errors import StoreError
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.services.filling import side_files
from tests.services.tables import counts, execute, rows

RUN = "run"


def with_files(seed: int, n_samples: int = 1) -> RolloutFnTrainOutput:
    """A rollout with one side file a sample, each of as many bytes."""
    generator, samples = np.random.default_rng(seed), []
    for position in range(n_samples):
        sample = make_sample(seed * 10 + position)
        sample.rollout_routed_experts = generator.integers(0, 256, (5000, 50, 4), dtype=np.uint8)
        samples.append(sample)
    return RolloutFnTrainOutput([samples])


def with_tensor(seed: int) -> RolloutFnTrainOutput:
    pixels = torch.randn(100, 100, generator=torch.Generator().manual_seed(seed))
    return RolloutFnTrainOutput([[make_sample(seed, multimodal_train_inputs={"pixels": pixels})]])


def record(url: str, *outputs: RolloutFnTrainOutput) -> None:
    with run_of(url, RUN) as run:
        for rollout_id, output in enumerate(outputs):
            run.record_train(rollout_id, output)


def check(url: str, rollout_id: int, expected: RolloutFnTrainOutput) -> None:
    assert_same(loaded_train(url, rollout_id, RUN), expected)


# -- two rows that name one side file


@pytest.fixture
def doubled(sqlite_url: str) -> str:
    """Three rollouts of one side file each; the row of rollout 0 has got the name of that of rollout 2."""
    record(sqlite_url, *map(with_files, range(3)))
    first, _, last = (row[0] for row in rows(sqlite_url, "SELECT file_name FROM blobs ORDER BY id"))
    execute(sqlite_url, f"UPDATE blobs SET file_name = '{last}' WHERE file_name = '{first}'")
    execute(sqlite_url, f"CREATE TABLE mine AS SELECT '{first}' AS name")
    return sqlite_url


def put_right(url: str) -> None:
    execute(url, "UPDATE blobs SET file_name = (SELECT name FROM mine) WHERE id = (SELECT min(id) FROM blobs)")


def test_two_rows_that_name_one_side_file_are_found_with_both_rollouts_and_nothing_is_deleted(doubled: str) -> None:
    before = side_files(doubled)
    for fix in (False, True):
        with opened(doubled) as store:
            report = store.verify(fix=fix, grace_seconds=-1)
        problems = [each for each in report.problems if each.code == "file_shared"]
        assert [each.rollout_id for each in problems] == [None, 0, 2]
        assert not report.ok and not any(each.fixable for each in report.problems)
    with opened(doubled) as store:
        store.vacuum()
    assert side_files(doubled) == before
    put_right(doubled)
    check(doubled, 0, with_files(0))


def delete(store: SampleStore) -> None:
    store.run(RUN).delete_rollout(0)


def replace(store: SampleStore) -> None:
    store.run(RUN).record_train(0, with_files(5), on_conflict="replace")


def prune(store: SampleStore) -> None:
    store.run(RUN).pin(2)
    store.run(RUN).prune(keep_arrays_last=0)


@pytest.mark.parametrize("act", [delete, replace, prune])
def test_a_deletion_leaves_a_side_file_that_another_row_names(doubled: str, act: Callable[[SampleStore], None]) -> None:
    with opened(doubled) as store:
        act(store)
    check(doubled, 2, with_files(2))


def test_content_that_is_stored_anew_leaves_a_side_file_that_another_row_names(sqlite_url: str) -> None:
    outputs = [
        RolloutFnTrainOutput([[make_sample(seed, multimodal_train_inputs={"pixels": torch.randn(n, generator=g)})]])
        for seed, n in ((0, 400_000), (1, 500_000))
        for g in (torch.Generator().manual_seed(seed),)
    ]
    record(sqlite_url, *outputs)
    _, last = (row[0] for row in rows(sqlite_url, "SELECT file_name FROM blobs ORDER BY id"))
    execute(sqlite_url, f"UPDATE blobs SET file_name = '{last}'")
    with run_of(sqlite_url, RUN) as run:
        run.record_train(7, outputs[0])
    check(sqlite_url, 0, outputs[0])
    check(sqlite_url, 1, outputs[1])


@pytest.mark.parametrize("damage", ["upper(file_name)", "NULL", "CAST(file_name AS BLOB)", "file_name || ' '"])
def test_vacuum_leaves_files_without_a_row_while_the_name_of_one_is_damaged(sqlite_url: str, damage: str) -> None:
    record(sqlite_url, with_files(0))
    [path], [[name]] = side_files(sqlite_url), rows(sqlite_url, "SELECT file_name FROM blobs")
    make_old(path)
    execute(sqlite_url, f"UPDATE blobs SET file_name = {damage}")
    with opened(sqlite_url) as store:
        store.vacuum()
    execute(sqlite_url, f"UPDATE blobs SET file_name = '{name}'")
    check(sqlite_url, 0, with_files(0))
    stray = path.with_name(f"{'0' * 32}.blob")
    stray.write_bytes(b"left over")
    make_old(stray)
    with opened(sqlite_url) as store:
        assert store.vacuum() >= 9
    assert side_files(sqlite_url) == [path]


def make_old(path: Path) -> None:
    os.utime(path, (0, 0))


# -- rollouts that cannot be looked at whole


FURTHER_DAMAGE = {
    "an array": "UPDATE sample_arrays SET data = {zero} WHERE field = 'tokens'",
    "the row of an array": "DELETE FROM sample_arrays WHERE field = 'tokens'",
    "a document": "UPDATE sample_documents SET extra = substr(extra, 2)",
    "the row of a document": "DELETE FROM sample_documents",
    "a prompt": "UPDATE prompts SET text = 'x'",
    "a sample": "UPDATE samples SET layout = 99",
}


@pytest.mark.slow_on_postgresql
@pytest.mark.parametrize("damage", FURTHER_DAMAGE)
def test_fix_deletes_no_content_that_lost_its_reference_whatever_else_of_the_rollout_is_damaged(
    store_url: str, damage: str
) -> None:
    zero = "x'00'" if store_url.startswith("sqlite") else "'\\x00'::bytea"
    record(store_url, with_tensor(0), with_tensor(1))
    execute(store_url, "DELETE FROM blob_references", FURTHER_DAMAGE[damage].format(zero=zero))
    before = counts(store_url)
    with opened(store_url) as store:
        report = store.verify(fix=True)
    assert not report.ok and not any(each.fixed for each in report.problems)
    assert counts(store_url) == before


def test_a_side_file_of_a_damaged_rollout_that_lost_its_reference_stays(sqlite_url: str) -> None:
    record(sqlite_url, with_files(0, 2))
    names = [row[0] for row in rows(sqlite_url, "SELECT file_name FROM blobs ORDER BY id")]
    paths = side_files(sqlite_url)
    [path] = [path for path in paths if path.name == names[0].split("/")[1]]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    execute(
        sqlite_url, f"DELETE FROM blob_references WHERE blob_pk = (SELECT id FROM blobs WHERE file_name = '{names[1]}')"
    )
    with opened(sqlite_url) as store:
        assert not store.verify(fix=True, grace_seconds=-1).ok
    assert side_files(sqlite_url) == paths
    with pytest.raises(StoreError):
        loaded_train(sqlite_url, 0, RUN)


# -- directories that are called like files


@pytest.mark.parametrize("is_full", [False, True])
def test_a_directory_that_is_called_like_a_side_file_stays_and_is_named(sqlite_url: str, is_full: bool) -> None:
    record(sqlite_url, with_files(0))
    [file] = side_files(sqlite_url)
    places = [file.with_name(name) for name in (f"{'0' * 32}.blob", f"{'0' * 32}.blob.tmp")]
    for place in places:
        place.mkdir()
        if is_full:
            (place / "mine").write_text("mine")
    unused = file.with_name(f"{'1' * 32}.blob")
    unused.write_bytes(b"left over")
    with opened(sqlite_url) as store:
        problems = store.verify(fix=True, grace_seconds=-1).problems
        found = {(each.code, each.fixed, "it is a directory" in each.what) for each in problems}
        assert found == {("file_unused", True, False), ("file_unused", False, True), ("file_temporary", False, True)}
        store.vacuum()
    assert not unused.exists() and file.exists() and all(place.is_dir() for place in places)
