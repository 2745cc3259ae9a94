"""The formulas against values that are known, and against counting by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from slime_store.dataframes.statistics import Groups, grouped, mean_interval, pass_at_k, t_quantile


@pytest.mark.parametrize(
    ("p", "degrees", "expected"),
    [
        (0.975, 1, 12.706205),
        (0.975, 2, 4.302653),
        (0.975, 5, 2.570582),
        (0.995, 3, 5.840909),
        (0.95, 4, 2.131847),
        (0.975, 29, 2.045230),
        (0.975, 200, 1.971896),
        (0.975, 201, 1.971837),
        (0.975, 1000, 1.962339),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_tables(p: float, degrees: int, expected: float) -> None:
    assert t_quantile(p, degrees) == pytest.approx(expected, abs=1e-6)


def test_pass_at_k_is_the_share_of_the_choices_that_hold_a_correct_sample() -> None:
    for n in range(1, 8):
        for c in range(n + 1):
            marks = [True] * c + [False] * (n - c)
            for k in range(1, 10):
                (found,) = pass_at_k(np.array([n]), np.array([c]), k)
                choices = list(itertools.combinations(marks, k))
                if not choices:
                    assert math.isnan(found)
                else:
                    assert found == pytest.approx(sum(map(any, choices)) / len(choices))


def test_an_interval_is_that_of_the_textbook() -> None:
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0, 4.0]), 0.95)
    assert (mean, low, high) == (2.5, pytest.approx(0.445739743), pytest.approx(4.554260257))
    assert mean_interval(np.array([2.0]), 0.95)[0] == 2.0
    assert all(map(math.isnan, mean_interval(np.array([]), 0.95)))


def test_groups_keep_the_order_of_their_first_rows() -> None:
    groups, first = grouped(np.array([3, 1, 3, 2]), np.array([0, 0, 0, 0]))
    assert groups.codes.tolist() == [0, 1, 0, 2]
    assert first.tolist() == [0, 1, 3]
    values = np.array([1.0, np.nan, 3.0, 5.0])
    assert groups.mean(values).tolist()[::2] == [2.0, 5.0]
    assert groups.low(values)[0] == 1.0
    assert math.isnan(groups.high(values)[1])
    assert grouped(np.zeros(0, np.int64))[0].n_groups == 0
    assert Groups(np.zeros(0, np.int64), 0).std(np.zeros(0)).tolist() == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "values", [[math.inf, -math.inf], [math.inf, 1.0], [1e308, -1e308], [1e308, 1e308], [math.inf]]
)
def test_means_of_what_no_double_can_hold_warn_of_nothing(values: list[float]) -> None:
    mean, low, high = mean_interval(np.array(values), 0.95)
    assert math.isfinite(mean) or (math.isnan(low) and math.isnan(high))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_pass_at_a_k_that_nothing_reaches_takes_no_time(n: int) -> None:
    assert np.isnan(pass_at_k(np.full(4, n), np.zeros(4, np.int64), 10**15)).all()
