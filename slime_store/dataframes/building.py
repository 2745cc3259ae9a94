"""Plain Python columns to a data frame whose dtypes depend on the declaration alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from slime_store.dataframes.columns import Column

TEXT = pd.StringDtype("python")
"""The same on pandas 2.2 and 3: missing values are ``pd.NA``, whatever is installed beside pandas."""
TIME = pd.DatetimeTZDtype("us", "UTC")


@dataclass(frozen=True)
class Problem:
    """A row that could not be shown, or is not among those that a filter chose since nobody can tell.

    Attributes:
        run: name of the run.
        kind: of the rollout.
        rollout_id: of the rollout.
        attempt: of the rollout.
        position: of the sample in its rollout, from 0; None: the rollout itself.
        column: that could not be made.
        reason: what is wrong with it.
    """

    run: str
    kind: str
    rollout_id: int
    attempt: int
    position: int | None
    column: str
    reason: str

    def __str__(self) -> str:
        sample = "" if self.position is None else f", sample {self.position}"
        return f"run {self.run!r}, {self.kind} rollout {self.rollout_id}{sample}: {self.column}: {self.reason}"


def frame_of(columns: Sequence[Column], values: Mapping[str, Any], n_rows: int) -> pd.DataFrame:
    """Return a frame of these columns, in order.

    Args:
        columns: the chosen declarations.
        values: by name, ``n_rows`` plain Python values each, None where there is none; or a ready array.
        n_rows: how many.
    """
    data = {column.name: to_array(values[column.name], column.kind) for column in columns}
    return pd.DataFrame(data, index=pd.RangeIndex(n_rows))


def to_array(values: Any, kind: str) -> Any:
    """Return values as the array of a declared kind."""
    if kind == "float":
        return np.asarray(values, dtype=np.float64)
    if kind in ("text", "json"):
        return values if getattr(values, "dtype", None) == TEXT else pd.array(list(values), dtype=TEXT)
    if kind == "time":
        return pd.to_datetime(pd.Series(list(values), dtype=object), utc=True).astype(TIME).array
    dtype: Any = np.int64 if kind == "int" else np.bool_
    made = pd.arrays.IntegerArray if kind == "int" else pd.arrays.BooleanArray
    if isinstance(values, np.ndarray):
        return made(values.astype(dtype), np.zeros(len(values), bool))
    mask = np.fromiter((value is None for value in values), bool, len(values))
    if mask.any():
        values = [0 if value is None else value for value in values]
    return made(np.asarray(values, dtype=dtype), mask)


def repeated(values: Sequence[Any], codes: np.ndarray[Any, Any], kind: str) -> Any:
    """Return the array of ``values[code]`` for each code, -1 being none; cheap when codes are many and values few."""
    array = to_array([*values, None], kind)
    return array.take(np.where(codes < 0, len(values), codes))
