"""Texts and documents: readable, decodable, and the same as the columns that were made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Row

from slime_store.errors import BlobMissingError, StoreError
from slime_store.mapping.fields import ARRAY_FIELDS
from slime_store.mapping.rewards import numeric_entries
from slime_store.repositories.blobs import digests_in
from slime_store.repositories.kept import kept_of_attributes, long_texts_in
from slime_store.repositories.verification import VerificationRepository
from slime_store.store.verification.findings import is_damage, reason_of
from slime_store.store.verification.stored import RolloutCheck, utf8_size
from slime_store.types import Placeholder, Record

_ELSEWHERE = frozenset({*ARRAY_FIELDS, "weight_versions"})

Query = Callable[[VerificationRepository, int | None], "Iterator[Row[Any]]"]


def check_writings(check: RolloutCheck) -> None:
    """Read every text, decode every document, one sample at a time."""
    row = check.row
    assert row is not None
    check.bytes += utf8_size(row.nesting, row.metrics)
    _each_sample(check, "the text", lambda rows, at: rows.texts(check.pk, at), _text)
    _each_sample(check, "the documents", lambda rows, at: rows.documents(check.pk, at), _documents)
    state = check.read("the data source's state", lambda rows: rows.state(check.pk))
    if state is not None:
        check.bytes += utf8_size(state)
        _decode(check, state, "the data source's state", kept_of=long_texts_in)
    if row.kind == "eval":
        for dataset in check.read("the datasets", lambda rows: rows.datasets(check.pk)) or ():
            _decode(check, dataset.content, f"the lists of dataset {dataset.name!r}")
    _check_rewards(check)


def _each_sample(check: RolloutCheck, what: str, query: Query, look: Callable[[RolloutCheck, Row[Any]], None]) -> None:
    """Look at all samples in one query; where that fails, one by one, to find out which cannot be read."""
    seen = -1
    attempt = RolloutCheck(check.handle, check.decoder, check.pk, check.place, set())

    def all_rows(rows: VerificationRepository) -> bool:
        nonlocal seen
        for row in query(rows, None):
            look(check, row)
            seen = row.position
        return True

    if attempt.read(what, all_rows):
        return
    for position in check.between(seen + 1):

        def one_row(rows: VerificationRepository, position: int = position) -> None:
            for row in query(rows, position):
                look(check, row)

        check.read(f"{what} of a sample", one_row, (position,))


def _text(check: RolloutCheck, row: Row[Any]) -> None:
    check.bytes += utf8_size(row.label, row.response)


def _documents(check: RolloutCheck, row: Row[Any]) -> None:
    check.bytes += utf8_size(row.metadata, row.extra)
    if row.metadata is not None:
        _decode(check, row.metadata, "metadata", row.position)
    if row.extra is not None:
        extra = _decode(check, row.extra, "attributes", row.position, kept_of=kept_of_attributes)
        if isinstance(extra, dict):
            check.extras[row.position] = _ELSEWHERE.intersection(extra)
            reward = extra.get("reward")
            if type(reward) is dict:
                check.rewards[row.position] = reward


def _decode(
    check: RolloutCheck,
    document: str,
    what: str,
    position: int | None = None,
    *,
    kept_of: Callable[[str | None], set[str]] | None = None,
) -> Any:
    """Return a document's value, or None; ``kept_of`` says which of its contents pruning keeps (None: all)."""
    samples = () if position is None else (position,)
    check.findings.counts["documents"] += 1
    is_pruned = kept_of is not None and check.is_pruned
    check.digests |= kept_of(document) if kept_of is not None and check.is_pruned else digests_in([document])
    try:
        return check.decoder.document(document)
    except StoreError as error:
        if is_pruned and isinstance(error, BlobMissingError):
            return None
        if not is_damage(error):
            raise
        check.add("document_damaged", f"{what}: {reason_of(error)}", samples)
    return None


def _check_rewards(check: RolloutCheck) -> None:
    rows = check.read("the numbers of dict rewards", lambda rows: rows.rewards(check.pk))
    if rows is None or not check.is_whole:
        return
    stored: dict[int, dict[tuple[int, str], float | None]] = {}
    for row in rows:
        stored.setdefault(row.position, {})[row.depth, row.key] = row.value
    wrong = []
    for position, reward in check.rewards.items():
        if _has_stand_in(reward):
            continue  # the numbers were those of the value itself; digests cover them
        entries: dict[tuple[int, str], float | None] = {}
        for depth, key, value in numeric_entries(reward):
            entries.setdefault((depth, key), value)
        if stored.get(position, {}) != entries:
            wrong.append(position)
    if wrong:
        check.add("rewards_disagree", "the numbers of a dict reward are not those of the reward", sorted(wrong))


def _has_stand_in(value: Any) -> bool:
    """Whether a reward has something in it that could not be kept, or whose class is not loaded here."""
    if isinstance(value, dict):
        return any(map(_has_stand_in, value.values()))
    return isinstance(value, (Placeholder, Record))
