"""Python's cycle collector is paused while a rollout is made, and nothing else about it changes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter, SampleStore
from slime_store.dataframes import samples_df
from slime_store.store import collection
from slime_store.store.collection import paused
from slime_store.testing import make_train_output


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.unfreeze()
    gc.enable()


def test_it_is_on_again_after_a_load_and_after_a_failure(sqlite_url: str) -> None:
    run = SampleStore.open(sqlite_url).run("run")
    run.record_train(0, [[Sample(tokens=[1, 2])]])
    run.load_train(0)
    assert gc.isenabled()
    with pytest.raises(RuntimeError), paused():
        raise RuntimeError
    assert gc.isenabled()


def test_it_stays_off_where_the_program_had_it_off() -> None:
    gc.disable()
    with paused():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_what_was_made_is_not_walked_by_the_next_young_collection() -> None:
    gc.collect()
    with paused():
        made = [[i] for i in range(100_000)]
    assert gc.get_count()[0] < len(made)
    assert len(gc.get_objects(generation=2)) > len(made)


def test_objects_that_the_program_froze_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert frozen
    with paused():
        pass
    assert gc.get_freeze_count() > frozen * 0.9  # some may have been freed meanwhile


def test_cycles_made_meanwhile_are_still_collected() -> None:
    class Node:
        pass

    with paused():
        node = Node()
        node.itself = node  # type: ignore[attr-defined]
    alive = weakref.ref(node)
    del node
    gc.collect()
    assert alive() is None


def test_garbage_of_many_loads_is_collected_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Node:
        pass

    gc.collect()
    monkeypatch.setattr(collection, "_n_before", None)
    with paused():
        node = Node()
        node.itself = node  # type: ignore[attr-defined]
    alive = weakref.ref(node)
    del node
    kept = []
    while alive() is not None:
        with paused():
            kept.append([[i] for i in range(10_000)])
        assert len(kept) < 1000, "nobody looks at what was aged"


def test_nothing_is_walked_as_long_as_the_objects_do_not_grow_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_n_before", None)
    before = gc.get_stats()[2]["collections"]
    for _ in range(50):
        with paused():
            made = [[i] for i in range(50_000)]
        del made
    assert gc.get_stats()[2]["collections"] - before <= 1


@pytest.mark.parametrize("what", ["load_train", "load_batch", "iter_samples", "verify", "record", "samples_df"])
def test_no_cycle_keeps_the_contents_that_were_read_or_written(sqlite_url: str, what: str) -> None:
    """Cycles live until the collector finds them: contents of images, gigabytes, must not hang on one."""
    store = SampleStore.open(sqlite_url)
    run = store.run("run")
    output = make_train_output(n_groups=2, n_samples_per_group=2)
    run.record_train(0, output)
    work = {
        "load_train": lambda: run.load_train(0),
        "load_batch": lambda: run.load_batch(0),
        "iter_samples": lambda: list(run.iter_samples(SampleFilter(kind="train"))),
        "verify": store.verify,
        "record": lambda: run.record_train(0, output, on_conflict="replace"),
        "samples_df": lambda: samples_df(run, SampleFilter(kind="train")),
    }[what]
    work()  # what is made once and kept
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        work()
        gc.collect()
        found = [o for o in gc.garbage if isinstance(o, (bytes, RolloutFnTrainOutput, Sample)) or _is_ours(o)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not found


_WITH_CONTENTS = tuple(f"slime_store.{room}." for room in ("codecs", "mapping", "repositories", "store.verification"))
"""Rooms whose objects hold what is read or written; an engine's own cycles hold none of it."""


def _is_ours(found: object) -> bool:
    return type(found).__module__.startswith(_WITH_CONTENTS)
