"""Killed at any moment and started again, training sees what it would have seen without the crash."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore
from tests.plugins.fake_framework.engine import MAX_TOKENS
from tests.plugins.fake_framework.ledger import Ledger
from tests.plugins.modes import NOTHING_LOST, SAME_HISTORY, WITHOUT_STORE, assert_nothing_is_lost
from tests.plugins.processes import log_of, run_to_the_end, run_until_crash, run_until_killed

Uninterrupted = Callable[[dict[str, Any]], Ledger]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """What a run with these options does when nothing interrupts it; each is run once."""
    known: dict[str, Ledger] = {}

    def run(options: dict[str, Any]) -> Ledger:
        key = repr(sorted(options.items()))
        if key not in known:
            known[key] = run_to_the_end(tmp_path_factory.mktemp("uninterrupted"), **options)
        return known[key]

    return run


def _crash_points(name: str, n: int, n_tokens: int) -> list[dict[str, int]]:
    """Return where each of n processes crashes: so that what is left to be done is enough for the next crash."""
    points = sorted(random.Random(name).sample(range(1, n_tokens), n))
    return [{"token": point - before} for before, point in zip([0, *points], points, strict=False)]


def _same_history(directory: Path, options: dict[str, Any], crashes: list[dict[str, Any]], control: Ledger) -> None:
    for crash in crashes:
        assert run_until_crash(directory, crash, **options), "nothing was left to be done"
    assert run_to_the_end(directory, **options).history == control.history, log_of(directory)
    assert "could not" not in log_of(directory)


@pytest.mark.parametrize("name", SAME_HISTORY)
def test_after_two_crashes_anywhere_training_has_the_history_of_an_uninterrupted_run(
    name: str, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    options = SAME_HISTORY[name]
    control = uninterrupted(options)
    _same_history(tmp_path, options, _crash_points(name, 2, control.n_generated), control)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", SAME_HISTORY)
def test_after_many_crashes_anywhere_training_has_the_history_of_an_uninterrupted_run(
    name: str, seed: int, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    options = SAME_HISTORY[name]
    control = uninterrupted(options)
    _same_history(tmp_path, options, _crash_points(f"{name} {seed}", 1 + seed % 4, control.n_generated), control)


@pytest.mark.parametrize("name", NOTHING_LOST)
def test_no_prompt_is_lost_or_trained_twice_where_timing_decides(name: str, tmp_path: Path) -> None:
    options = NOTHING_LOST[name]
    for crash in _crash_points(name, 2, 250):
        run_until_crash(tmp_path, crash, **options)
    assert_nothing_is_lost(run_to_the_end(tmp_path, **options), options)
    assert "could not" not in log_of(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", NOTHING_LOST)
def test_no_prompt_is_lost_or_trained_twice_after_many_crashes(name: str, seed: int, tmp_path: Path) -> None:
    options = {**NOTHING_LOST[name], "settle": seed % 2 == 0}
    for crash in _crash_points(f"{name} {seed}", 1 + seed % 4, 250):
        run_until_crash(tmp_path, crash, **options)
    assert_nothing_is_lost(run_to_the_end(tmp_path, **options), options)


POINTS: dict[str, list[dict[str, Any]]] = {
    "before anything is generated": [{"token": 1}],
    "between a rollout and its training": [{"point": "after rollout", "rollout": 4}],
    "after the model is saved and before the data source is": [{"point": "before the source is saved", "rollout": 2}],
    "right after a checkpoint": [{"point": "after a checkpoint", "rollout": 2}],
    "right after an adoption": [{"point": "after rollout", "rollout": 4}, {"point": "after rollout", "rollout": 3}],
    "at the same place again and again": [{"token": 40}] * 3,
}


@pytest.mark.parametrize("loop", ["sync", "async"])
@pytest.mark.parametrize("name", POINTS)
def test_a_crash_at_an_awkward_moment_changes_nothing(
    name: str, loop: str, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    options = {**SAME_HISTORY["plain"], "loop": loop, "settle": True}
    _same_history(tmp_path, options, POINTS[name], uninterrupted({"loop": loop}))


@pytest.mark.parametrize("loop", ["sync", "async"])
def test_sigkill_at_any_millisecond_changes_nothing(loop: str, tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    options = {"loop": loop, "token_seconds": 0.002}
    rng = random.Random(loop)
    for _ in range(3):
        run_until_killed(tmp_path, rng.uniform(0.0, 0.4), **options)
    assert run_to_the_end(tmp_path, **options).history == uninterrupted(options).history


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["plain, async", "filter", *NOTHING_LOST])
def test_sigkill_at_many_milliseconds(name: str, seed: int, tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    options = {**(SAME_HISTORY | NOTHING_LOST)[name], "token_seconds": 0.002}
    rng = random.Random(f"{name} {seed}")
    for _ in range(3):
        run_until_killed(tmp_path, rng.uniform(0.0, 0.6), **options)
    ledger = run_to_the_end(tmp_path, **options)
    if name in SAME_HISTORY:
        assert ledger.history == uninterrupted(options).history
    else:
        assert_nothing_is_lost(ledger, options)


@pytest.mark.parametrize("loop", ["sync", "async"])
def test_only_groups_that_were_not_finished_are_generated_again(
    loop: str, tmp_path: Path, uninterrupted: Uninterrupted
) -> None:
    options = {"loop": loop, "settle": True}
    control = uninterrupted({"loop": loop})
    at = control.n_generated * 11 // 14  # in rollout 5 of 7, two rollouts after the last checkpoint
    assert run_until_crash(tmp_path, {"token": at}, **options)
    ledger = run_to_the_end(tmp_path, **options)
    assert ledger.history == control.history
    again = at + ledger.n_generated - control.n_generated
    assert 0 <= again <= 4 * 2 * MAX_TOKENS
    without = tmp_path / "without"
    assert run_until_crash(without, {"token": at}, **options, **WITHOUT_STORE)
    lost = at + run_to_the_end(without, **options, **WITHOUT_STORE).n_generated - control.n_generated
    assert lost > 2 * again


@pytest.mark.postgresql
def test_on_postgresql_training_has_the_history_of_an_uninterrupted_run_too(
    tmp_path: Path, postgres_url: str, uninterrupted: Uninterrupted
) -> None:
    options = {"loop": "async", "slime_store_url": postgres_url, "settle": True}
    _same_history(tmp_path, options, [{"token": 190}, {"token": 30}], uninterrupted({"loop": "async"}))
    assert "rollouts 3 to" in log_of(tmp_path)


def test_without_the_store_an_async_loop_skips_a_batch_of_prompts(tmp_path: Path) -> None:
    options = {"loop": "async", **WITHOUT_STORE}
    run_until_crash(tmp_path, {"token": 200}, **options)
    with pytest.raises(AssertionError, match=r"lost: \[\d+, \d+, \d+, \d+\]"):
        assert_nothing_is_lost(run_to_the_end(tmp_path, **options), options)


def test_without_the_store_a_crash_empties_the_buffer_of_partial_rollouts(tmp_path: Path) -> None:
    options = {**NOTHING_LOST["partial rollout"], **WITHOUT_STORE}
    run_until_crash(tmp_path, {"token": 200}, **options)
    with pytest.raises(AssertionError, match="lost"):
        assert_nothing_is_lost(run_to_the_end(tmp_path, **options), options)


def test_record_mode_records_and_adopts_nothing(tmp_path: Path) -> None:
    options = {"slime_store_mode": "record", "settle": True}
    run_until_crash(tmp_path, {"point": "after rollout", "rollout": 4}, **options)
    run_to_the_end(tmp_path, **options)
    with SampleStore.open(tmp_path / "store.db") as store:
        attempts = [(info.rollout_id, info.attempt) for info in store.run("run").rollouts("train", attempts=True)]
        assert [number for number, attempt in attempts if attempt == 2] == [3, 4]
        assert store.run("run").resume(checkpoint_rollout_id=6).journalled_groups == []
