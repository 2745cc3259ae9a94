"""What becomes of rows that cannot be shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from slime_store.dataframes.building import Problem
from slime_store.errors import BlobCorruptError, StoreError

DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, StoreError)
"""What reading a damaged document may raise."""


def undecoded(error: BaseException) -> str:
    """Return the reason that a problem gives for a damaged document."""
    return f"a document does not decode: {type(error).__name__}: {error}"


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
