"""The samples that a filter names, column by column, as the store gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slime_store.dataframes.building import Problem, repeated, to_array
from slime_store.repositories.questions.fields import Field
from slime_store.repositories.questions.samples import Head
from slime_store.repositories.questions.versions import Version
from slime_store.store.questions import Questions

Array = Any


class SampleTable:
    """Columns of samples, all of the same length.

    Args:
        questions: inside a transaction.
        fields: what to read of each sample.
        limit: at most this many samples.
        offset: leave out this many before.
    """

    def __init__(
        self, questions: Questions, fields: Sequence[Field], *, limit: int | None = None, offset: int = 0
    ) -> None:
        self.fields = list(dict.fromkeys(fields))
        self.heads: list[Head] = questions.scan.heads()
        rows = list(questions.scan.rows(self.heads, self.fields, limit=limit, offset=offset))
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * (len(self.fields) + 2)
        self.n_rows = len(rows)
        self.position: Sequence[int] = columns[1]
        self._values = dict(zip(self.fields, columns[2:], strict=True))
        self.head = _codes(np.asarray(columns[0], np.int64), [head.pk for head in self.heads])
        self.problems = [self._damage(questions, damage) for damage in questions.scan.damages]
        self._versions: dict[int, Version] | None = None
        self._questions = questions

    def values(self, field: Field) -> Sequence[Any]:
        """Return what was read, one plain value for each sample."""
        return self._values[field]

    def of_rollout(self, attribute: str, kind: str) -> Array:
        """Return an attribute of each sample's rollout."""
        return repeated([getattr(head, attribute) for head in self.heads], self.head, kind)

    def version_keys(self, field: str = "last_weight_version_pk") -> np.ndarray[Any, Any]:
        """Return the key of each sample's weight version, -1 for none: its own, else that of its eval."""
        own = self.keys(field)
        told = _keys([head.weight_version_pk for head in self.heads] or [None])
        return np.where(own < 0, told[self.head], own) if self.n_rows else own

    def labels(self, field: str = "last_weight_version_pk") -> Array:
        """Return the label of each sample's weight version."""
        keys, codes = np.unique(self.version_keys(field), return_inverse=True)
        versions = self.versions
        return repeated([versions[k].label if k >= 0 else None for k in keys.tolist()], codes, "text")

    @property
    def versions(self) -> dict[int, Version]:
        """Every weight version by its key; read once."""
        if self._versions is None:
            self._versions = self._questions.versions.all()
        return self._versions

    def keys(self, field: Field) -> np.ndarray[Any, Any]:
        """Return a field of whole numbers that are at least 0 as int64, -1 where there is none."""
        return _keys(self.values(field))

    def floats(self, field: Field) -> np.ndarray[Any, Any]:
        """Return a field as float64, NaN where there is none."""
        return to_array(self.values(field), "float")  # type: ignore[no-any-return]

    def problem(self, row: int, column: str, reason: str) -> Problem:
        """Return what to tell of a row."""
        head = self.heads[int(self.head[row])]
        return Problem(head.run, head.kind, head.rollout_id, head.attempt, self.position[row], column, reason)

    def _damage(self, questions: Questions, damage: Any) -> Problem:
        head = next(head for head in self.heads if head.pk == damage.rollout_pk)
        where = (head.run, head.kind, head.rollout_id, head.attempt, damage.position)
        return Problem(*where, "metadata", str(damage.error))


def _keys(values: Sequence[int | None]) -> np.ndarray[Any, Any]:
    return np.fromiter((-1 if value is None else value for value in values), np.int64, len(values))


def _codes(keys: np.ndarray[Any, Any], known: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return the place of each key among the known ones."""
    array = np.asarray(known, np.int64)
    order = np.argsort(array, kind="stable")
    found: np.ndarray[Any, Any] = order[np.searchsorted(array, keys, sorter=order)] if len(keys) else keys
    return found
