"""What one rollout's check knows, from one step to the next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Row, RowMapping

from slime_store.codecs.documents import DocumentDecoder
from slime_store.repositories.verification import VerificationRepository
from slime_store.store.handle import StoreHandle
from slime_store.store.verification.findings import Findings, Place

T = TypeVar("T")
Checksums: TypeAlias = "dict[tuple[str, int], bytes]"


@dataclass
class RolloutCheck:
    """The check of one rollout.

    Attributes:
        damaged_prompts: keys of prompts of which that is known.
        shared_files: keys of blobs whose side file another one has as well.
        row: the rollout's row; None where it cannot be read.
        samples: scalars in the order of position; None where they cannot be read.
        positions: theirs.
        layouts: attribute names.
        extras: position -> names of the attributes with a home of their own that its ``extra`` document holds.
        rewards: position -> numbers of a dict reward, from the document.
        digests: contents that documents refer to, perhaps some more.
        bytes: stored bytes of texts, documents and packs seen.
        arrays: field -> positions that have a value.
        lost: field -> positions whose pack cannot be decoded.
        checksums: field and first position -> the checksum at the end of a pack's bytes.
        pack_blobs: blobs that packs are in.
        is_whole: False once something could not be read, so that totals say nothing.
    """

    handle: StoreHandle
    decoder: DocumentDecoder
    pk: int
    place: Place
    damaged_prompts: set[int]
    shared_files: Set[int] = frozenset()
    findings: Findings = field(default_factory=Findings)
    row: Row[Any] | None = None
    samples: Sequence[RowMapping] | None = None
    positions: Sequence[int] | None = None
    layouts: Sequence[Sequence[str]] = ()
    extras: dict[int, frozenset[str]] = field(default_factory=dict)
    rewards: dict[int, dict[Any, Any]] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    bytes: int = 0
    arrays: dict[str, set[int]] = field(default_factory=dict)
    lost: dict[str, set[int]] = field(default_factory=dict)
    checksums: Checksums = field(default_factory=dict)
    pack_blobs: set[int] = field(default_factory=set)

    @property
    def is_pruned(self) -> bool:
        """True when its arrays were deleted on purpose."""
        return self.row is not None and self.row.pruned_at is not None

    @property
    def is_whole(self) -> bool:
        """True as long as everything could be read."""
        return not any(problem.code in _GAPS for problem in self.findings.problems)

    def add(self, code: str, what: str, samples: Iterable[int] = ()) -> None:
        """Note a problem of this rollout."""
        self.findings.add(code, what, self.place, samples)

    def read(self, what: str, query: Callable[[VerificationRepository], T], samples: Iterable[int] = ()) -> T | None:
        """Read in a transaction of its own; None, and a problem, where that is not possible."""
        result = None
        with self.findings.noting(what, self.place, samples), self.handle.reading() as connection:
            result = query(VerificationRepository(connection))
        return result

    def between(self, first: int, end: int | None = None) -> Sequence[int]:
        """Return the positions from one to before another that have a sample: the two may be any numbers.

        Where the samples cannot be read, as many positions are taken for theirs as the rollout's row says, in reason.
        """
        known = self.positions
        if known is None:
            known = range(min(self.row.n_samples, _MOST_UNREAD) if self.row is not None else 0)
        return known[bisect_left(known, first) : None if end is None else bisect_left(known, end)]

    def names(self, row: RowMapping) -> Sequence[str]:
        """Return the attributes of a sample."""
        return self.layouts[row["layout"]] if 0 <= row["layout"] < len(self.layouts) else ()


_MOST_UNREAD = 1 << 16
"""Samples that are looked for one by one where the list of them cannot be read."""

_GAPS = frozenset({"unreadable", "rows_disagree", "array_damaged", "document_damaged"})


def utf8_size(*texts: str | None) -> int:
    """Return the bytes of texts, as recording counts them."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts if text)
