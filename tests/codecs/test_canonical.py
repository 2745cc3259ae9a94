"""Rows as canonical bytes: equal only for equal rows, the same for ever, and digests of them."""

from __future__ import annotations

import enum
import math
import struct
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slime_store.codecs.canonical import DIGEST_BYTES, VERSION, digest_values, encode_values

INTS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(timezones=st.sampled_from([timezone.utc, timezone(timedelta(hours=-7))]))
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
ROWS = st.lists(
    st.none()
    | st.booleans()
    | INTS
    | st.floats()
    | TEXTS
    | st.binary(max_size=8)
    | TIMES
    | st.sampled_from(["", b"", 0]),
    max_size=6,
)

FROZEN_BYTES = (
    "09000000000000006e3f696473627473640100000000000000ffffffffffffffff000000000000e03f07000000000000"
    "000100000000000000013049d4ad490600000000000000000000000000000000006e61c3af766500ff"
)
FROZEN_DIGEST = "015ee8c2b2a194ddb320d2f36bab258e"
FROZEN_EMPTY = "014815a80e6d1bf03ab08028f44764dd"


def same(one: Any, other: Any) -> bool:
    """Return whether two values are one: of one type and, for floats, of one bit pattern, but for the sign of zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("<d", one + 0.0) == struct.pack("<d", other + 0.0)
    return bool(one == other)


@given(ROWS, ROWS)
@example([None], [""])
@example([None], [])
@example([""], [b""])
@example(["ab", "c"], ["a", "bc"])
@example(["a", b"b"], ["ab", b""])
@example([True], [1])
@example([1], [1.0])
@example([None, 1], [1, None])
@example([0.0], [-0.0])
@example([math.nan], [None])
@example([math.nan], [-math.nan])
@example(["s", 1], ["s\x01"])
def test_two_rows_have_the_same_bytes_only_when_they_are_the_same(one: list[Any], other: list[Any]) -> None:
    is_same = len(one) == len(other) and all(map(same, one, other))
    assert (encode_values(one) == encode_values(other)) is is_same
    assert (digest_values(one) == digest_values(other)) is is_same


def decoded(data: bytes) -> list[Any]:
    """Read canonical bytes as the module's page says: that this is possible shows that no two rows share bytes."""
    (count,) = struct.unpack_from("<Q", data)
    tags = data[8 : 8 + count].decode()
    assert len(tags) == count
    at, values = 8 + count, list[Any]()
    for tag in tags:
        if tag == "n":
            values.append(None)
            continue
        (number,) = struct.unpack_from("<d" if tag == "d" else "<q", data, at)
        at += 8
        if tag == "t":
            number = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=number)
        values.append(bool(number) if tag == "?" else number)
    for kind in "sb":
        for i, tag in enumerate(tags):
            if tag == kind:
                content = data[at : at + values[i]]
                at += values[i]
                values[i] = content.decode() if kind == "s" else content
    assert at == len(data)
    return values


@given(ROWS)
def test_the_bytes_say_what_the_row_was(row: list[Any]) -> None:
    assert all(map(same, decoded(encode_values(row)), row))


def test_the_bytes_and_the_digest_of_version_1_are_frozen() -> None:
    when = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=timezone.utc)
    row = [None, True, -1, 0.5, "naïve\0", b"\xff", when, "", -0.0]
    assert encode_values(row).hex() == FROZEN_BYTES
    assert digest_values(row).hex() == FROZEN_DIGEST
    assert digest_values([]).hex() == FROZEN_EMPTY
    assert (digest_values(row)[0], len(digest_values(row))) == (VERSION, DIGEST_BYTES) == (1, 16)


def test_a_time_is_a_moment_whatever_its_offset() -> None:
    here = datetime(2026, 1, 31, 5, tzinfo=timezone(timedelta(hours=-7)))
    assert encode_values([here]) == encode_values([here.astimezone(timezone.utc)])


class Word(str, enum.Enum):
    ONE = "one"


def test_what_a_database_takes_as_a_plain_value_counts_as_one() -> None:
    assert encode_values([np.float64(0.5), Word.ONE]) == encode_values([0.5, "one"])


@pytest.mark.parametrize("value", [(1,), np.int64(1), object()])
def test_a_value_of_no_column_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        encode_values([value])


def test_an_integer_beyond_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        encode_values([2**63])
