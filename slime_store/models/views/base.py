"""How a view is described, and columns that mean the same in every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ColumnType = Literal["text", "integer", "double", "timestamp"]


@dataclass(frozen=True)
class ViewColumn:
    """One column; an ``integer`` that says yes or no is 1 or 0, on both databases."""

    name: str
    type: ColumnType
    doc: str


@dataclass(frozen=True)
class View:
    """One view."""

    name: str
    doc: str
    columns: tuple[ViewColumn, ...]


def text(name: str, doc: str) -> ViewColumn:
    """Describe a column of text."""
    return ViewColumn(name, "text", doc)


def integer(name: str, doc: str) -> ViewColumn:
    """Describe a column of integers."""
    return ViewColumn(name, "integer", doc)


def double(name: str, doc: str) -> ViewColumn:
    """Describe a column of floating-point numbers."""
    return ViewColumn(name, "double", doc)


def timestamp(name: str, doc: str) -> ViewColumn:
    """Describe a column of times in UTC: text on SQLite, timestamptz on PostgreSQL."""
    return ViewColumn(name, "timestamp", doc)


RUN = text("run", "name of the run")
KIND = text("kind", '"train" or "eval"')
ROLLOUT_ID = integer("rollout_id", "the number slime hands to `generate_rollout`")
ATTEMPT = integer("attempt", "1 for the first recording of this rollout, 2 for the next, as after a crash")
SESSION = integer("session", "which process of the run recorded it; 1 is the first")
POSITION = integer("position", "order in the rollout, from 0")
ROLLOUT_PK = integer("rollout_pk", "key of `rollouts`, to join with other views and tables")
PROMPT_ID = text("prompt_id", "first 16 hex digits of the prompt's digest; NULL without a prompt")
WEIGHT_VERSION = text(
    "weight_version", "the last version that generated it, else what its eval was told; NULL: not known"
)
WEIGHT_VERSION_ORDINAL = integer(
    "weight_version_ordinal", "order of first use in the run; labels begin anew in each session"
)

WHICH = (RUN, KIND, ROLLOUT_ID, ATTEMPT, SESSION)
"""What tells a rollout."""
