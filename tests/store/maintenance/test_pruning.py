"""``run.prune()``, pins, ``store.vacuum()`` and ``store.delete_run()``: what goes, what stays, and what says so."""

from __future__ import annotations

import os
import pickle
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import RolloutFnTrainOutput, Run, Sample, SampleFilter, SampleStore
from slime_store.errors import ArraysPrunedError, ReadOnlyStoreError, RolloutNotFoundError, RunNotFoundError
from slime_store.store import handle, pruning
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import opened, run_of
from tests.services.filling import RUN, fill, rich_train, side_files
from tests.services.tables import counts, value


def small(seed: int) -> RolloutFnTrainOutput:
    return make_train_output(2, 2, seed=seed)


def whole(run: Run) -> list[tuple[str, int, int]]:
    """Return the attempts that have their arrays."""
    return [(i.kind, i.rollout_id, i.attempt) for i in run.rollouts(attempts=True) if i.pruned_at is None]


def test_the_newest_rollouts_of_each_kind_keep_their_arrays(store_url: str) -> None:
    with run_of(store_url) as run:
        for n in range(5):
            run.record_train(10 * n, small(n))
            run.record_eval(n, make_eval_output(seed=n))
        planned = run.prune(keep_arrays_last=2, keep_rollouts_last=4, dry_run=True)
        assert (planned.n_pruned, planned.n_deleted, planned.freed_bytes, len(whole(run))) == (4, 2, 0, 10)
        report = run.prune(keep_arrays_last=2)
        assert (report.n_pruned, report.n_deleted, report.n_pinned, report.n_needed) == (6, 0, 0, 0)
        assert report.freed_bytes > 0
        assert whole(run) == [("train", 30, 1), ("train", 40, 1), ("eval", 3, 1), ("eval", 4, 1)]
        assert_same(run.load_train(30), small(3))
        assert_same(run.load_eval(4), make_eval_output(seed=4))
        again = run.prune(keep_arrays_last=2)
        assert (again.n_pruned, again.freed_bytes) == (0, 0)
        with pytest.raises(
            ArraysPrunedError, match=r"train rollout 20 .* were pruned at 20\d\d-.* by prune\(keep_arrays_last=2\)"
        ):
            run.load_train(20)
        with pytest.raises(ArraysPrunedError) as caught:
            run.load_eval(1)
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (str(copy), copy.rollout_id) == (str(caught.value), 1)


def test_scalars_texts_metadata_and_filters_go_on_to_work(store_url: str) -> None:
    kept = [
        "index",
        "reward",
        "response",
        "label",
        "prompt",
        "status",
        "metadata",
        "weight_versions",
        "response_length",
    ]
    with run_of(store_url) as run:
        run.record_train(0, rich_train(0), state={"noise": bytes(3000)})
        run.record_eval(0, make_eval_output())
        run.recovery.record_checkpoint(1)  # so that resuming needs none of them
        before = list(run.iter_samples(fields=kept))
        infos = run.rollouts()
        where = SampleFilter(reward_min=0.0, metadata={"source": "made-up"}, text=before[1].response[:9])
        found = [s.index for s in run.iter_samples(where, fields=["index"])]
        assert found
        run.prune(keep_arrays_last=0)
        assert_same(list(run.iter_samples(fields=kept)), before)
        for fields in (None, ["tokens"], ["rollout_log_probs", "reward"], ["multimodal_inputs"]):
            with pytest.raises(ArraysPrunedError):
                list(run.iter_samples(SampleFilter(kind="train"), fields=fields))
        assert [s.index for s in run.iter_samples(where, fields=["index"])] == found
        with pytest.raises(ArraysPrunedError):
            run.recovery.load_state(0)
        for info, earlier in zip(run.rollouts(), infos, strict=True):
            assert (info.n_samples, info.n_tokens, info.metrics) == (
                earlier.n_samples,
                earlier.n_tokens,
                earlier.metrics,
            )
            assert info.pruned_at is not None and info.n_bytes < earlier.n_bytes
    with opened(store_url, read_only=True) as store:
        assert store.verify().problems == ()
    assert value(store_url, "SELECT count(*) FROM sample_arrays") == 0


def test_metadata_prompts_and_long_texts_stay_and_other_tensors_go(store_url: str) -> None:
    sample = Sample(
        prompt=[{"role": "user", "content": [torch.arange(500)]}],
        metadata={"scores": torch.arange(600.0)},
        tokens=[1, 2],
        multimodal_train_inputs={"pixel_values": torch.arange(700.0)},
    )
    sample.notes = "x" * 100_000  # type: ignore[attr-defined]
    with run_of(store_url) as run:
        run.record_train(0, [[sample]])
        run.prune(keep_arrays_last=0)
        (loaded,) = run.iter_samples(fields=["prompt", "metadata", "notes"], sample_type=Sample)
        assert_same((loaded.prompt, loaded.metadata, loaded.notes), (sample.prompt, sample.metadata, sample.notes))  # type: ignore[attr-defined]
        with pytest.raises(ArraysPrunedError):
            list(run.iter_samples(fields=["multimodal_train_inputs"]))
    assert value(store_url, "SELECT count(*) FROM blobs") == 3


LONG = [index * 0.37 for index in range(20_000)]
ODD: dict[str, Any] = {
    "metadata": OrderedDict(lists=LONG, tensor=torch.arange(5000)),
    "reward": {"score": 1.0, "log_probs": LONG},
    "label": torch.arange(3000.0),
    "response": bytes(range(256)) * 20,
    "status": "a word of nobody's " * 500,
    "group_index": 1 << 20_000,
    "weight_versions": [1.5] * 5000,
}


@pytest.mark.parametrize("name", [None, "$odd"])
def test_attributes_that_stay_do_so_whatever_their_type(store_url: str, name: str | None) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for rollout_id, (attribute, value) in enumerate(ODD.items()):
            sample = make_sample(rollout_id, multimodal_train_inputs={"pixels": torch.arange(9000) + rollout_id})
            sample.__dict__ |= {attribute: value} | ({} if name is None else {name: LONG})
            run.record_train(rollout_id, RolloutFnTrainOutput([[sample]]))
        assert run.prune(keep_arrays_last=0).n_pruned == len(ODD)
        for rollout_id, (attribute, value) in enumerate(ODD.items()):
            (sample,) = run.iter_samples(SampleFilter(rollout_ids=[rollout_id]), fields=[attribute])
            assert_same(getattr(sample, attribute), value)
            with pytest.raises(ArraysPrunedError):
                list(run.iter_samples(SampleFilter(rollout_ids=[rollout_id]), fields=["multimodal_train_inputs"]))
        assert store.verify(grace_seconds=-1).problems == ()
        run.delete_rollout(0)
        assert store.verify(grace_seconds=-1).problems == ()


def test_g4_shared_content_stays_until_its_last_rollout_is_pruned(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for n in range(3):
            run.record_train(n, rich_train(n))
        other = store.run("other")
        other.record_train(0, rich_train(0))
        run.prune(keep_arrays_last=1)
        assert_same(run.load_train(2), rich_train(2))
        assert_same(other.load_train(0), rich_train(0))
        assert store.verify(grace_seconds=-1).problems == ()
        for each in (run, other):
            each.prune(keep_arrays_last=0)
        assert store.verify(grace_seconds=-1).problems == ()
    # the picture is in a prompt too, so it stays
    assert value(store_url, "SELECT count(*) FROM blobs") == 1
    assert len(side_files(store_url)) == (1 if store_url.startswith("sqlite") else 0)


def test_superseded_attempts_go_first_and_the_freed_bytes_are_what_is_gone(store_url: str) -> None:
    with run_of(store_url) as run:
        for attempt in range(2):
            run.record_train(0, rich_train(attempt))
        before = stored_bytes(store_url)
        report = run.prune()
        assert report.n_pruned == 1 and whole(run) == [("train", 0, 2)]
        assert before - stored_bytes(store_url) == report.freed_bytes
        assert_same(run.load_train(0), rich_train(1))
        with pytest.raises(ArraysPrunedError):
            run.load_train(0, attempt=1)


def stored_bytes(url: str) -> int:
    arrays = value(url, "SELECT coalesce(sum(length(data)), 0) FROM sample_arrays")
    return int(arrays + value(url, "SELECT coalesce(sum(n_bytes), 0) FROM blobs"))


def test_older_rollouts_are_deleted_entirely_when_that_is_asked_for(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for n in range(4):
            run.record_train(n, small(n))
            run.record_train(n, small(n + 10))
            run.record_eval(n, make_eval_output(seed=n))
        run.pin(0, note="the baseline")
        report = run.prune(keep_arrays_last=1, keep_rollouts_last=2)
        assert (report.n_deleted, report.n_pruned, report.n_pinned) == (4, 4, 2)
        assert [(i.kind, i.rollout_id, i.attempt) for i in run.rollouts(attempts=True)] == [
            *[("train", n, attempt) for n in (0, 2, 3) for attempt in (1, 2)],
            ("eval", 2, 1),
            ("eval", 3, 1),
        ]
        assert whole(run) == [("train", 0, 1), ("train", 0, 2), ("train", 3, 2), ("eval", 3, 1)]
        assert store.verify().problems == ()


def test_pins(store_url: str) -> None:
    with run_of(store_url) as run:
        for n in range(3):
            run.record_train(n, small(n))
        with pytest.raises(RolloutNotFoundError):
            run.pin(7)
        run.pin(1)
        run.pin(1, note="figure 3")
        (pin,) = run.pins()
        assert (pin.kind, pin.rollout_id, pin.note) == ("train", 1, "figure 3")
        run.pin(1, note="a\0b\ud800")
        assert run.pins()[0].note == "a\u2400b\ufffd"
        run.record_train(1, small(11))  # a later attempt is pinned too
        assert run.prune(keep_arrays_last=0).n_pinned == 2
        assert whole(run) == [("train", 1, 1), ("train", 1, 2)]
        assert run.unpin(1) and not run.unpin(1)
        run.prune(keep_arrays_last=0)
        assert whole(run) == []
        run.pin(2)
        run.delete_rollout(2)
        assert run.pins() == []


def test_what_resuming_needs_is_never_pruned(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        run.recovery.begin_session(checkpoint_rollout_id=-1)
        for n in range(6):
            run.record_train(n, small(n), state={"cursor": n, "buffer": [[make_sample(n)]]})
        assert run.prune(keep_arrays_last=0, keep_rollouts_last=0).n_needed == 6  # no checkpoint yet: all of them
        run.recovery.record_checkpoint(3)
        journal = run.recovery.journal()
        journal.put(6, [make_sample(60, group_index=6)])
        journal.close()
        expected = run.resume()
        report = run.prune(keep_arrays_last=0, keep_rollouts_last=0)
        assert (report.n_deleted, report.n_needed) == (3, 3)
        assert whole(run) == [("train", n, 1) for n in (3, 4, 5)]
        assert_same(run.resume(), expected)
        assert_same(run.load_train(4), small(4))
        assert store.verify().problems == ()


def test_a_session_that_started_from_an_earlier_checkpoint_keeps_what_it_needs(store_url: str) -> None:
    with run_of(store_url) as run:
        run.recovery.begin_session(checkpoint_rollout_id=-1)
        for n in range(4):
            run.record_train(n, small(n), state={"cursor": n})
        run.recovery.record_checkpoint(3)
    with run_of(store_url) as run:
        run.recovery.begin_session(checkpoint_rollout_id=1)  # its later checkpoints were lost
        expected = run.resume(checkpoint_rollout_id=1)
        run.prune(keep_arrays_last=0)
        assert whole(run) == [("train", n, 1) for n in (1, 2, 3)]
        assert_same(run.resume(checkpoint_rollout_id=1), expected)


def meanwhile(monkeypatch: pytest.MonkeyPatch, event: Callable[[], None]) -> None:
    """Let something happen after prune has made its plan, before it takes anything."""
    original, pending = pruning._Pruning.take, [event]

    def take(*arguments: Any) -> Any:
        if pending:
            pending.pop()()
        return original(*arguments)

    monkeypatch.setattr(pruning._Pruning, "take", take)


def test_what_a_session_needs_that_begins_while_a_run_is_pruned_stays(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for n in range(6):
            run.record_train(n, small(n), state={"cursor": n})
        run.recovery.record_checkpoint(5)
    with opened(store_url) as store, opened(store_url) as other:
        run = store.run(RUN)
        recovery = other.run(RUN).recovery  # the checkpoints after rollout 2 are damaged
        meanwhile(monkeypatch, lambda: recovery.begin_session(checkpoint_rollout_id=2))
        assert run.prune(keep_arrays_last=0).n_needed == 4
        assert whole(run) == [("train", n, 1) for n in (2, 3, 4, 5)]
        assert [info.rollout_id for info in run.resume(checkpoint_rollout_id=2).complete] == [3, 4, 5]


def test_what_is_needed_since_it_was_handed_out_while_a_run_is_pruned_stays(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        run.recovery.begin_session(checkpoint_rollout_id=-1)
        for n in range(4):
            run.record_train(n, small(n), state={"cursor": n})
        run.recovery.record_checkpoint(1)
    with opened(store_url) as store, opened(store_url) as other:
        run, recovery = store.run(RUN), other.run(RUN).recovery
        recovery.begin_session(checkpoint_rollout_id=1)
        other.run(RUN).record_train(4, small(4), state={"cursor": 4})
        handed = run.rollouts("train")[2:4]
        meanwhile(monkeypatch, lambda: [recovery.adopt(info) for info in handed] and None)
        assert run.prune(keep_arrays_last=0).n_needed == 4
        assert [info.rollout_id for info in run.resume(checkpoint_rollout_id=1).complete] == [2, 3, 4]


def test_an_attempt_that_is_no_longer_superseded_keeps_its_arrays(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store_url) as store, opened(store_url) as other:
        run = store.run(RUN)
        for rollout_id in (0, 0, 1, 1):
            run.record_train(rollout_id, small(rollout_id))
        meanwhile(monkeypatch, lambda: other.run(RUN).delete_rollout(0, attempt=2) and None)
        assert run.prune(keep_arrays_last=9).n_pruned == 1
        assert whole(run) == [("train", 0, 1), ("train", 1, 2)]


def test_what_is_pinned_while_a_run_is_pruned_stays(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(store_url) as store, opened(store_url) as other:
        run = store.run(RUN)
        for rollout_id in range(3):
            run.record_train(rollout_id, small(rollout_id))
        meanwhile(monkeypatch, lambda: other.run(RUN).pin(1))
        assert run.prune(keep_arrays_last=0).n_pruned == 2
        assert whole(run) == [("train", 1, 1)]


def test_the_state_of_a_rollout_is_that_of_its_newest_attempt(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        run.record_train(0, small(0), state={"cursor": 7, "noise": torch.randn(9000)})
        run.record_train(0, small(1))  # another history, whose loop has no state to give
        run.recovery.record_checkpoint(0)
        assert (run.recovery.load_state(0), run.resume().state) == (None, None)
        assert run.recovery.load_state(0, attempt=1)["cursor"] == 7
        run.prune(keep_arrays_last=1)
        assert (run.recovery.load_state(0), run.resume().state) == (None, None)
        with pytest.raises(ArraysPrunedError, match="attempt 1"):
            run.recovery.load_state(0, attempt=1)


def test_a_rollout_without_its_arrays_is_not_handed_out_after_an_earlier_checkpoint(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for n in range(6):
            run.record_train(n, small(n), state={"cursor": n})
        run.recovery.record_checkpoint(5)
        run.prune(keep_arrays_last=0)
        for checkpoint in (1, 3):
            point = run.resume(checkpoint_rollout_id=checkpoint)
            assert (point.complete, point.state) == ((), {"cursor": checkpoint})
            assert point.refused == f"the arrays of rollout {checkpoint + 1} were pruned"
        run.record_train(2, small(2), state={"cursor": 2})
        point = run.resume(checkpoint_rollout_id=1)
        assert [info.rollout_id for info in point.complete] == [2]
        assert point.refused == "the arrays of rollout 3 were pruned"
        assert [info.rollout_id for info in run.resume(checkpoint_rollout_id=4).complete] == [5]


def test_going_on_from_a_rollout_whose_state_was_pruned_says_so(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for n in range(3):
            run.record_train(n, small(n), state={"noise": torch.randn(9000)})
        run.recovery.record_checkpoint(2)
        run.prune(keep_arrays_last=1)
        with pytest.raises(ArraysPrunedError, match="rollout 0"):
            run.resume(checkpoint_rollout_id=0, max_adopted=0)


def test_a_prune_that_was_interrupted_goes_on(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for n in range(4):
            run.record_train(n, rich_train(n))
        original = pruning.remove_files

        def interrupted(*arguments: Any) -> None:
            original(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(pruning, "remove_files", interrupted)
            run.prune(keep_arrays_last=1)
        assert len(whole(run)) == 3
        assert run.prune(keep_arrays_last=1).n_pruned == 2
        assert store.verify(grace_seconds=-1).problems == ()


@pytest.mark.parametrize("bad", [-1, True, 1.5, "2"])
def test_numbers_that_make_no_sense_are_refused(sqlite_url: str, bad: Any) -> None:
    with run_of(sqlite_url) as run, pytest.raises((ValueError, TypeError)):
        run.prune(keep_arrays_last=bad)


def test_a_read_only_store_is_neither_pruned_nor_vacuumed(sqlite_url: str) -> None:
    with run_of(sqlite_url) as run:
        run.record_train(0, small(0))
    with opened(sqlite_url, read_only=True) as store:
        run = store.run(RUN, create=False)
        refused: list[Callable[[], Any]] = [run.prune, store.vacuum, lambda: run.pin(0), lambda: store.delete_run(RUN)]
        for call in refused:
            with pytest.raises(ReadOnlyStoreError):
                call()


# -- space


def test_vacuum_gives_the_space_back(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        rng = np.random.default_rng(0)
        for n in range(6):
            run.record_train(n, [[Sample(tokens=rng.integers(0, 2**40, 60_000).tolist()) for _ in range(2)]])
        before = store.stats().size_bytes
        report = run.prune(keep_arrays_last=1)
        freed = store.vacuum()
        assert report.freed_bytes > 1_000_000
        if store_url.startswith("sqlite"):
            assert freed > 0.9 * report.freed_bytes
            path = Path(store_url.removeprefix("sqlite:///"))
            assert before - path.stat().st_size > 0.9 * report.freed_bytes
            assert os.path.getsize(f"{path}-wal") == 0
        assert_same(run.load_train(5).samples[0][0].tokens[:3], run.load_train(5).samples[0][0].tokens[:3])
        assert store.verify().ok
        run.record_train(7, small(7))


def test_h11_the_log_is_cut_when_a_long_reader_has_gone(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "LOG_BYTES", 2 << 20)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    rng = np.random.default_rng(0)

    def output() -> RolloutFnTrainOutput:
        return RolloutFnTrainOutput([[Sample(tokens=rng.integers(0, 2**40, 60_000).tolist())]])

    def log() -> int:
        return os.path.getsize(f"{path}-wal")

    with run_of(sqlite_url) as run, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        run.record_train(0, output())
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM rollouts").fetchone() == (1,)
        for n in range(1, 12):
            run.record_train(n, output())  # neither waits for the reader nor fails
        assert reader.execute("SELECT count(*) FROM rollouts").fetchone() == (1,)
        assert log() > 4 << 20
        reader.execute("COMMIT")
        run.record_train(20, output())
        assert log() == 0
        for n in range(30, 50):
            run.record_train(n, output())
            assert log() < 4 << 20


# -- whole runs


def test_deleting_a_run_leaves_the_others_and_nothing_of_it(store_url: str) -> None:
    with opened(store_url) as store:
        other = store.run("other")
        other.record_train(0, rich_train(0))
        alone = counts(store_url), len(side_files(store_url))
        fill(store)
        store.run(RUN).pin(1)
        with pytest.raises(RunNotFoundError):
            store.delete_run("nobody's")
        assert store.delete_run(RUN) == 6
        store.delete_run("empty")
        assert (counts(store_url), len(side_files(store_url))) == alone
        assert_same(other.load_train(0), rich_train(0))
        assert store.verify(grace_seconds=-1).problems == ()
        run = store.run(RUN)  # the name is free again
        run.record_train(0, small(0))
        assert_same(run.load_train(0), small(0))


def test_h10_a_pruned_store_is_copied_and_backed_up_as_it_is(store_url: str, tmp_path: Path) -> None:
    from slime_store import copy_store

    with opened(store_url) as store:
        fill(store)
        run = store.run(RUN)
        copy_store(store, tmp_path / "copy.db")
        run.pin(5)
        assert run.prune(keep_arrays_last=0).n_pruned > 1
        report = copy_store(store, tmp_path / "copy.db")
        assert report.n_copied > 1  # those that were pruned since, anew
        store.backup(tmp_path / "backup.db")
        expected = run.rollouts(attempts=True), run.pins()
    for name in ("copy.db", "backup.db"):
        with SampleStore.open(tmp_path / name) as store:
            run = store.run(RUN)
            assert (run.rollouts(attempts=True), run.pins()) == expected
            assert store.verify(grace_seconds=-1).problems == ()
