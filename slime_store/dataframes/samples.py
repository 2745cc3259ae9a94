"""Frames with a row for each sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any, Literal, overload

import pandas as pd

from slime_store.database import reconnecting
from slime_store.dataframes.building import Problem, frame_of
from slime_store.dataframes.columns import Column, Columns, Frame
from slime_store.dataframes.declared.samples import EVAL, SAMPLES
from slime_store.dataframes.source import only_eval, reward_field
from slime_store.dataframes.table import SampleTable
from slime_store.dataframes.trouble import DAMAGE, given, undecoded
from slime_store.mapping.rewards import from_columns
from slime_store.mapping.shown import shown, shown_text
from slime_store.mapping.text import searchable
from slime_store.repositories.questions.fields import Field
from slime_store.store.diagnosis import damage_named
from slime_store.store.loading import again_if_overtaken
from slime_store.store.questions import Questions, Source, asking
from slime_store.types import SampleFilter

_OF_ROLLOUT = ("run", "session", "kind", "rollout_id", "attempt")
_RENAMED = {"index": "sample_index", "removed": "remove_sample"}
_VERSIONS = {"weight_version": "last_weight_version_pk", "first_weight_version": "first_weight_version_pk"}
_MISSING = object()


@overload
def samples_df(
    source: Source,
    where: SampleFilter | None = ...,
    *,
    columns: Columns = ...,
    strict: Literal[True] = ...,
    limit: int | None = ...,
    offset: int = ...,
) -> pd.DataFrame: ...


@overload
def samples_df(
    source: Source,
    where: SampleFilter | None = ...,
    *,
    columns: Columns = ...,
    strict: Literal[False],
    limit: int | None = ...,
    offset: int = ...,
) -> tuple[pd.DataFrame, list[Problem]]: ...


@damage_named
def samples_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
    limit: int | None = None,
    offset: int = 0,
) -> pd.DataFrame | tuple[pd.DataFrame, list[Problem]]:
    """Return a row for each sample: run, train before eval, rollout id, attempt, position is the order.

    By default scalars only, from narrow tables: no array, text or document is read. docs/dataframes.md lists all
    columns. Costs one query for the rollouts, one for weight versions, and one for each 65,000 samples.

    Args:
        source: a run, or a store for all of its runs.
        where: which samples; None: all of the newest attempts.
        columns: names in the order wanted, also ``"metadata.source"``, ``"reward.acc"``, or paths into nested dicts
            such as ``("reward", "nest", "x")``. None: those that docs/dataframes.md marks so.
        strict: False: return (frame, problems) instead of raising for a row that cannot be shown; it is left out.
        limit: at most this many rows; only as much is read as it takes to find them.
        offset: leave out this many rows before.

    Raises:
        ValueError: there is no such column.
        BlobCorruptError: a document is damaged (strict).
    """
    return _frame(SAMPLES, source, where, columns, strict, limit, offset)


@damage_named
def eval_df(
    source: Source,
    where: SampleFilter | None = None,
    *,
    columns: Columns = None,
    strict: bool = True,
    limit: int | None = None,
    offset: int = 0,
) -> Any:
    """Return a row for each sample of an eval, with what the dataset's own lists say of it.

    ``eval_reward`` and ``eval_truncated`` are the entries of the dataset's ``rewards`` and ``truncated``, which need
    not be what the sample says; ``reward`` and ``status`` are the sample's. Arguments, cost and errors are those of
    ``samples_df``; train samples are left out, whatever the filter says.
    """
    return _frame(EVAL, source, only_eval(where), columns, strict, limit, offset)


@again_if_overtaken
@reconnecting
def _frame(
    frame: Frame,
    source: Source,
    where: SampleFilter | None,
    columns: Columns,
    strict: bool,
    limit: int | None,
    offset: int,
) -> Any:
    chosen = frame.choose(columns)
    limit, offset = (None if limit is None else _amount("limit", limit)), _amount("offset", offset)
    with asking(source, where) as questions:
        fields = [field for column in chosen for field in _fields(column, questions)]
        table = SampleTable(questions, fields, limit=limit, offset=offset)
        problems = list(table.problems)
        bad: set[int] = set()
        values = {}
        for column in chosen:
            values[column.name], failures = _values(column, table, questions)
            bad.update(failures)
            problems += [table.problem(row, column.name, reason) for row, reason in failures.items()]
    made = frame_of(chosen, values, table.n_rows)
    if bad:
        made = made.drop(index=sorted(bad)).reset_index(drop=True)
    return given(made, problems, strict)


def _amount(name: str, value: Any) -> int:
    """Return a number of rows as a plain int that every database takes."""
    try:
        number = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"{name} is a whole number that is at least 0, not {value!r}")
    return min(number, 2**63 - 1)


def _fields(column: Column, questions: Questions) -> tuple[Field, ...]:
    """Return what must be read for a column."""
    name = column.name
    if column.path and name.startswith("reward."):
        return (column.path,)
    if column.path or name == "metadata":
        return ("metadata", "extra")
    if name in _OF_ROLLOUT or name == "position":
        return ()
    if name in _VERSIONS:
        return (_VERSIONS[name],)
    if name == "reward":
        return (reward_field(questions.where),)
    fields: dict[str, tuple[Field, ...]] = {
        "prompt_id": ("prompt_digest",),
        "prompt": ("prompt_text", "prompt_document"),
        "label": ("label", "extra"),
        "reward_json": ("reward", "reward_type", "extra"),
    }
    return fields.get(name, (_RENAMED.get(name, name),))


def _values(column: Column, table: SampleTable, questions: Questions) -> tuple[Any, dict[int, str]]:
    """Return a column's values, and the reason for each row that has none because it is damaged."""
    name = column.name
    if name in _OF_ROLLOUT:
        return table.of_rollout(name, column.kind), {}
    if name == "position":
        return table.position, {}
    if name in _VERSIONS:
        return table.labels(_VERSIONS[name]), {}
    read = [table.values(field) for field in _fields(column, questions)]
    if name == "prompt_id":
        return [None if digest is None else bytes(digest)[:8].hex() for digest in read[0]], {}
    make = _makers(column).get("metadata" if column.path and not name.startswith("reward.") else name)
    if make is None:
        return read[0], {}
    return _made(make, zip(*read, strict=True))


def _makers(column: Column) -> dict[str, Callable[..., str | None]]:
    path = [searchable(key) for key in column.path]
    return {
        "prompt": lambda text, document: text if document is None else shown_text(shown(json.loads(document))),
        "label": lambda label, extra: shown_text(_from_extra(extra, "label", label)),
        "reward_json": lambda number, word, extra: shown_text(_from_extra(extra, "reward", from_columns(number, word))),
        "metadata": lambda document, extra: _metadata(document, extra, path),
    }


def _made(make: Callable[..., str | None], rows: Iterator[Sequence[Any]]) -> tuple[list[str | None], dict[int, str]]:
    values: list[str | None] = []
    failures: dict[int, str] = {}
    for number, row in enumerate(rows):
        try:
            values.append(make(*row))
        except DAMAGE as error:
            values.append(None)
            failures[number] = undecoded(error)
    return values, failures


def _from_extra(extra: str | None, name: str, otherwise: Any) -> Any:
    """Return an attribute from the document that holds what its column cannot, or else what the column says."""
    if extra is None or f'"{name}"' not in extra:
        return otherwise
    attributes = shown(json.loads(extra))
    return attributes.get(name, otherwise)


def _metadata(document: str | None, extra: str | None, path: Sequence[str]) -> str | None:
    metadata: Any = _from_extra(extra, "metadata", _MISSING)
    if metadata is _MISSING:
        tree = {} if document is None else json.loads(document)
        if not isinstance(tree, dict):
            raise ValueError("metadata is no object")
        if path and "$dict" not in tree:
            tree = {path[0]: tree[path[0]]} if path[0] in tree else {}
        metadata = shown(tree)
    for key in path:
        metadata = metadata.get(key) if isinstance(metadata, dict) else None
    return shown_text(metadata)
