"""Which groups are under way, and who is told when one is finished."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import sys
import types
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.plugins.guard import Guard
from slime_store.plugins.intercept import activate, intercept
from slime_store.plugins.tracker import GroupTracker, is_finished
from slime_store.store import journal as journals
from slime_store.testing import assert_same
from slime_store.types import Sample
from tests.plugins.fake_framework.ledger import indexes
from tests.plugins.given import finished, group
from tests.plugins.modes import FULLY_ASYNC
from tests.plugins.processes import run_to_the_end


@dataclass
class Turns:
    words: list[str]


class FakeJournal:
    def __init__(self) -> None:
        self.groups: list[tuple[int, Any]] = []

    def put(self, rollout_id: int, given: Any) -> None:
        self.groups.append((rollout_id, given))


@pytest.fixture
def journal() -> FakeJournal:
    return FakeJournal()


@pytest.fixture
def tracker(journal: FakeJournal) -> GroupTracker:
    tracker = GroupTracker(Guard("raise"), carry_over=True)
    tracker.begin(0, journal)  # type: ignore[arg-type]
    activate(tracker)
    return tracker


def _prompt(number: int) -> list[Sample]:
    return [Sample(group_index=number, index=number * 2 + i, prompt="p") for i in range(2)]


# -- in flight ---------------------------------------------------------------------------------------


def test_a_group_is_in_flight_until_it_is_returned_or_given_back(tracker: GroupTracker) -> None:
    groups = [_prompt(number) for number in range(4)]
    tracker.handed_out(groups)
    tracker.given_back([groups[1]])
    tracker.end([groups[2]])
    assert indexes(tracker.in_flight()) == [0, 3]
    assert tracker.clearing().groups == {1, 2}


def test_groups_in_flight_are_remembered_as_they_were_handed_out(tracker: GroupTracker) -> None:
    given = _prompt(0)
    given[0].metadata = {"turns": []}
    tracker.handed_out([given])
    given[0].tokens.append(5)
    given[0].metadata["turns"].append("changed")
    given[0].spec_info.spec_verify_ct = 9
    [[first, _]] = tracker.in_flight()
    expected = _prompt(0)[0]
    expected.metadata = {"turns": []}
    assert_same(first, expected)


def test_a_group_that_the_loop_let_go_of_is_no_longer_in_flight(tracker: GroupTracker, journal: FakeJournal) -> None:
    groups = [_prompt(number) for number in range(3)]
    tracker.handed_out(groups)
    fanned_out = [[finished(2, 4), finished(2, 4)], [finished(2, 5)]]
    tracker.finished(groups[2], fanned_out)
    del groups[1:]
    gc.collect()
    assert indexes(tracker.in_flight()) == [0, 2]  # 2 is held by what it became
    del fanned_out
    journal.groups.clear()
    gc.collect()
    assert indexes(tracker.in_flight()) == [0]
    assert tracker.clearing().groups == {1, 2}


def test_the_state_of_a_long_run_does_not_grow_by_what_was_filtered(tmp_path: Path) -> None:
    options = {"slime_store_rollout_function_path": FULLY_ASYNC, "dynamic_filter": True, "n_rollouts": 25}
    ledger = run_to_the_end(tmp_path, **options)
    assert len(ledger.filtered) > 2
    with SampleStore.open(tmp_path / "store.db") as store:
        run = store.run("run", create=False)
        state = run.recovery.load_state(24, sample_type=Sample)
        assert len(state["in_flight"]) <= 3 * 6  # what may be active, queued and just filtered
        assert len(run.resume(checkpoint_rollout_id=24, sample_type=Sample).journalled_groups) <= 5 * 6


def test_a_loop_that_works_between_rollouts_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tracker = GroupTracker(Guard("raise"), carry_over=None)
    tracker.begin(0, None)
    tracker.handed_out([_prompt(0)])
    tracker.end([])
    assert not tracker.carry_over
    tracker.handed_out([_prompt(1)])
    assert tracker.carry_over
    assert "slime_store_carry_over" in caplog.text
    told = GroupTracker(Guard("raise"), carry_over=False)
    told.begin(0, None)
    told.end([])
    told.handed_out([_prompt(1)])
    assert not told.carry_over


def test_groups_of_earlier_processes_are_served_once_and_only_as_a_whole(tracker: GroupTracker) -> None:
    tracker.take_over([group(3), group(4)])
    assert tracker.finished_before(_prompt(5)) is None
    assert tracker.finished_before(_prompt(4)[:1]) is None  # another size than it had
    assert_same(tracker.finished_before(_prompt(3)), group(3))
    assert tracker.finished_before(_prompt(3)) is None
    assert tracker.n_served == 1
    assert tracker.clearing().keep == {3, 4}


@pytest.mark.parametrize("carry_over", [True, False])
def test_served_groups_are_named_with_the_rollout_that_returned_them(journal: FakeJournal, carry_over: bool) -> None:
    tracker = GroupTracker(Guard("raise"), carry_over=carry_over)
    tracker.take_over([group(3), group(4)])
    tracker.begin(0, journal)  # type: ignore[arg-type]
    served = [tracker.finished_before(_prompt(number)) for number in (3, 4)]
    tracker.end([served[0], group(5)])
    assert tracker.clearing().served == {3}
    tracker.begin(1, journal)  # type: ignore[arg-type]
    tracker.end([served[1], group(6)])
    assert tracker.clearing().served == {4}
    tracker.begin(2, journal)  # type: ignore[arg-type]
    tracker.end([group(3)])  # generated by this process
    assert tracker.clearing().served == frozenset()


@pytest.mark.parametrize(
    ("samples", "yes"),
    [
        (group(0), True),
        ([finished(0, 0, status=Sample.Status.TRUNCATED), finished(0, 1, status=Sample.Status.FAILED)], True),
        ([[finished(0, 0)], [finished(0, 1), finished(0, 1)]], True),
        ([finished(0, 0), finished(0, 1, status=Sample.Status.ABORTED)], False),
        ([finished(0, 0), finished(0, 1, reward=None)], False),
        ([finished(0, 0, status=Sample.Status.PENDING)], False),
        ([], False),
    ],
)
def test_a_group_is_finished_when_all_of_it_has_ended_and_is_rewarded(samples: Any, yes: bool) -> None:
    assert is_finished(samples) is yes


# -- interception ------------------------------------------------------------------------------------


@pytest.fixture
def modules() -> Iterator[Callable[..., types.ModuleType]]:
    """Makes modules that are there until the test ends."""
    made: list[str] = []

    def make(name: str, **content: Any) -> types.ModuleType:
        module = types.ModuleType(name)
        module.__dict__.update(content)
        sys.modules[name] = module
        made.append(name)
        return module

    yield make
    for name in made:
        del sys.modules[name]


async def _generate(args: Any, group: Any, sampling_params: Any, evaluation: bool = False) -> Any:
    return [finished(sample.group_index, sample.index) for sample in group]


def test_every_module_that_uses_the_function_is_told_of_and_each_group_once(
    modules: Callable[..., types.ModuleType], tracker: GroupTracker, journal: FakeJournal
) -> None:
    async def outer(args: Any, group: Any, sampling_params: Any, evaluation: bool = False) -> Any:
        return await base.make_a_group(args, group, sampling_params, evaluation=evaluation)

    base = modules("a_base", make_a_group=_generate)
    user = modules("a_user", make_a_group=_generate)
    around = modules("an_outer", make_a_group=outer)
    modules("not_a_coroutine", make_a_group=lambda *_: None)
    assert intercept("make_a_group")
    assert intercept("make_a_group")  # again, and nothing is wrapped twice
    assert base.make_a_group is user.make_a_group
    for number, module in enumerate((base, user, around)):
        asyncio.run(module.make_a_group(Namespace(), _prompt(number), {}))
    asyncio.run(base.make_a_group(Namespace(), _prompt(9), {}, evaluation=True))
    assert [(rollout_id, *indexes([given])) for rollout_id, given in journal.groups] == [(0, 0), (0, 1), (0, 2)]


def test_without_such_a_function_it_says_so() -> None:
    assert not intercept("no_module_has_a_function_of_this_name")


def test_an_error_of_the_group_function_is_the_users_own(
    modules: Callable[..., types.ModuleType], tracker: GroupTracker, journal: FakeJournal
) -> None:
    async def fails(args: Any, group: Any, sampling_params: Any, evaluation: bool = False) -> Any:
        raise ValueError("the engine is gone")

    module = modules("a_failing_module", make_a_group=fails)
    intercept("make_a_group")
    with pytest.raises(ValueError, match="engine"):
        asyncio.run(module.make_a_group(Namespace(), _prompt(0), {}))
    assert journal.groups == []


def test_the_journal_waits_for_what_it_was_given_and_not_for_what_keeps_coming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def write(_handle: Any, groups: Any) -> None:
        written.extend(request.rollout_id for request, _ in groups)
        if len(written) < 500:
            journal.put(len(written) + 1000, group(len(written)))  # a loop whose groups go on finishing

    monkeypatch.setattr(journals, "write_rollouts", write)
    with SampleStore.open(tmp_path / "store.db") as store:
        journal = store.run("run").recovery.journal()
        for number in range(40):
            journal.put(number, group(number))
        journal.flush()
        assert set(range(40)) <= set(written)
        assert len(written) < 200
        written += range(500)
        journal.close()


@pytest.mark.parametrize("kind", [OrderedDict, SimpleNamespace, Turns, lambda **given: defaultdict(list, given)])
def test_containers_of_every_kind_are_remembered_as_they_were(kind: Any, tracker: GroupTracker) -> None:
    prompt = _prompt(0)
    inner: Any = kind(words=["a"])
    prompt[0].metadata = {"inner": inner, "queue": deque([[1], [2]], maxlen=5), "empty": SimpleNamespace()}
    before = copy.deepcopy(prompt[0].metadata)
    tracker.handed_out([prompt])
    words = inner.words if isinstance(inner, (Turns, SimpleNamespace)) else inner["words"]
    words.append("b")
    prompt[0].metadata["queue"].append([3])
    prompt[0].metadata["queue"][0].append(4)
    [[first, _]] = tracker.in_flight()
    assert_same(first.metadata, before)


def test_a_finished_group_is_not_served_for_another_prompt(tracker: GroupTracker) -> None:
    """A source that says nothing of its state, and shuffles anew, gives the same index to something else."""
    tracker.take_over([group(0, label="4"), group(1, label={"answer": 5})])
    [other, same] = [_prompt(number) for number in range(2)]
    for sample in other:
        sample.label = "9"
    for sample in same:
        sample.label, sample.prompt = {"answer": 5}, "a prompt that generation rewrote"
    assert tracker.finished_before(other) is None
    assert_same(tracker.finished_before(same), group(1, label={"answer": 5}))
    tracker.take_over([group(1)])  # made anew by generation, without the label
    assert tracker.finished_before(same) is not None
