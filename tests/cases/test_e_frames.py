"""Section E of the cases, asked as questions: which weights generated what."""

from __future__ import annotations

from typing import Any

import pytest

from slime_store import Sample, SampleFilter
from slime_store.dataframes import samples_df, weight_versions_df
from slime_store.testing.contract.opening import run_of
from tests.cases.asked import ask, plain, record
from tests.cases.trips import found

LISTS = [["3"], ["13"], ["3", "3", "4"], ["30", "4"], []]


@pytest.fixture
def recorded(store_url: str) -> str:
    samples = [Sample(index=i, reward=float(i), weight_versions=each) for i, each in enumerate(LISTS, 1)]
    for sample in samples:
        sample.metadata = {"of": "all"}
    record(store_url, *samples)
    return store_url


@pytest.mark.parametrize("metadata", [None, {"of": "all"}])
@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("each", {"3": (2, 2.0), "13": (1, 2.0), "4": (2, 3.5), "30": (1, 4.0), None: (1, 5.0)}),
        ("last", {"3": (1, 1.0), "13": (1, 2.0), "4": (2, 3.5), None: (1, 5.0)}),
        ("first", {"3": (2, 2.0), "13": (1, 2.0), "30": (1, 4.0), None: (1, 5.0)}),
    ],
)
def test_e1_a_sample_counts_once_for_each_version_that_is_asked_for(
    recorded: str, attribute: Any, expected: dict[Any, Any], metadata: Any
) -> None:
    for by in ("session", "label"):
        frame = ask(recorded, weight_versions_df, SampleFilter(metadata=metadata), attribute=attribute, by=by)
        found = {
            version: (n, mean)
            for version, n, mean in zip(
                plain(frame["weight_version"]), frame["n_samples"], frame["reward_mean"], strict=True
            )
        }
        assert found == expected
        assert plain(frame["ordinal"]) == [*sorted(frame["ordinal"].dropna()), None]


@pytest.mark.parametrize(
    ("label", "rule", "expected"),
    [
        ("3", "any", [1, 3]),
        ("3", "first", [1, 3]),
        ("3", "last", [1]),
        ("4", "any", [3, 4]),
        ("4", "first", []),
        ("4", "last", [3, 4]),
        ("0", "any", []),
    ],
)
def test_e1_a_version_is_compared_as_a_whole_by_each_rule(
    recorded: str, label: str, rule: str, expected: list[int]
) -> None:
    assert found(recorded, weight_version=label, weight_version_rule=rule) == expected
    where = SampleFilter(weight_version=label, weight_version_rule=rule)
    assert list(ask(recorded, samples_df, where)["index"]) == expected


def test_e1_labels_of_another_session_are_other_versions_unless_asked_by_label(store_url: str) -> None:
    for rollout_id in range(2):
        with run_of(store_url) as run:
            run.record_train(rollout_id, [[Sample(reward=float(rollout_id), weight_versions=["1"])]])
    frame = ask(store_url, weight_versions_df)
    assert [list(frame[name]) for name in ("session", "ordinal", "reward_mean", "first_rollout_id")] == [
        [1, 2],
        [1, 2],
        [0.0, 1.0],
        [0, 1],
    ]
    (merged,) = ask(store_url, weight_versions_df, by="label").to_dict("records")
    assert (merged["n_samples"], merged["reward_mean"], merged["ordinal"]) == (2, 0.5, 1)
    assert (merged["first_rollout_id"], merged["last_rollout_id"]) == (0, 1)


def test_e1_samples_of_an_eval_that_name_no_version_have_the_one_it_was_told(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(index=0, reward=0.0, weight_versions=["6"])]])
        samples = [Sample(index=1, reward=1.0), Sample(index=2, reward=0.0, weight_versions=["7"])]
        run.record_eval(0, {"d": {"samples": samples}}, weight_version="6")
    frame = ask(store_url, weight_versions_df)
    columns = ("kind", "weight_version", "n_samples", "reward_mean")
    found_rows = sorted(tuple(row[name] for name in columns) for row in frame.to_dict("records"))
    assert found_rows == [("eval", "6", 1, 1.0), ("eval", "7", 1, 0.0), ("train", "6", 1, 0.0)]
    assert found(store_url, weight_version="6") == [0, 1]
    for rule in ("any", "first", "last"):
        assert found(store_url, weight_version="6", kind="eval", weight_version_rule=rule) == [1]
    assert list(ask(store_url, samples_df)["weight_version"]) == ["6", "6", "7"]
