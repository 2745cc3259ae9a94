"""Columns as declared data: name, type, unit and meaning of each, and the choice that ``columns=`` makes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slime_store.mapping.text import searchable

DTYPES = {
    "int": "Int64",
    "float": "float64",
    "text": "string",
    "json": "string",
    "flag": "boolean",
    "time": "datetime64[us, UTC]",
}
"""Word in a declaration -> the pandas dtype, whatever the rows."""

Columns: TypeAlias = "Iterable[str | Sequence[str]] | None"
"""What ``columns=`` takes: names, ``"metadata.key"``, or paths such as ``("reward", "nest", "x")``."""


@dataclass(frozen=True)
class Column:
    """One column of a data frame.

    Attributes:
        name: fixed, other programs rely on it.
        kind: a word of ``DTYPES``; "json" is text that is JSON, but for texts, which are as they are.
        meaning: what a value says, and when there is none.
        unit: of its numbers.
        default: False: only there when ``columns=`` asks for it.
        path: of a column of a family: the keys on the way to its values.
    """

    name: str
    kind: str
    meaning: str
    unit: str = ""
    default: bool = True
    path: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        """The pandas dtype."""
        return DTYPES[self.kind]


@dataclass(frozen=True)
class Family:
    """Columns that share a beginning and are named by what the store holds, e.g. ``metadata.source``.

    Attributes:
        name: the beginning, without the dot.
        kind: as of a column.
        meaning: as of a column.
    """

    name: str
    kind: str
    meaning: str

    def column(self, path: tuple[str, ...]) -> Column:
        """Return the column at a path: a key is written as it is, a longer path as the JSON list of its keys.

        The list has no blanks, as in ``v_metrics`` and ``v_sample_rewards``; ``columns=`` takes it with blanks as well.
        """
        is_plain = len(path) == 1 and _parsed(path[0]) is None
        key = path[0] if is_plain else json.dumps(path, ensure_ascii=False, separators=(",", ":"))
        return Column(searchable(f"{self.name}.{key}"), self.kind, self.meaning, default=False, path=path)


@dataclass(frozen=True)
class Frame:
    """The declaration of a data frame.

    Attributes:
        name: of the function that makes it.
        rows: what one row is, and the order of the rows.
        columns: in order; those by default are there when nothing is chosen.
        families: columns that may be asked for by key.
        notes: how its numbers are computed.
    """

    name: str
    rows: str
    columns: tuple[Column, ...]
    families: tuple[Family, ...] = ()
    notes: str = ""

    def choose(self, columns: Columns) -> list[Column]:
        """Return the columns that a caller chose, in that order; None: those by default.

        Raises:
            ValueError: there is no such column, or one is chosen twice.
        """
        if columns is None:
            return [column for column in self.columns if column.default]
        if isinstance(columns, str):
            raise TypeError(f"columns is a collection of names, e.g. [{columns!r}]")
        chosen = [self._column(name) for name in columns]
        names = [column.name for column in chosen]
        if len(set(names)) < len(names):
            raise ValueError(f"columns names one twice: {', '.join(map(repr, names))}")
        return chosen

    def _column(self, name: str | Sequence[str]) -> Column:
        families = {family.name: family for family in self.families}
        if not isinstance(name, str):
            path = tuple(name) if isinstance(name, Iterable) else ()
            if len(path) > 1 and path[0] in families and all(isinstance(key, str) for key in path):
                return families[path[0]].column(path[1:])
            raise ValueError(f"{name!r} is no column; a path begins with {', '.join(map(repr, families)) or 'nothing'}")
        for column in self.columns:
            if column.name == name:
                return column
        start, dot, key = name.partition(".")
        if dot and start in families:
            return families[start].column(_parsed(key) or (key,))
        known = [column.name for column in self.columns] + [f"{family}.<key>" for family in families]
        near = difflib.get_close_matches(name, known, 3) or known
        raise ValueError(f"{self.name} has no column {name!r}; it has {', '.join(near)}")


def _parsed(key: str) -> tuple[str, ...] | None:
    """Return the path that a key spells as a JSON list of texts, or None."""
    if key[:1] != "[":
        return None
    try:
        value: Any = json.loads(key)
    except ValueError:
        return None
    return tuple(value) if isinstance(value, list) and value and all(isinstance(part, str) for part in value) else None
