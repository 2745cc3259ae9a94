"""Lists to arrays: the quick way agrees with the obvious one, and types come back exactly."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_store.codecs import array_to_list, decode_array, encode_array, list_to_array, lists
from slime_store.codecs.lists import plain_list_to_array
from slime_store.errors import BlobCorruptError
from slime_store.testing import assert_same


class Colour(enum.IntEnum):
    RED = 1


class MyInt(int):
    pass


class MyFloat(float):
    pass


NAN_WITH_PAYLOAD = np.array(0x7FF8_0000_0000_1234, np.uint64).view(np.float64).item()

INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 300) | st.integers()
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, NAN_WITH_PAYLOAD, math.inf, 5e-324])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=12),
    st.builds(MyInt, st.integers(0, 5)),
    st.builds(MyFloat, st.floats(0, 5)),
    st.just(Colour.RED),
    st.tuples(st.integers(0, 3)),
    st.lists(st.integers(0, 3), max_size=2),
    st.integers(0, 100).flatmap(lambda i: st.sampled_from([np.int64(i), np.int32(i), np.uint8(i), np.float32(i)])),
    st.integers(0, 1).flatmap(lambda i: st.sampled_from([np.bool_(i), np.float64(i), np.float16(i), np.longlong(i)])),
)
PURE = st.one_of(st.lists(INTS), st.lists(FLOATS), st.lists(st.booleans()))
MIXED = st.tuples(PURE, st.lists(ODD, max_size=2), PURE).map(lambda parts: parts[0] + parts[1] + parts[2])


@settings(max_examples=200)
@given(PURE | MIXED | st.lists(ODD))
def test_the_quick_way_agrees_with_the_obvious_one(values: list[Any]) -> None:
    quick, plain = list_to_array(values), plain_list_to_array(values)
    if plain is None or quick is None:
        assert plain is None and quick is None
        return
    assert quick[1] == plain[1]
    assert_same(quick[0].astype(plain[0].dtype), plain[0])


@settings(max_examples=150)
@given(PURE | MIXED | st.lists(ODD))
def test_what_becomes_an_array_comes_back_exactly(values: list[Any]) -> None:
    converted = list_to_array(values)
    if converted is None:
        return
    array, item_type = converted
    assert_same(array_to_list(array, item_type), values)
    encoded = encode_array(array)
    narrowed = decode_array(encoded.codec_id, encoded.dtype, encoded.shape, encoded.data)
    assert_same(array_to_list(narrowed, item_type), values)


def test_the_quick_way_is_taken_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "plain_list_to_array", lambda values: pytest.fail("the obvious way"))
    for values, dtype in (([1, 2**31 - 1], "int32"), ([0.5], "float64"), ([True, False], "bool")):
        converted = list_to_array(values)
        assert converted is not None and converted[0].dtype == dtype


def test_another_layout_of_marshal_falls_back_to_the_obvious_way(monkeypatch: pytest.MonkeyPatch) -> None:
    real = lists._dumps
    assert lists._check_marshal()
    for broken in (lambda v: None, lambda v: b"", lambda v: (real(v) or b"") + b"\0", lambda v: (real(v) or b"")[::-1]):
        monkeypatch.setattr(lists, "_dumps", broken)
        assert not lists._check_marshal()
    monkeypatch.setattr(lists, "_marshal_is_as_expected", False)
    assert_same(list_to_array([1, 2]), (np.array([1, 2]), "int"))


@pytest.mark.parametrize("swap", [np.int64(3), True, 3.0, None, MyInt(3), Colour.RED, 2**63, "3", np.bool_(True)])
@pytest.mark.parametrize("position", [0, 1, 50, 99])
def test_one_other_type_among_many_is_seen(position: int, swap: Any) -> None:
    values: list[Any] = list(range(1000, 1100))
    values[position] = swap
    assert list_to_array(values) is None
    assert plain_list_to_array(values) is None


def test_integers_between_32_and_64_bits_are_one_array_and_larger_ones_none() -> None:
    for value in (2**31, -(2**31) - 1, 2**63 - 1, -(2**63)):
        assert_same(list_to_array([1, value]), (np.array([1, value]), "int"))
    for value in (2**63, -(2**63) - 1, 10**400):
        assert list_to_array([1, value]) is None
        assert list_to_array([value, 1]) is None


@pytest.mark.parametrize(
    "scalar", [np.int8, np.uint16, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_, np.complex64]
)
def test_numpy_scalars_come_back_as_themselves(scalar: Any) -> None:
    values = [scalar(1), scalar(0), scalar(7)]
    converted = list_to_array(values)
    assert converted is not None
    assert converted[1] == f"numpy.{np.dtype(scalar).name}"
    assert_same(array_to_list(*converted), values)


@pytest.mark.parametrize("values", [[np.str_("a")], [np.datetime64("2024-01-01")], [np.void(b"a")], [np.bytes_(b"a")]])
def test_other_numpy_scalars_are_left_to_the_caller(values: list[Any]) -> None:
    assert list_to_array(values) is None


def test_a_subclass_of_list_elements_that_cannot_be_marshalled_is_left_to_the_caller() -> None:
    assert list_to_array([1, object(), 2]) is None
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    assert list_to_array([1, nested, 2]) is None


def test_no_values_are_their_own_type() -> None:
    converted = list_to_array([])
    assert converted is not None and converted[1] == "empty"
    assert array_to_list(*converted) == []


def test_arrays_and_types_that_do_not_fit_are_refused() -> None:
    ints, floats = np.arange(3), np.ones(3)
    for array, item_type in (
        (floats, "int"),
        (ints, "float"),
        (floats, "bool"),
        (ints, "empty"),
        (ints, "numpy.object"),
        (ints, "numpy."),
        (ints, "list"),
        (ints, ""),
        (np.ones(3, complex), "numpy.float32"),
        (ints.reshape(1, 3), "int"),
    ):
        with pytest.raises(BlobCorruptError):
            array_to_list(array, item_type)


def test_the_callers_list_is_not_kept() -> None:
    values = [1, 2, 3]
    converted = list_to_array(values)
    assert converted is not None
    converted[0][0] = 9
    assert values == [1, 2, 3]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"])
@pytest.mark.parametrize("length", [1, 255, 256, 5000])
def test_long_lists_of_ints_come_back_as_the_plain_way_makes_them(dtype: str, length: int) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(length)
    for top in sorted({min(int(info.max), bound) for bound in (1, 2**16, 2**18 - 1, 2**18, 2**31, 2**63)}):
        array = rng.integers(0, top, length, dtype=dtype, endpoint=True)
        array[-1] = top
        for values in (array, array[::-1], np.where(array == top, info.min, array).astype(dtype)):
            assert_same(array_to_list(values, "int"), values.tolist())


def test_lists_that_share_ints_are_independent() -> None:
    array = np.arange(1000, 3000, dtype=np.uint16)
    first, second = array_to_list(array, "int"), array_to_list(array, "int")
    first[0] += 1
    assert second == array.tolist()
