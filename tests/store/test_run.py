"""A run: attempts, deleting, weight versions, what is left behind."""

from __future__ import annotations

import errno
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import make_url

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, SampleFilter
from slime_store.blobs import BlobDirectory
from slime_store.errors import RolloutExistsError, RolloutNotFoundError, StoreFullError, UnsupportedValueError
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from tests.services.tables import counts, value

KEPT_TABLES = {"runs", "sessions", "weight_versions"}
"""What deleting every rollout leaves: the run, who wrote to it, and which weights it had."""


def listed(infos: list[Any]) -> list[tuple[str, int, int]]:
    return [(info.kind, info.rollout_id, info.attempt) for info in infos]


# -- attempts ------------------------------------------------------------------------------------------


def test_a_new_attempt_answers_and_the_old_one_stays(store_url: str) -> None:
    outputs = [make_train_output(1, 2, seed=seed) for seed in range(3)]
    with run_of(store_url) as run:
        assert [run.record_train(5, output).attempt for output in outputs] == [1, 2, 3]
        run.record_train(4, outputs[0])
        run.record_eval(5, make_eval_output())
        assert listed(run.rollouts()) == [("train", 4, 1), ("train", 5, 3), ("eval", 5, 1)]
        assert listed(run.rollouts("train", attempts=True)) == [("train", 4, 1), *[("train", 5, n) for n in (1, 2, 3)]]
        assert listed(run.rollouts("eval", attempts=True)) == [("eval", 5, 1)]
        assert len(list(run.iter_samples(SampleFilter(kind="train")))) == 4
    assert_same(loaded_train(store_url, 5), outputs[2])
    for attempt in (1, 2, 3):
        assert_same(loaded_train(store_url, 5, attempt=attempt), outputs[attempt - 1])


@pytest.mark.parametrize("record", ["record_train", "record_eval"])
def test_replace_leaves_one_recording_and_error_refuses(store_url: str, record: str) -> None:
    kind = record.removeprefix("record_")
    outputs: list[Any] = [
        make_train_output(1, 2, seed=seed) if kind == "train" else make_eval_output(seed=seed) for seed in range(3)
    ]
    with run_of(store_url) as run:
        add = getattr(run, record)
        for output in outputs[:2]:
            add(5, output)
        add(5, outputs[2], on_conflict="replace")
        before = counts(store_url)
        assert len(run.rollouts(attempts=True)) == 1
        with pytest.raises(RolloutExistsError, match=f"already has {kind} rollout 5"):
            add(5, outputs[0], on_conflict="error")
        assert counts(store_url) == before
        assert add(6, outputs[0], on_conflict="error").attempt == 1
        assert add(7, outputs[0], on_conflict="replace").attempt == 1
        with pytest.raises(ValueError, match="on_conflict"):
            add(8, outputs[0], on_conflict="merge")
    loaded = loaded_train(store_url, 5) if kind == "train" else loaded_eval(store_url, 5)
    assert_same(loaded, outputs[2])


def test_replacing_with_the_same_content_keeps_what_is_shared(store_url: str) -> None:
    output = make_train_output(2, 2, multimodal_train_inputs={"x": torch.ones(3000)})
    with run_of(store_url) as run:
        run.record_train(0, output)
        before = counts(store_url)
        run.record_train(0, output, on_conflict="replace")
    assert counts(store_url) == before
    assert_same(loaded_train(store_url, 0), output)


def test_any_kind_of_output_is_taken(store_url: str) -> None:
    groups, data = make_train_output().samples, make_eval_output().data
    with run_of(store_url) as run:
        for rollout_id, output in enumerate(
            (groups, RolloutFnTrainOutput(groups), SimpleNamespace(samples=groups, metrics=None))
        ):
            run.record_train(rollout_id, output)
            assert_same(run.load_train(rollout_id), RolloutFnTrainOutput(groups, None))
        for rollout_id, evaluation in enumerate(
            (data, RolloutFnEvalOutput(data), SimpleNamespace(data=data, metrics=None))
        ):
            run.record_eval(rollout_id, evaluation)
            assert_same(run.load_eval(rollout_id), RolloutFnEvalOutput(data, None))
        for nonsense in (None, 3, "text", Sample(), {"a": 1}, [None], [[1]], [[Sample(), None]]):
            with pytest.raises((UnsupportedValueError, TypeError)):
                run.record_train(9, nonsense)
        for nonsense in (None, 3, "text", [Sample()], {"d": {"samples": [None]}}):
            with pytest.raises(UnsupportedValueError):
                run.record_eval(9, nonsense)
        assert len(run.rollouts(attempts=True)) == 6


def test_what_the_listing_says_of_a_rollout(store_url: str) -> None:
    output = make_train_output(3, 2, n_prompt_tokens=5, n_tokens=10)
    with run_of(store_url) as run:
        info = run.record_train(7, output, state={"cursor": 1})
        evaluation = run.record_eval(7, make_eval_output({"a": 2, "b": 1}))
        assert_same(run.rollouts(), [info, evaluation])
    assert (info.run, info.status, info.session) == ("contract", "complete", 1)
    assert (info.n_groups, info.n_samples, info.n_trajectories, info.n_tokens) == (3, 6, 6, 90)
    assert (evaluation.n_groups, evaluation.n_samples, evaluation.n_trajectories) == (0, 6, 6)
    assert info.n_bytes > 0
    assert isinstance(info.finished_at, datetime)
    assert info.started_at <= info.finished_at


# -- deleting -------------------------------------------------------------------------------------------


def _rich_rollout(seed: int = 0) -> list[list[Sample]]:
    """Samples that put something into every table, side files included."""
    rng = np.random.default_rng(seed)
    large = torch.from_numpy(rng.integers(0, 256, 2_000_000, dtype=np.uint8))  # more than a side file begins with
    groups = make_train_output(2, 2, seed=seed, multimodal_train_inputs={"large": large, "x": torch.ones(3000)}).samples
    groups[0][0].reward = {"score": 1.0}  # type: ignore[assignment]
    groups[0][1].rollout_routed_experts = rng.integers(0, 2**31, (200_000, 1, 2))
    return groups


def _side_files(url: str) -> list[Path]:
    database = make_url(url).database
    return sorted(Path(f"{database}-blobs").glob("*/*")) if url.startswith("sqlite") else []


def test_k6_deleting_everything_leaves_no_row_and_no_file(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in (0, 0, 1):
            output = RolloutFnTrainOutput(_rich_rollout(rollout_id), {"loss": 0.5})
            run.record_train(rollout_id, output, state={"buffer": [make_sample(0)]})
        run.record_eval(0, {"d": {"samples": _rich_rollout(), "rewards": [1.0] * 900}}, weight_version="7")
        full = counts(store_url)
        elsewhere = {"adoptions", "checkpoints", "imports"}  # of resuming and importing, which have tests of their own
        assert all(count for table, count in full.items() if table not in elsewhere), full
        assert bool(_side_files(store_url)) == store_url.startswith("sqlite")
        assert run.delete_rollout(0) == 2
        assert run.delete_rollout(1) == 1
        assert run.delete_rollout(0, kind="eval") == 1
        assert run.rollouts(attempts=True) == []
    left = {table for table, count in counts(store_url).items() if count}
    assert left == KEPT_TABLES
    assert _side_files(store_url) == []


def test_k6_what_another_rollout_uses_survives(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in (0, 1):
            run.record_train(rollout_id, _rich_rollout())
        run.record_eval(0, {"d": {"samples": _rich_rollout()}})
        shared = {name: counts(store_url)[name] for name in ("prompts", "blobs", "blob_parts")}
        files = _side_files(store_url)
        run.delete_rollout(0)
        assert counts(store_url)["prompts"] == shared["prompts"]
        assert set(_side_files(store_url)) < set(files) or not files
        assert_same(run.load_train(1).samples, _rich_rollout())
        run.delete_rollout(1)
        assert counts(store_url)["prompts"] == shared["prompts"]
    assert_same(loaded_eval(store_url, 0).data, {"d": {"samples": _rich_rollout()}})


def test_one_attempt_can_be_deleted_and_the_one_before_answers_again(store_url: str) -> None:
    outputs = [make_train_output(1, 1, seed=seed) for seed in range(3)]
    with run_of(store_url) as run:
        for output in outputs:
            run.record_train(0, output)
        assert run.delete_rollout(0, attempt=3) == 1
        assert_same(run.load_train(0), outputs[1])
        assert run.delete_rollout(0, attempt=1) == 1
        assert listed(run.rollouts(attempts=True)) == [("train", 0, 2)]


def test_deleting_what_is_not_there_is_an_error(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(1, 1))
        for missing in ({"rollout_id": 1}, {"rollout_id": 0, "kind": "eval"}, {"rollout_id": 0, "attempt": 2}):
            with pytest.raises(RolloutNotFoundError):
                run.delete_rollout(**missing)
        assert len(run.rollouts()) == 1


def test_one_run_does_not_touch_another(store_url: str) -> None:
    with opened(store_url) as store:
        for name in ("a", "b"):
            store.run(name).record_train(0, _rich_rollout())
        store.run("a").delete_rollout(0)
        assert_same(store.run("b").load_train(0).samples, _rich_rollout())
        store.run("b").record_train(0, [], on_conflict="replace")
        assert value(store_url, "SELECT count(*) FROM blobs") == 0


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    with run_of(sqlite_url) as run:
        with monkeypatch.context() as patch:
            patch.setattr(BlobDirectory, "write", full)
            with pytest.raises(StoreFullError, match="No space left"):
                run.record_train(0, _rich_rollout())
        assert run.rollouts(attempts=True) == []
        assert counts(sqlite_url)["blobs"] == 0
        run.record_train(0, _rich_rollout())
    assert_same(loaded_train(sqlite_url, 0).samples, _rich_rollout())


def test_a_record_that_fails_at_its_end_leaves_no_row_and_no_file(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(1, 1))
        before = counts(store_url)
        with monkeypatch.context() as patch:
            patch.setattr("slime_store.store.recording.rollout_info", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                run.record_train(1, _rich_rollout(), on_conflict="replace")
        assert counts(store_url) == before
        assert _side_files(store_url) == []
