"""A run whose training went back has several histories: no rollout of one is handed out behind one of another."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, Sample, SampleStore
from slime_store.interchange import import_path
from slime_store.repositories.resume import ResumeRepository
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing, OnConflict
from slime_store.store.resume import adoptable_rows
from slime_store.testing.contract.opening import opened
from tests.services.tables import execute

RUN = "run"
LINEAGE = {"lr": 1e-6}


@contextmanager
def session(url: str, start: int | None) -> Iterator[Run]:
    """A process of its own, as far as the store can tell: a session ends with its handle."""
    with SampleStore.open(url) as store:
        run = store.run(RUN)
        if start is not None:
            run.recovery.begin_session(checkpoint_rollout_id=start, lineage=LINEAGE)
        yield run


def record(run: Run, rollout_id: int, name: Any, on_conflict: OnConflict = "new_attempt") -> None:
    group = [Sample(index=0, group_index=0, reward=1.0)]
    run.record_train(rollout_id, [group], state={"name": name}, on_conflict=on_conflict)


def journal(run: Run, rollout_id: int, groups: Iterable[int]) -> None:
    writer = run.recovery.journal()
    for group in groups:
        writer.put(rollout_id, [Sample(index=group, group_index=group, reward=1.0)])
    writer.flush()


def journalled(url: str, checkpoint: int, max_adopted: int | None = None) -> list[Any]:
    with opened(url) as store:
        point = store.run(RUN).resume(checkpoint_rollout_id=checkpoint, lineage=LINEAGE, max_adopted=max_adopted)
    return point.journalled_groups


def train(url: str, name: str, start: int | None, rollout_ids: range, checkpoints: tuple[int, ...] = ()) -> None:
    with session(url, start) as run:
        for rollout_id in rollout_ids:
            record(run, rollout_id, f"{name}{rollout_id}")
            if rollout_id in checkpoints:
                run.recovery.record_checkpoint(rollout_id)


def resumed(url: str, checkpoint: int | None) -> tuple[list[str], str | None]:
    """Return the name of the checkpoint's own rollout and those that follow, and why no more do."""
    with opened(url) as store:
        run = store.run(RUN)
        point = run.resume(checkpoint_rollout_id=checkpoint, lineage=LINEAGE)
        begun = run.resume(checkpoint_rollout_id=checkpoint, lineage=LINEAGE, max_adopted=0).state
        states = [run.recovery.load_state(info.rollout_id, attempt=info.attempt) for info in point.complete]
        assert point.state == (states[-1] if states else begun)
        if begun is not None and checkpoint is not None:
            assert run.recovery.load_state(checkpoint) == begun
        return [state["name"] for state in (begun, *states) if state is not None], point.refused


def test_a_checkpoints_state_and_what_followed_are_those_of_the_session_that_saved_it(store_url: str) -> None:
    train(store_url, "a", -1, range(8), (2, 5))
    train(store_url, "b", 2, range(3, 6))  # died before it saved a checkpoint
    assert resumed(store_url, 5) == (["a5", "a6", "a7"], None)
    assert resumed(store_url, 2)[0] == ["a2", "b3", "b4", "b5"]
    with opened(store_url) as store:
        store.run(RUN).prune(keep_arrays_last=0, keep_rollouts_last=0)
    assert resumed(store_url, 5) == (["a5", "a6", "a7"], None)  # the last checkpoint noted
    train(store_url, "c", 2, range(3, 6), (5,))
    assert resumed(store_url, 5)[0] == ["c5"]


def test_what_followed_a_rollout_that_is_not_in_the_store_is_not_handed_out_behind_another_one(store_url: str) -> None:
    train(store_url, "a", -1, range(5), (2,))
    train(store_url, "b", 2, range(4, 6))  # its rollout 3 could not be stored
    names, refused = resumed(store_url, 2)
    assert names == ["a2", "a3"]
    assert refused == "rollout 4 is from session 2, which did not go on from attempt 1 of rollout 3"


def test_a_process_that_goes_back_abandons_what_it_had_recorded(store_url: str) -> None:
    with session(store_url, -1) as run:
        for rollout_id in range(6):
            record(run, rollout_id, f"a{rollout_id}")
            if rollout_id in (2, 5):
                run.recovery.record_checkpoint(rollout_id)
        run.recovery.begin_session(checkpoint_rollout_id=2, lineage=LINEAGE)
        record(run, 3, "b3")
    names, refused = resumed(store_url, 2)
    assert names == ["a2", "b3"] and refused == "rollout 4 is from session 1, before rollout 3 was made anew"
    assert resumed(store_url, None)[0] == ["a5"]


def test_what_a_process_did_before_it_goes_back_is_of_another_session(store_url: str) -> None:
    train(store_url, "a", -1, range(3), (0, 1, 2))
    with session(store_url, 0) as run:
        run.recovery.adopt(run.rollouts("train")[1])
        for rollout_id in range(1, 4):
            record(run, rollout_id, f"b{rollout_id}")
        for _ in range(2):  # killed before it records anything
            run.recovery.begin_session(checkpoint_rollout_id=2, lineage=LINEAGE)
        assert [info.checkpoint_rollout_id for info in run.sessions()] == [-1, 0, 2]
    assert resumed(store_url, 2)[0] == ["a2"]
    with session(store_url, -1) as run:
        run.recovery.adopt(run.rollouts("train", attempts=True)[0])
        run.recovery.begin_session(checkpoint_rollout_id=-1, lineage=LINEAGE)
        for rollout_id in range(3):
            record(run, rollout_id, f"c{rollout_id}")
    assert resumed(store_url, 0)[0] == ["a0"]
    assert resumed(store_url, -1)[0] == ["c0", "c1", "c2"]


def test_the_last_checkpoint_of_a_session_is_the_one_that_it_saved_last(store_url: str) -> None:
    with session(store_url, -1) as run:
        for rollout_id, name in [*enumerate("aaaaaa"), (3, "b"), (4, "b")]:
            record(run, rollout_id, f"{name}{rollout_id}")
            if (rollout_id, name) in ((2, "a"), (5, "a"), (3, "b")):
                run.recovery.record_checkpoint(rollout_id)
    assert resumed(store_url, None)[0] == ["b3", "b4"]
    with opened(store_url) as store:
        assert store.run(RUN).resume().checkpoint_rollout_id == 3
        store.run(RUN).prune(keep_arrays_last=0)
    assert resumed(store_url, 3)[0] == ["b3", "b4"]


def test_a_checkpoint_that_was_saved_after_a_rollout_that_is_not_here_is_not_taken_for_an_earlier_one(
    store_url: str,
) -> None:
    train(store_url, "a", -1, range(8), (2, 5))
    with session(store_url, 2) as run:
        record(run, 3, "b3")
        record(run, 4, "b4")
        run.recovery.record_checkpoint(5)  # its rollout could not be stored
    assert resumed(store_url, 5) == (
        [],
        "rollout 6 is from session 1, and rollout 5 of session 2, saved as a checkpoint, is not here",
    )
    with opened(store_url) as store:
        assert store.run(RUN).resume().checkpoint_rollout_id == 2
        assert store.run(RUN).recovery.load_state(5) is None
        store.run(RUN).prune(keep_arrays_last=0)
    assert resumed(store_url, 2)[0] == ["a2", "b3", "b4"]
    train(store_url, "c", 5, range(6, 8))
    assert resumed(store_url, 5) == (["c6", "c7"], None)
    assert resumed(store_url, 2)[0] == ["a2", "b3", "b4"]
    train(store_url, "d", 2, range(3, 6), (5,))
    assert resumed(store_url, 5)[0] == ["d5"]


@pytest.mark.parametrize("gone", ["deleted", "replaced"])
def test_a_checkpoint_whose_rollout_is_gone_is_not_taken_for_one_of_another_attempt(store_url: str, gone: str) -> None:
    train(store_url, "a", -1, range(8), (2, 5))
    with session(store_url, 2) as run:
        for rollout_id in range(3, 6):
            record(run, rollout_id, f"b{rollout_id}", on_conflict="replace" if gone == "replaced" else "new_attempt")
        if gone == "deleted":
            run.recovery.record_checkpoint(5)
            run.delete_rollout(5, attempt=2)
    assert resumed(store_url, 5)[0] == ([] if gone == "deleted" else ["a6", "a7"])


def test_what_a_session_without_a_start_recorded_behind_one_of_its_own_is_not_handed_out_behind_another(
    store_url: str, tmp_path: Path
) -> None:
    train(store_url, "a", -1, range(8), (2, 5))
    train(f"sqlite:///{tmp_path / 'spool.db'}", "b", None, range(3, 8))
    with opened(store_url) as store:
        import_path(store.run(RUN), tmp_path / "spool.db")
    assert resumed(store_url, 5)[0] == ["a5"]
    assert resumed(store_url, 2)[0] == ["a2", "b3", "b4", "b5", "b6", "b7"]


def test_what_is_imported_goes_behind_the_checkpoint_that_its_session_started_from(
    store_url: str, tmp_path: Path
) -> None:
    spool = f"sqlite:///{tmp_path / 'spool.db'}"
    train(store_url, "a", -1, range(4), (1, 3))
    train(store_url, "b", 1, range(2, 4))
    train(spool, "c", 3, range(4, 6))
    execute(spool, "UPDATE sessions SET host = 'another'")
    with opened(store_url) as store:
        import_path(store.run(RUN), tmp_path / "spool.db")
    assert resumed(store_url, 3)[0] == ["a3", "c4", "c5"]
    assert resumed(store_url, 1)[0] == ["a1", "b2", "b3"]


def test_an_imported_store_keeps_its_histories(store_url: str, tmp_path: Path) -> None:
    old = f"sqlite:///{tmp_path / 'old.db'}"
    train(old, "a", -1, range(5), (2,))
    train(old, "b", 2, range(4, 6))  # its rollout 3 could not be stored
    with session(old, 2) as run:
        run.recovery.adopt(run.rollouts("train", attempts=True)[3])
        record(run, 4, "c4")
    expected = resumed(old, 2)
    assert expected[0] == ["a2", "a3", "c4"]
    with opened(store_url) as store:
        for _ in range(2):
            import_path(store.run(RUN), tmp_path / "old.db")
    assert resumed(store_url, 2) == expected


def test_groups_that_were_journalled_behind_another_checkpoint_are_not_served(store_url: str) -> None:
    train(store_url, "a", -1, range(6), (2, 5))
    with session(store_url, 2) as run:
        journal(run, 3, range(6, 18))  # over-sampled, then killed
    assert journalled(store_url, 5) == []
    assert journalled(store_url, 2) == []  # it would be handed a3 to a5
    assert len(journalled(store_url, 2, max_adopted=0)) == 12


def test_groups_that_were_journalled_behind_other_rollouts_are_not_served(store_url: str, tmp_path: Path) -> None:
    with session(store_url, -1) as run:
        for rollout_id in range(5):
            record(run, rollout_id, f"a{rollout_id}")
        run.recovery.record_checkpoint(2)
        journal(run, 5, [10, 11])
    assert len(journalled(store_url, 2)) == 2
    train(f"sqlite:///{tmp_path / 'spool.db'}", "b", 2, range(3, 5))
    execute(f"sqlite:///{tmp_path / 'spool.db'}", "UPDATE sessions SET host = 'another'")
    with opened(store_url) as store:
        import_path(store.run(RUN), tmp_path / "spool.db")
    assert resumed(store_url, 2)[0] == ["a2", "b3", "b4"]
    assert journalled(store_url, 2) == []


def test_groups_that_a_later_session_has_kept_are_served_behind_its_own_rollouts(store_url: str) -> None:
    """As in a fully asynchronous loop, whose groups are under way across rollouts and restarts."""
    with session(store_url, -1) as run:
        record(run, 0, "a0")
        run.recovery.record_checkpoint(0)
        journal(run, 1, range(10, 14))
    with session(store_url, 0) as run:
        clearing = JournalClearing(keep=frozenset({12, 13}))
        group = [Sample(group_index=10)]
        prepare_train(1, [group], state={"name": "b1"}, clear_journal=clearing).store(run)
    assert resumed(store_url, 0)[0] == ["a0", "b1"]
    assert [group[0].group_index for group in journalled(store_url, 0)] == [12, 13]


@pytest.mark.parametrize("start", [None, 2])
def test_a_session_goes_on_from_what_it_was_handed_before_or_after_it_begins(store_url: str, start: int | None) -> None:
    train(store_url, "a", -1, range(5), (2,))
    with SampleStore.open(store_url) as store:
        run = store.run(RUN)
        for info in run.resume(checkpoint_rollout_id=2).complete:
            run.recovery.adopt(info)
        run.recovery.begin_session(checkpoint_rollout_id=start, lineage=LINEAGE)
        record(run, 5, "b5")
        journal(run, 6, [20])
    assert resumed(store_url, 2)[0] == ["a2", "a3", "a4", "b5"]
    assert len(journalled(store_url, 2)) == 1


def test_what_is_written_in_the_background_is_of_the_session_before(store_url: str) -> None:
    train(store_url, "a", -1, range(3), (2,))
    with session(store_url, 2) as run:
        groups = run.recovery.journal()
        for n in range(3, 6):
            run.record_train(n, [[Sample(reward=1.0)]], state={"name": f"b{n}"}, background=True)
            groups.put(n, [Sample(group_index=n)])
        run.recovery.begin_session(checkpoint_rollout_id=2, lineage=LINEAGE)
        assert [(info.session, info.n_rollouts) for info in run.sessions()][1:] == [(2, 3), (3, 0)]


def test_a_session_that_was_imported_is_looked_at_once(tmp_path: Path) -> None:
    costs = {}
    for n in (25, 100):
        train(f"sqlite:///{tmp_path / f'old{n}.db'}", "a", None, range(n))
        with opened(f"sqlite:///{tmp_path / f'{n}.db'}") as store:
            run = store.run(RUN)
            import_path(run, tmp_path / f"old{n}.db")
            with store._handle.reading() as connection:
                driver, steps = connection.connection.driver_connection, itertools.count()
                driver.set_progress_handler(lambda steps=steps: next(steps) < 0, 10)
                assert len(ResumeRepository(connection, run._pk).complete_after(-1)) == n
                adoptable, _ = adoptable_rows(ResumeRepository(connection, run._pk), -1, None, None, None)
                driver.set_progress_handler(None, 0)
                costs[n] = next(steps)
            assert len(adoptable) == n
    assert costs[100] < 6 * costs[25], costs


def test_what_a_session_was_handed_and_what_it_went_on_from_are_its_history_too(store_url: str) -> None:
    train(store_url, "a", -1, range(5), (2,))
    with session(store_url, 2) as run:
        for info in run.resume(checkpoint_rollout_id=2).complete:
            run.recovery.adopt(info)
        record(run, 5, "b5")
        run.recovery.record_checkpoint(5)
    train(store_url, "c", 5, range(6, 8))
    train(store_url, "d", None, range(8, 9))  # says nothing of where it starts
    assert resumed(store_url, 2) == (["a2", "a3", "a4", "b5", "c6", "c7", "d8"], None)
    assert resumed(store_url, 4)[0] == ["a4", "b5", "c6", "c7", "d8"]
    train(store_url, "e", 4, range(5, 6), (5,))
    assert resumed(store_url, 2)[0] == ["a2", "a3", "a4", "e5"]
    assert resumed(store_url, 5)[0] == ["e5"]


@dataclass
class Trainer:
    """Trains with losses, checkpoints and steps back, and knows what followed what.

    Attributes:
        parents: the rollout that each followed, by name.
        saved: the name of the rollout that each checkpoint was saved after.
        lost: the names of those that could not be recorded.
    """

    rng: random.Random
    parents: dict[int, int | None] = field(default_factory=dict)
    saved: dict[int, int | None] = field(default_factory=lambda: {-1: None})
    lost: set[int] = field(default_factory=set)

    def process(self, url: str) -> None:
        start = self.rng.choice(sorted(self.saved))
        with session(url, start) as run:
            self._train(run, start, resumes=self.rng.random() < 0.7, loses=0.15)
            if self.rng.random() < 0.3:  # goes back without a restart
                start = self.rng.choice(sorted(self.saved))
                run.recovery.begin_session(checkpoint_rollout_id=start, lineage=LINEAGE)
                self._train(run, start, resumes=False, loses=0)  # of losses after that the session's row says nothing

    def _train(self, run: Run, start: int, *, resumes: bool, loses: float) -> None:
        last, next_id = self.saved[start], start + 1
        if resumes:
            for info in run.resume(checkpoint_rollout_id=start, lineage=LINEAGE).complete[: self.rng.randrange(4)]:
                run.recovery.adopt(info)
                last, next_id = run.recovery.load_state(info.rollout_id, attempt=info.attempt)["name"], next_id + 1
                self._save(run, next_id - 1, last)
        for rollout_id in range(next_id, next_id + self.rng.randrange(4)):
            name = len(self.parents)
            self.parents[name], last = last, name
            if self.rng.random() < loses:
                self.lost.add(name)
            else:
                record(run, rollout_id, name)
            self._save(run, rollout_id, name)

    def _save(self, run: Run, rollout_id: int, name: int) -> None:
        if self.rng.random() < 0.4:
            run.recovery.record_checkpoint(rollout_id)
            self.saved[rollout_id] = name


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
def test_whatever_a_run_went_through_the_chain_after_each_checkpoint_is_of_one_history(
    store_url: str, seed: int
) -> None:
    trainer = Trainer(random.Random(seed))
    n_adoptable = 0
    for _ in range(7):
        trainer.process(store_url)
        for checkpoint, name in trainer.saved.items():
            names, _ = resumed(store_url, checkpoint)
            if name is None or name in trainer.lost:
                names.insert(0, name)
            assert names[0] == name, f"the state at checkpoint {checkpoint}"
            for before, after in pairwise(names):
                assert trainer.parents[after] == before, f"what follows checkpoint {checkpoint}: {names}"
                n_adoptable += 1
    assert n_adoptable > 5
