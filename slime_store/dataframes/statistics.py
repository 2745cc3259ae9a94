"""The formulas: means and spreads by group, pass@k, confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"


class Groups:
    """Rows by group: each method returns one value a group.

    Args:
        codes: group of each row, from 0.
        n_groups: how many groups.
    """

    def __init__(self, codes: Array, n_groups: int) -> None:
        self.codes = codes
        self.n_groups = n_groups

    def count(self, chosen: Array | None = None) -> Array:
        """Return the number of rows, or of the rows chosen by a mask; int64."""
        codes = self.codes if chosen is None else self.codes[chosen]
        return np.bincount(codes, minlength=self.n_groups)

    def total(self, values: Array) -> Array:
        """Return the sum of the values that are not NaN; float64."""
        known = ~np.isnan(values)
        total: Array = np.bincount(self.codes[known], weights=values[known], minlength=self.n_groups)
        return total.astype(np.float64)  # without any rows it is of integers

    def mean(self, values: Array) -> Array:
        """Return the mean of the values that are not NaN; NaN without any."""
        with np.errstate(all="ignore"):
            mean: Array = self.total(values) / self.count(~np.isnan(values))
        return mean

    def squares(self, values: Array) -> Array:
        """Return the sum of the squared distances from the group's mean, in two passes."""
        with np.errstate(all="ignore"):
            distances = values - self.mean(values)[self.codes]
            squares: Array = self.total(distances * distances)
            # what is infinite has no distance; total() would take the NaNs for missing values
            squares[~np.isfinite(self.total(values))] = np.nan
        return squares

    def std(self, values: Array) -> Array:
        """Return the sample standard deviation (n - 1); NaN for fewer than two values."""
        n = self.count(~np.isnan(values))
        with np.errstate(all="ignore"):
            return np.where(n > 1, np.sqrt(self.squares(values) / np.maximum(n - 1, 1)), np.nan)

    def low(self, values: Array) -> Array:
        """Return the lowest value; NaN without any."""
        lowest = np.full(self.n_groups, np.inf)
        known = ~np.isnan(values)
        np.minimum.at(lowest, self.codes[known], values[known])
        return np.where(self.count(known) > 0, lowest, np.nan)

    def high(self, values: Array) -> Array:
        """Return the highest value; NaN without any."""
        return -self.low(-values)

    def first(self) -> Array:
        """Return the first row of each group."""
        rows = np.full(self.n_groups, len(self.codes), np.int64)
        np.minimum.at(rows, self.codes, np.arange(len(self.codes)))
        return rows


def grouped(*keys: Array) -> tuple[Groups, Array]:
    """Group rows by several integer keys; return the groups, in order of their first row, and that row of each."""
    if not len(keys[0]):
        return Groups(np.zeros(0, np.int64), 0), np.zeros(0, np.int64)
    _, first, codes = np.unique(np.stack(keys), axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return Groups(places[codes.reshape(-1)], len(order)), first[order]


def pass_at_k(n: Array, n_correct: Array, k: int) -> Array:
    """Return 1 - C(n - c, k) / C(n, k) for each n samples of which c are correct; NaN where n < k.

    The unbiased estimator of the chance that at least one of k samples is correct (Chen et al. 2021, "Evaluating Large
    Language Models Trained on Code", section 2.1), computed as a product, which does not overflow.
    """
    n, missing = n.astype(np.float64), (n - n_correct).astype(np.float64)
    none_correct = np.ones(len(n))
    for i in range(k if np.any(n >= k) else 0):  # a large k is no work where nothing has as many
        with np.errstate(all="ignore"):
            none_correct = none_correct * np.clip((missing - i) / (n - i), 0.0, None)
    return np.where(n >= k, 1.0 - none_correct, np.nan)


def mean_interval(values: Array, confidence: float) -> tuple[float, float, float]:
    """Return (mean, low, high): Student's t interval of the mean of independent values.

    Given one mean a prompt, this is the interval that takes account of several samples of the same prompt
    ("clustered"; Miller 2024, "Adding Error Bars to Evals", section 2.2). NaN bounds for fewer than two values.
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan, math.nan
    with np.errstate(all="ignore"):
        mean = float(np.mean(values))
        if n == 1 or not math.isfinite(mean):
            return mean, math.nan, math.nan
        deviation = float(np.std(values, ddof=1))
    half = t_quantile((1.0 + confidence) / 2.0, n - 1) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def t_quantile(p: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, for 0.5 <= p < 1, to about seven digits.

    Up to 200 degrees of freedom by bisection on the exact distribution (Abramowitz and Stegun 26.7.3 and 26.7.4), above
    by the expansion around the normal quantile (26.7.5).
    """
    if degrees > 200:
        z = NormalDist().inv_cdf(p)
        first = (z**3 + z) / (4 * degrees)
        return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    low, high = 0.0, 1.0
    while _t_distribution(high, degrees) < p:
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_distribution(middle, degrees) < p else (low, middle)
    return (low + high) / 2


def _t_distribution(t: float, degrees: int) -> float:
    angle = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, 0.0) if degrees % 2 else (1.0, 0.0)
    for i in range(degrees % 2 + 1 if degrees % 2 else 1, degrees, 2):
        total += term
        term *= cosine * cosine * i / (i + 1)
    share = 2 / math.pi * (angle + sine * total) if degrees % 2 else sine * total
    return (1.0 + share) / 2


def check_ks(k: Sequence[int]) -> tuple[int, ...]:
    """Return the distinct k of pass@k, in the order given."""
    try:
        ks = tuple(dict.fromkeys(-1 if isinstance(each, bool) else index(each) for each in k))
    except TypeError:
        ks = (-1,)
    if any(each < 1 for each in ks):
        raise ValueError(f"k is a collection of whole numbers from 1, not {k!r}")
    return ks
