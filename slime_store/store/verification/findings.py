"""What a check has found so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from slime_store.errors import (
    BlobCorruptError,
    BlobMissingError,
    DamagedStoreError,
    DatabaseError,
    StoreBusyError,
    StoreError,
)
from slime_store.types.reports import Problem, VerifyReport

MAX_OF_A_CODE = 1000
"""Problems of one code that are listed; of a store without its side files there could be millions."""

_UNREADABLE = (
    "UTF-8",
    "I/O error",
    "no such column",
    "no such table",
)  # words of SQLite's errors that mean damage, beside those that say so
_MISFITS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, AssertionError)

_DAMAGE = frozenset(
    {
        "page_damaged",
        "reference_dangling",
        "schema_differs",
        "unreadable",
        "rows_disagree",
        "digest_differs",
        "file_shared",
    }
)
"""While there is one of these, what looks unused may only look so."""

_GAPS = frozenset(
    {
        "array_missing",
        "array_damaged",
        "document_damaged",
        "prompt_missing",
        "prompt_damaged",
        "counts_disagree",
        "bytes_disagree",
    }
)
"""Likewise, of a rollout: what it needs is not known."""

_LOSSES = frozenset({"blob_missing", "blob_damaged", "array_damaged", "document_damaged"})


@dataclass(frozen=True)
class Place:
    """The rollout that a problem concerns."""

    run: str | None = None
    kind: str | None = None
    rollout_id: int | None = None
    attempt: int | None = None


NOWHERE = Place()


@dataclass
class Findings:
    """Problems and counts.

    Attributes:
        is_in_doubt: True when it is not certain what is needed: not all of the database, or a rollout, was seen.
        needed: keys of blobs that documents refer to without a reference that keeps them.
        unused_prompts: keys of prompts that nothing refers to.
        unused_blobs: keys of blobs that nothing refers to.
        unused_files: names of side files that nothing refers to.
    """

    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    is_in_doubt: bool = False
    needed: set[int] = field(default_factory=set)
    unused_prompts: list[int] = field(default_factory=list)
    unused_blobs: list[int] = field(default_factory=list)
    unused_files: list[str] = field(default_factory=list)
    _left_out: Counter[str] = field(default_factory=Counter)

    def add(
        self, code: str, what: str, place: Place = NOWHERE, samples: Iterable[int] = (), *, fixable: bool = False
    ) -> None:
        """Note a problem."""
        self.is_in_doubt |= code in _DAMAGE or (code in _GAPS and place.kind is not None)
        if sum(1 for problem in self.problems if problem.code == code) >= MAX_OF_A_CODE:
            self._left_out[code] += 1
            return
        where = (place.run, place.kind, place.rollout_id, place.attempt, tuple(samples))
        self.problems.append(Problem(code, what, *where, fixable=fixable))

    def rises(self, what: str, after: int, keys: list[int]) -> bool:
        """Tell whether a page of keys goes on behind the one before; a damaged index might lead in a circle."""
        if all(lower < higher for lower, higher in zip([after, *keys], keys, strict=False)):
            return True
        self.add("unreadable", f"{what}: its keys do not rise behind {after}")
        return False

    @property
    def lacks_payloads(self) -> bool:
        """True when bytes are not where a row says."""
        return any(problem.code in _LOSSES for problem in self.problems)

    def mark_fixed(self, code: str) -> None:
        """Note that every problem of a code was put right."""
        self.problems = [replace(p, fixed=True) if p.code == code and p.fixable else p for p in self.problems]

    def report(self) -> VerifyReport:
        """Return what was found."""
        more = [
            Problem(code, f"{n} more of this kind are not listed", fixable=fixable, fixed=fixed)
            for code, n in sorted(self._left_out.items())
            for fixable, fixed in {(p.fixable, p.fixed) for p in self.problems if p.code == code}
        ]
        return VerifyReport((*self.problems, *more), dict(sorted(self.counts.items())))

    @contextmanager
    def noting(self, what: str, place: Place = NOWHERE, samples: Iterable[int] = ()) -> Iterator[None]:
        """Turn what reading damaged rows raises into a problem, and go on behind the body.

        Raises:
            DatabaseError: the database is busy, gone or refuses: that says nothing of what is stored.
        """
        try:
            yield
        except StoreBusyError:
            raise
        except StoreError as error:
            if not is_damage(error):
                raise
            self.add("unreadable", f"{what}: {reason_of(error)}", place, samples)
        except _MISFITS as error:
            self.add("rows_disagree", f"{what}: {type(error).__name__}: {error}", place, samples)


def is_damage(error: StoreError) -> bool:
    """Tell whether an error is about what is stored, not about reaching it."""
    if isinstance(error, (DamagedStoreError, BlobCorruptError, BlobMissingError)):
        return True
    return isinstance(error, DatabaseError) and any(word in error.reason for word in _UNREADABLE)


def reason_of(error: StoreError) -> str:
    """Return what an error says of the damage, without the advice to run ``verify``."""
    if isinstance(error, BlobMissingError):
        return f"{error.name} is missing"
    return str(getattr(error, "reason", None) or getattr(error, "detail", None) or error)
