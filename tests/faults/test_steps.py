"""A process that dies at any one step of what it does to a store: all or nothing, and no other harm (case H8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_store import Run, SampleStore
from tests.faults.given import DIED, RUN, Left, die, exit_code_of, output_of, side_files
from tests.faults.steps import Steps

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

Work = Callable[[Run], object]


def _record(run: Run) -> object:
    return run.record_train(1, output_of(1))


def _record_in_the_background(run: Run) -> object:
    return run.record_train(1, output_of(1), background=True).result()


def _replace(run: Run) -> object:
    return run.record_train(0, output_of(1), on_conflict="replace")


def _delete(run: Run) -> object:
    return run.delete_rollout(0)


WORK: dict[str, tuple[Work, tuple[int, int]]] = {
    "record": (_record, (1, 1)),
    "record in the background": (_record_in_the_background, (1, 1)),
    "replace": (_replace, (0, 1)),
}


def _do(url: str, work: Work, at: int | None, names: str) -> None:
    with SampleStore.open(url) as store:
        run, steps = store.run(RUN), Steps(at)
        steps.do = lambda: (Path(names).write_text(json.dumps(steps.names)), die())
        steps.arm(store)
        work(run)
        Path(names).write_text(json.dumps(steps.names))


def _is_committed(names: list[str]) -> bool:
    inserted = "after INSERT INTO rollouts"
    return inserted in names and "after commit" in names[names.index(inserted) :]


def _at_each_step(url: str, tmp_path: Path, work: Work, under_way: tuple[int, int], most: int | None) -> list[str]:
    """Die at every step, or at ``most`` of them, and look at the store after each; return the steps."""
    left, seen = Left(url), {0: 0}
    left.record(0, 0)
    assert exit_code_of(_do, url, work, None, str(tmp_path / "names")) == 0
    names: list[str] = json.loads((tmp_path / "names").read_text())
    assert "before commit" in names and ("before rename" in names) == url.startswith("sqlite")
    assert _is_committed(names)
    left.check({0: 0, **dict([under_way])})
    left.keep_only(set())
    left.record(0, 0)
    chosen = range(len(names)) if most is None else sorted({k * len(names) // most for k in range(most)})
    for at in chosen:
        code = exit_code_of(_do, url, work, at, str(tmp_path / "names"))
        assert code == DIED or (code == 0 and at > len(names) - 12)  # a directory of side files was there already
        done: list[str] = json.loads((tmp_path / "names").read_text())
        seen = left.check({0: 0}, under_way)
        assert (seen.get(under_way[0]) == under_way[1]) == _is_committed(done), done[-3:]
        if _is_committed(done):
            left.keep_only(set())
            left.record(0, 0)
    left.record(7, 7)
    left.check({0: 0, 7: 7})
    print(f"died at {len(chosen)} of {len(names)} steps; {left.n_orphans} orphan files collected; nothing lost")
    assert left.n_orphans or not url.startswith("sqlite")
    return [names[at] for at in chosen]


def test_h8_a_writer_that_dies_at_a_step_of_a_replacement_leaves_the_old_or_the_new(
    store_url: str, tmp_path: Path
) -> None:
    _at_each_step(store_url, tmp_path, *WORK["replace"], most=8)


@pytest.mark.slow
@pytest.mark.parametrize("what", WORK)
def test_h8_a_writer_that_dies_at_any_step_leaves_all_or_nothing(store_url: str, tmp_path: Path, what: str) -> None:
    steps = _at_each_step(store_url, tmp_path, *WORK[what], most=None)
    assert len(steps) > 40


@pytest.mark.slow
def test_h8_a_deletion_that_dies_at_any_step_deletes_all_or_nothing_and_harms_no_other(
    store_url: str, tmp_path: Path
) -> None:
    left = Left(store_url)
    left.record(0, 0)
    left.record(5, 5)
    assert exit_code_of(_do, store_url, _delete, None, str(tmp_path / "names")) == 0
    names: list[str] = json.loads((tmp_path / "names").read_text())
    for at in range(len(names)):
        left.record(0, 0)
        assert exit_code_of(_do, store_url, _delete, at, str(tmp_path / "names")) in (DIED, 0)
        left.check({5: 5}, (0, 0))
        left.keep_only({5})
    assert len(side_files(store_url)) == (1 if store_url.startswith("sqlite") else 0)
