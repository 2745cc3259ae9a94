"""Array packs: joining and splitting token arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_store.errors import BlobCorruptError
from slime_store.mapping.packs import PACK_BYTES, PackBuilder, to_piece, unpack
from slime_store.testing import assert_same

values = (
    st.none()
    | st.lists(st.integers(-(2**63), 2**63 - 1))
    | st.lists(st.integers(0, 1))
    | st.lists(st.floats())
    | st.lists(st.booleans())
    | st.lists(st.integers(0, 9)).map(lambda v: [np.int64(i) for i in v])
    | st.lists(st.integers(0, 300)).map(lambda v: np.array(v, np.int32).reshape(-1, 1))
    | st.lists(st.integers(0, 300)).map(lambda v: torch.tensor(v, dtype=torch.int32).reshape(-1, 1, 1))
    | st.lists(st.floats(width=16)).map(lambda v: torch.tensor(v, dtype=torch.bfloat16))
)


def through(items: list[Any]) -> list[Any]:
    builder = PackBuilder("tokens")
    for position, value in enumerate(items):
        if value is not None:
            piece = to_piece(value, copy=False)
            assert piece is not None
            builder.add(position, piece)
    found: dict[int, Any] = {}
    for pack in builder.packs:
        layout, first = pack.layout, pack.first_position
        assert pack.last_position == first + len(pack.lengths) - 1
        found.update(unpack(pack.encode(), layout, first))
    return [found.get(position) for position in range(len(items))]


@given(st.lists(values, max_size=12))
def test_any_sequence_of_values_comes_back(items: list[Any]) -> None:
    assert_same(through(items), items)


def test_values_of_one_kind_share_a_pack_until_it_is_full() -> None:
    builder = PackBuilder("tokens")
    value = list(range(100_000, 100_000 + PACK_BYTES // 16))
    for position in range(9):
        builder.add(position, to_piece(value, copy=False))
    assert [len(pack.lengths) for pack in builder.packs] == [4, 4, 1]


def test_only_the_positions_asked_for_are_made() -> None:
    builder = PackBuilder("tokens")
    for position in range(5):
        builder.add(position, to_piece([position], copy=False))
    pack = builder.packs[0]
    layout = pack.layout
    assert dict(unpack(pack.encode(), layout, 0, frozenset({1, 3}))) == {1: [1], 3: [3]}


def test_values_that_come_back_are_writable_and_independent() -> None:
    arrays = through([np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32), torch.arange(4), torch.arange(4)])
    for value in arrays:
        value += 1
        value[0] = 99
    assert arrays[1].tolist() == arrays[3].tolist() == [99, 2, 3, 4]
    assert arrays[2].untyped_storage().nbytes() == 32


_MARKED = np.zeros(1, np.dtype("i4", metadata={"unit": "s"}))


@pytest.mark.parametrize(
    "value", [[1, 1.0], [1, None], [2**70], (1, 2), "x", np.array(1), [[1]], torch.tensor(1.0), _MARKED]
)
def test_what_is_no_token_array_is_left_to_documents(value: Any) -> None:
    assert to_piece(value, copy=False) is None


def test_a_snapshot_does_not_see_later_changes() -> None:
    array, tensor = np.zeros(3), torch.zeros(3)
    pieces = [to_piece(array, copy=True), to_piece(tensor, copy=True)]
    array[:], tensor[:] = 1, 1
    assert all(piece is not None and piece.array.sum() == 0 for piece in pieces)


@pytest.mark.parametrize("layout", ["", "{}", '{"of":"list","type":"int","tail":[],"n":[9]}', "[1]"])
def test_a_damaged_layout_is_a_typed_error(layout: str) -> None:
    builder = PackBuilder("tokens")
    builder.add(0, to_piece([1, 2, 3], copy=False))
    with pytest.raises(BlobCorruptError):
        list(unpack(builder.packs[0].encode(), layout, 0))
