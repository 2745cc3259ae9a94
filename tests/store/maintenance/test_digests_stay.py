"""Digests are right after everything that writes, changes or moves rows, and no rollout or row is without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import Sample, SampleStore, copy_store
from slime_store.interchange import import_path
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
from slime_store.testing import make_eval_output, make_sample
from slime_store.testing.contract.opening import opened
from tests.migrations import old_content
from tests.services.filling import RUN, make_filled
from tests.services.tables import rows, value

DIGESTS = "SELECT rollout_pk, subject, digests FROM rollout_digests ORDER BY rollout_pk, subject"


def check(store: SampleStore) -> None:
    """See that a store is sound, and that nothing in it is without a digest."""
    report = store.verify(grace_seconds=0)
    assert report.ok, report.problems
    assert not {"rollouts_without_digest", "rows_without_digest"} & report.counts.keys()


def record_in_the_background(store: SampleStore) -> None:
    store.run(RUN).record_train(9, old_content.train(9), state={"cursor": 9}, background=True).result()
    store.run(RUN).record_eval(9, old_content.evaluation(), weight_version="2", background=True).result()


def replace(store: SampleStore) -> None:
    store.run(RUN).record_train(1, old_content.train(1), on_conflict="replace")


def delete(store: SampleStore) -> None:
    store.run(RUN).delete_rollout(0, attempt=1)
    store.run(RUN).delete_rollout(5)


def delete_a_run(store: SampleStore) -> None:
    store.delete_run(RUN)


def prune(store: SampleStore) -> None:
    assert store.run(RUN).prune(keep_arrays_last=0).n_pruned
    check(store)
    store.run(RUN).record_train(30, old_content.train(30), state={"cursor": 30})
    store.run(RUN).recovery.record_checkpoint(30)
    assert store.run(RUN).prune(keep_arrays_last=1, keep_rollouts_last=1).n_deleted


def compact(store: SampleStore) -> None:
    store.run(RUN).delete_rollout(0)
    store.vacuum()


def pin_and_unpin(store: SampleStore) -> None:
    run = store.run(RUN)
    run.pin(0, note="one")
    run.pin(0, note="two")
    run.pin(1)
    run.unpin(1)


def change_small_rows(store: SampleStore) -> None:
    run = store.run("empty", config={"lr": 1.0})
    run.recovery.begin_session(checkpoint_rollout_id=3, lineage={"model": "other"})
    run.record_weight_version("9", metadata={"note": "x"})
    run.record_weight_version("9", params=[])
    run.recovery.record_checkpoint(3)
    run.recovery.record_checkpoint(3)


def take_the_journal_over(store: SampleStore) -> None:
    run = store.run(RUN)
    [group] = run.resume().journalled_groups
    run.recovery.adopt(run.rollouts("train")[0])
    clearing = JournalClearing(served=frozenset({30}), whole=True, groups=frozenset({30}))
    prepared = prepare_train(2, [group, [make_sample(3, group_index=31)]], clear_journal=clearing)
    prepared.store(run)
    assert not run.resume().journalled_groups


def odd_values(store: SampleStore) -> None:
    run = store.run(RUN)
    odd: list[Any] = [-0.0, 2**70, True, "text", {"a": -0.0, "b": float("nan"), "c": {"d": 1}}, float("inf"), 10**400]
    group = [Sample(reward=reward, index=2**70, response="a\0b", weight_versions=[7, "x"]) for reward in odd]
    group[0].non_generation_time = -0.0
    run.record_train(11, [group], state={"x": 2**70})
    run.record_eval(11, {"a": {"samples": group, "rewards": [-0.0] * len(odd)}, "b": {}, 3: {"x": 1}})
    run.record_train(12, [])
    run.record_eval(12, make_eval_output({"e": 0}))


OPERATIONS: list[Callable[[SampleStore], None]] = [
    record_in_the_background,
    replace,
    delete,
    delete_a_run,
    prune,
    compact,
    pin_and_unpin,
    change_small_rows,
    take_the_journal_over,
    odd_values,
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
def test_digests_are_right_after(store_url: str, operation: Callable[[SampleStore], None]) -> None:
    make_filled(store_url)
    with opened(store_url) as store:
        check(store)
        operation(store)
        check(store)
    with opened(store_url, read_only=True) as store:
        check(store)


def test_copies_between_the_databases_and_backups_have_the_same_digests(
    sqlite_url: str, postgres_url: str, tmp_path: Path
) -> None:
    make_filled(sqlite_url)
    back = f"sqlite:///{tmp_path / 'back.db'}"
    with opened(sqlite_url) as store:
        odd_values(store)
        store.run(RUN).prune(keep_arrays_last=3)
        copy_store(store, postgres_url)
    with opened(postgres_url) as store:
        copy_store(store, back)
        store.backup(tmp_path / "backup.db")
    digests = rows(sqlite_url, DIGESTS)
    small = rows(sqlite_url, "SELECT id, row_digest FROM sessions ORDER BY id")
    for url in (postgres_url, back, f"sqlite:///{tmp_path / 'backup.db'}"):
        with opened(url, read_only=True) as store:
            check(store)
        assert rows(url, DIGESTS) == digests
        assert rows(url, "SELECT id, row_digest FROM sessions ORDER BY id") == small


def test_values_that_sqlite_rounds_away_have_the_same_digest_where_they_stay(postgres_url: str, tmp_path: Path) -> None:
    with opened(postgres_url) as store:
        odd_values(store)
        check(store)
        copy_store(store, tmp_path / "copy.db")
    with opened(f"sqlite:///{tmp_path / 'copy.db'}", read_only=True) as store:
        check(store)


def test_what_is_imported_from_an_older_store_gets_digests(store_url: str, tmp_path: Path) -> None:
    from tests.migrations.old_stores import unpack

    (tmp_path / "old").mkdir()
    old = unpack("0005", tmp_path / "old")
    with SampleStore.open(old) as store:
        assert store.verify().counts["rollouts_without_digest"]
    with opened(store_url) as store:
        import_path(store.run(old_content.RUN), old)
        check(store)
    assert value(store_url, "SELECT count(*) FROM rollouts") == 4
