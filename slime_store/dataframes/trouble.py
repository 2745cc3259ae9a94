"""What becomes of rows that cannot be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from slime_store.dataframes.building import Problem
from slime_store.errors import BlobCorruptError


def given(frame: pd.DataFrame, problems: Sequence[Problem], strict: bool) -> Any:
    """Return the frame; without ``strict``, (frame, problems).

    Raises:
        BlobCorruptError: there is a problem (strict).
    """
    if not strict:
        return frame, list(problems)
    if problems:
        raise BlobCorruptError(f"{problems[0]}; strict=False leaves such rows out")
    return frame
