"""Neutral stand-ins for values whose class the store cannot or must not bring back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_HASHED_DEPTH = 8  # levels of a record's fields that its hash looks at


@dataclass(frozen=True)
class Placeholder:
    """What lenient mode stored in place of a value that it could not keep.

    Attributes:
        type_name: class of the lost value, ``"module:QualName"``.
        text: what it looked like, for people; shortened, and never evaluated.
    """

    type_name: str
    text: str


@dataclass(frozen=True)
class Record:
    """An instance of a user's class, loaded where that class is not available.

    The store imports nothing because a file says so. An enum member, dataclass or named tuple whose
    module is not loaded comes back as a record; recorded again, it stays what it was. Its fields
    read as attributes (``record.name`` and ``record.value`` of an enum member), except where a field
    is called ``type_name``, ``kind`` or ``fields``: those are found in ``fields`` only.

    Records of the same content are equal, but for those that are keys of one dict, or members of one set: they stand
    for objects that were not equal, and differ by a number that is only theirs and is not stored.

    Attributes:
        type_name: the class, ``"module:QualName"``.
        kind: ``"enum"``, ``"dataclass"`` or ``"namedtuple"``.
        fields: its fields by name, in the class's order; ``name`` and ``value`` of an enum member.
    """

    type_name: str
    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    _number: int = field(default=0, init=False, repr=False)

    def numbered(self, number: int) -> Record:
        """Return a record of the same content that is equal only to others of this number; plain ones have 0."""
        record = Record(self.type_name, self.kind, self.fields)
        object.__setattr__(record, "_number", number)
        return record

    def __str__(self) -> str:
        return f"{self!r} (key {self._number + 1})" if self._number else repr(self)

    def __getattr__(self, name: str) -> Any:
        """Return the field called ``name``."""
        # pickle and copy ask before ``fields`` is there: look in __dict__, never at self.fields
        fields = self.__dict__.get("fields") or {}
        if name in fields:
            return fields[name]
        type_name = self.__dict__.get("type_name", type(self).__name__)
        raise AttributeError(f"record of {type_name!r} has no field {name!r}; it has {list(fields)}")

    def __eq__(self, other: object) -> bool:
        """Compare by content; false where a field, such as an array, has no such answer."""
        if type(other) is not type(self):
            return NotImplemented
        try:
            return self._content() == other._content()
        except Exception:  # of a field's class
            return False

    def __hash__(self) -> int:
        """Agree with equality, also when a field cannot be hashed; enum members are often keys."""
        return hash((self.type_name, self.kind, self._number, _content_hash(self.fields)))

    def _content(self) -> tuple[Any, ...]:
        return self.type_name, self.kind, self.fields, self._number


def _content_hash(value: Any, depth: int = _HASHED_DEPTH) -> int:
    """Return a hash that equal values share, also where lists, dicts or sets in them have none."""
    try:
        if isinstance(value, (list, tuple)):
            return hash(tuple(_content_hash(item, depth - 1) for item in value)) if depth else 0
        if isinstance(value, dict):
            items = value.items() if depth else ()
            return hash(frozenset((key, _content_hash(item, depth - 1)) for key, item in items))
        return hash(frozenset(value) if isinstance(value, (set, frozenset)) else value)
    except RecursionError:
        raise
    except Exception:  # a field's class may have any hash, or none
        return 0
