"""The nested list of a rollout, to a shape and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_store import Sample
from slime_store.errors import BlobCorruptError, UnsupportedValueError
from slime_store.mapping.nesting import flatten, nest
from slime_store.testing.contract.opening import opened
from tests.services.tables import execute

trees = st.recursive(st.builds(Sample), lambda children: st.lists(children) | st.tuples(children), max_leaves=20)


@given(st.lists(trees))
def test_any_nesting_comes_back(tree: list[Any]) -> None:
    flat = flatten(tree)
    assert nest(flat.shape, flat.samples) == tree
    assert len(flat.places) == len(flat.samples) == sum(group.n_samples for group in flat.groups)


def test_groups_executions_and_segments_are_told_apart() -> None:
    a, b, c, d, e, f = (Sample(index=i) for i in range(6))
    flat = flatten([[a, b], [[c, d], [e]], [f]])
    assert flat.shape == "[[2],[[2],[1]],[1]]"
    places = [(p.group, p.sample, p.segment) for p in flat.places]
    assert places == [(0, 0, None), (0, 1, None), (1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, None)]
    assert [group.n_trajectories for group in flat.groups] == [2, 2, 1]


def test_a_flat_list_is_grouped_by_group_index_and_samples_without_one_stay_alone() -> None:
    flat = flatten([Sample(group_index=i) for i in (0, 0, 1, 1, None, None)])
    assert [group.n_samples for group in flat.groups] == [2, 2, 1, 1]


@pytest.mark.parametrize("tree", [None, 3, {"a": []}, [[None]], [["text"]], [[Sample()], [object()]]])
def test_what_is_no_nested_list_of_samples_is_refused_by_its_place(tree: Any) -> None:
    with pytest.raises(UnsupportedValueError, match="samples"):
        flatten(tree)


@pytest.mark.parametrize(("shape", "n"), [("[[2]]", 1), ("[[2]]", 3), ("[", 0), ('["x"]', 1), ("[[-1]]", 1)])
def test_a_shape_that_does_not_fit_is_damage(shape: str, n: int) -> None:
    with pytest.raises(BlobCorruptError):
        nest(shape, [Sample() for _ in range(n)])


def test_an_eval_whose_samples_have_lost_their_shape_is_damaged(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("run")
        run.record_eval(0, {"math": {"rewards": [1.0], "samples": [Sample()]}, "none": {"rewards": []}})
        execute(store_url, "UPDATE eval_datasets SET nesting = NULL")
        with pytest.raises(BlobCorruptError, match="nothing that says how they nest"):
            run.load_eval(0)
