"""Values in rows for other programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slime_store.interchange.values import plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.datetime64("2024-01-01", "ns"), "2024-01-01T00:00:00.000000000"),
        (np.timedelta64(5, "ns"), "5 nanoseconds"),
        (np.datetime64("2024-01-01", "D"), "2024-01-01"),
        (np.array([["2024-01-01"]], "M8[ns]"), [["2024-01-01T00:00:00.000000000"]]),
        (np.array("NaT", "M8[ns]"), None),
        (np.empty((0, 2), "M8[ns]"), []),
    ],
    ids=["datetime", "timedelta", "days", "array", "none", "empty"],
)
def test_moments_of_numpy_are_texts_whatever_their_unit(value: Any, expected: Any) -> None:
    assert plain(value) == expected
