"""Array packs: every one decodes, its layout fits, and no sample has lost its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from slime_store.blobs import checksum_of
from slime_store.codecs.arrays import EncodedArray
from slime_store.errors import BlobCorruptError, StoreError
from slime_store.mapping.packs import unpack
from slime_store.store.verification.findings import is_damage, reason_of
from slime_store.store.verification.stored import RolloutCheck


def check_packs(check: RolloutCheck) -> None:
    """Decode every array of a rollout, one pack at a time, and compare with what the scalars say of them."""
    keys = check.read("the list of its arrays", lambda rows: rows.pack_keys(check.pk))
    if keys is None:
        return
    for number, (field, first) in enumerate(keys):
        following = keys[number + 1] if number + 1 < len(keys) else None
        end = following[1] if following is not None and following[0] == field else None
        _check_pack(check, field, first, check.between(first, end))
    _check_presence(check)


def _check_pack(check: RolloutCheck, field: str, first: int, span: Sequence[int]) -> None:
    damage = f"{field} of samples {first} and following"
    before = len(check.findings.problems)
    row = check.read(damage, lambda rows: rows.pack(check.pk, field, first), span)
    if row is None:
        if len(check.findings.problems) > before:
            check.lost.setdefault(field, set()).update(span)
        return
    check.findings.counts["arrays"] += 1
    check.findings.counts["array_bytes"] += row.n_bytes
    check.bytes += row.n_bytes
    try:
        values = _values(check, row)
        check.arrays.setdefault(field, set()).update(values)
        if field == "tokens" and check.samples is not None:
            _check_lengths(check, values)
    except StoreError as error:
        if not is_damage(error):
            raise
        span = [position for position in span if position <= row.last_position] or span
        check.add("array_damaged", f"{field}: {reason_of(error)}", span)
        check.lost.setdefault(field, set()).update(span)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        check.add("array_damaged", f"{field}: {type(error).__name__}: {error}", span)
        check.lost.setdefault(field, set()).update(span)


def _values(check: RolloutCheck, row: Row[Any]) -> dict[int, int]:
    """Return the length of each sample's value, by position; each value is made and let go again."""
    data = row.data
    if row.blob_pk is not None:
        check.pack_blobs.add(row.blob_pk)
        with check.handle.reading() as connection:
            data = check.handle.blobs(connection).read(row.blob_pk)[2]
    if data is not None:
        check.checksums[row.field, row.first_position] = checksum_of(data)
    if data is None or len(data) != row.n_bytes:
        raise BlobCorruptError(f"{0 if data is None else len(data)} bytes, not {row.n_bytes}")
    encoded = [EncodedArray(row.codec, row.dtype, (), bytes(data))]
    del data  # so that ``unpack`` can let go of the bytes
    values = {position: len(value) for position, value in unpack(encoded.pop(), row.layout, row.first_position)}
    if not values or (min(values), max(values)) != (row.first_position, row.last_position):
        raise BlobCorruptError(f"the layout does not fit samples {row.first_position} to {row.last_position}")
    if not set(values).isdisjoint(check.arrays.get(row.field, ())):
        raise BlobCorruptError("samples have two values")
    return values


def _check_lengths(check: RolloutCheck, values: dict[int, int]) -> None:
    expected = {sample["position"]: sample["n_tokens"] for sample in check.samples or ()}
    wrong = [position for position, n in values.items() if expected.get(position, n) != n]
    if wrong:
        check.add("counts_disagree", "samples have another number of tokens than their rows say", wrong)


def _check_presence(check: RolloutCheck) -> None:
    """Find samples that must have an array and have none: reading them would give the class's default."""
    if check.is_pruned:
        if check.arrays or check.lost:
            check.add("counts_disagree", "its arrays were pruned, and some are there")
        return
    for field in ("tokens", "loss_mask"):
        lacking = []
        for sample in check.samples or ():
            position = sample["position"]
            certain = sample["n_tokens"] > 0
            if field == "loss_mask":  # without one the two are equal
                certain = sample["effective_response_length"] != sample["response_length"]
            if certain and field in check.names(sample) and not _has(check, field, position):
                lacking.append(position)
        if lacking:
            check.add("array_missing", f"samples have lost their {field}", lacking)


def _has(check: RolloutCheck, field: str, position: int) -> bool:
    return (
        position in check.arrays.get(field, ())
        or position in check.lost.get(field, ())
        or field in check.extras.get(position, ())
    )
