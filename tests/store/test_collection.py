"""Python's cycle collector is paused while a rollout is made, and nothing else about it changes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from slime_store import Sample, SampleStore
from slime_store.store.collection import paused


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
