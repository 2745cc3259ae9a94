"""Section E of the cases: which weights generated what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slime_store import Sample
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.cases.trips import attribute, found, round_trip
from tests.services.tables import row, rows

BY_VERSION = """
SELECT v.label, count(*), avg(s.reward) FROM samples s
LEFT JOIN (SELECT DISTINCT rollout_pk, position, weight_version_pk FROM sample_weight_versions) l
       ON l.rollout_pk = s.rollout_pk AND l.position = s.position
LEFT JOIN weight_versions v ON v.id = l.weight_version_pk
GROUP BY v.label
"""


def _versions() -> list[Sample]:
    lists = [["3"], ["13"], ["3", "3", "4"], ["30", "4"], []]
    return [Sample(index=i, reward=float(i), weight_versions=each) for i, each in enumerate(lists, 1)]


def test_e1_a_version_is_compared_as_a_whole_and_a_sample_is_found_once(store_url: str) -> None:
    samples = _versions()
    assert_same(round_trip(store_url, *samples), samples)
    assert found(store_url, weight_version="3") == [1, 3]
    assert found(store_url, weight_version=3) == [1, 3]
    assert found(store_url, weight_version="4") == [3, 4]
    assert found(store_url, weight_version="13") == [2]
    assert found(store_url, weight_version="0") == []


def test_e1_a_mean_weighs_a_sample_once_for_each_version(store_url: str) -> None:
    round_trip(store_url, *_versions())
    by_version = {label: (n, mean) for label, n, mean in rows(store_url, BY_VERSION)}
    assert by_version == {"3": (2, 2.0), "13": (1, 2.0), "4": (2, 3.5), "30": (1, 4.0), None: (1, 5.0)}


def test_e1_first_and_last_version_of_a_sample_are_columns(store_url: str) -> None:
    round_trip(store_url, *_versions())
    query = (
        "SELECT first.label, last.label FROM samples s LEFT JOIN weight_versions first ON first.id ="
        " s.first_weight_version_pk LEFT JOIN weight_versions last ON last.id = s.last_weight_version_pk"
        " ORDER BY s.position"
    )
    assert rows(store_url, query) == [("3", "3"), ("13", "13"), ("3", "4"), ("30", "4"), (None, None)]


@pytest.mark.parametrize(
    "versions",
    [
        ["a", "b", "a", "a", "b"],
        ["5"] * 500 + ["6"],
        [f"v{i}" for i in range(700)],
        ["default", "", " ", "7\x00", "\ud83d", "7"],
        ("3", "4"),
        [3, 4, 3],
        [np.int64(3), "3"],
        [None, "3"],
        None,
        "34",
        [["3"], "4"],
    ],
    ids=lambda versions: repr(versions)[:30],
)
def test_e1_any_list_of_versions_comes_back(store_url: str, versions: Any) -> None:
    assert_same(attribute(store_url, "weight_versions", [versions, ["3"], versions])[::2], [versions, versions])


def test_e1_numbers_are_found_by_their_label(store_url: str) -> None:
    lists: list[Any] = [[3], [np.int64(3)], ("3",), [True], [3.0], ["03"]]
    round_trip(store_url, *[Sample(index=i, weight_versions=each) for i, each in enumerate(lists)])
    assert found(store_url, weight_version="3") == [0, 1, 2]


def test_e4_a_sample_begun_in_one_step_and_ended_in_another_can_be_listed(store_url: str) -> None:
    begun = Sample(index=1, status=Sample.Status.ABORTED, weight_versions=["4"], metadata={"start_rollout_id": 4})
    ended = make_sample(1, n_tokens=20, metadata={"start_rollout_id": 4}, loss_mask=[0] * 8 + [1] * 12)
    ended.weight_versions = ["4", "5"]
    fresh = make_sample(2, metadata={"start_rollout_id": 5}, weight_version="5")
    with run_of(store_url) as run:
        run.record_train(4, [[begun]])
        run.record_train(5, [[ended, fresh]])
    assert_same(loaded_train(store_url, 5).samples, [[ended, fresh]])
    assert found(store_url, rollout_ids=5, metadata={"start_rollout_id": 4}) == [1]
    assert found(store_url, rollout_ids=5, weight_version="4") == [1]
    assert found(store_url, status="aborted", metadata={"start_rollout_id": 4}) == [1]
    query = "SELECT effective_response_length, response_length FROM samples WHERE n_tokens = 36"
    assert row(store_url, query) == (12, 20)


def test_e4_lengths_that_disagree_are_stored_as_they_are_and_can_be_asked_for(store_url: str) -> None:
    samples = [
        Sample(index=0, tokens=[1, 2], response_length=9, loss_mask=[1, 1, 1], rollout_log_probs=[-0.5]),
        Sample(index=1, tokens=[], response_length=-1, loss_mask=[1] * 20),
        Sample(index=2, tokens=[1, 2, 3], response_length=2, loss_mask=[0, 1]),
    ]
    assert_same(round_trip(store_url, *samples), samples)
    suspicious = "SELECT sample_index FROM samples WHERE response_length NOT BETWEEN 0 AND n_tokens ORDER BY position"
    assert rows(store_url, suspicious) == [(0,), (1,)]


def test_e4_labels_that_begin_again_in_a_new_process_are_other_versions(store_url: str) -> None:
    for rollout_id in range(2):
        with run_of(store_url) as run:
            run.record_train(rollout_id, [[Sample(index=rollout_id, weight_versions=["1"])]])
    with opened(store_url, read_only=True) as store:
        versions = store.run("contract", create=False).weight_versions()
    assert [(each.session, each.label, each.ordinal) for each in versions] == [(1, "1", 1), (2, "1", 2)]
    assert found(store_url, weight_version="1") == [0, 1]
    assert row(store_url, "SELECT count(DISTINCT last_weight_version_pk) FROM samples") == (2,)
