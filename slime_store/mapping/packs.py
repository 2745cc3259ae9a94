"""Array packs: one field of consecutive samples, joined into one array.

A pack is described by a small JSON ``layout``: ``{"of": ..., "type": ..., "tail": [...], "n": [...]}``. ``of`` is
"list", "ndarray" or "tensor", ``type`` the element type of lists (``codecs.lists``) or the dtype of arrays and
tensors, ``tail`` the shape after the first dimension, and ``n`` the length of each sample's value, null where a
sample has none in this pack.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from slime_store.codecs.arrays import DTYPES, EncodedArray, decode_as, decode_for_reading, dtype_name, encode_array
from slime_store.codecs.base import Array
from slime_store.codecs.lists import array_to_list, list_to_array
from slime_store.codecs.tensors import bits_to_tensor, layout_of, tensor_to_bits
from slime_store.errors import BlobCorruptError, UnsupportedValueError

PACK_BYTES = 512 * 1024
"""A pack is closed when its raw values take this many bytes; docs/design.md has the measurement."""
_MAX_SPAN = 4096
"""Most samples that one pack spans."""


@dataclass(frozen=True)
class Piece:
    """One sample's value of one field, as an array and what it takes to get the value back."""

    of: str
    type: str
    array: Array


@dataclass
class Pack:
    """Consecutive samples' values of one field, before compression."""

    field: str
    first_position: int
    last_position: int
    of: str
    type: str
    tail: tuple[int, ...]
    lengths: list[int | None] = dataclasses.field(default_factory=list)
    arrays: list[Array] = dataclasses.field(default_factory=list)
    raw_bytes: int = 0

    @property
    def layout(self) -> str:
        """The JSON that ``unpack`` needs."""
        body = {"of": self.of, "type": self.type, "tail": self.tail, "n": self.lengths}
        return json.dumps(body, separators=(",", ":"))

    def encode(self) -> EncodedArray:
        """Join, narrow and compress the values."""
        parts = [part for part in self.arrays if part.size] or self.arrays
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return encode_array(joined.reshape(-1))


class PackBuilder:
    """Collects one field's values in the order of positions and closes packs as they fill up."""

    def __init__(self, field_name: str) -> None:
        self.packs: list[Pack] = []
        self._field = field_name

    def add(self, position: int, piece: Piece) -> None:
        """Append one sample's value; positions must rise."""
        array = piece.array
        pack = self.packs[-1] if self.packs else None
        if pack is None or not self._fits(pack, position, piece):
            tail = array.shape[1:]
            pack = Pack(self._field, position, position, piece.of, piece.type, tail)
            self.packs.append(pack)
        elif pack.type == "empty":
            pack.type = piece.type
        pack.lengths.extend([None] * (position - pack.first_position - len(pack.lengths)))
        pack.lengths.append(len(array))
        pack.last_position = position
        pack.arrays.append(array)
        pack.raw_bytes += array.nbytes

    @staticmethod
    def _fits(pack: Pack, position: int, piece: Piece) -> bool:
        if pack.of != piece.of or pack.tail != piece.array.shape[1:]:
            return False
        if pack.type != piece.type and (piece.of != "list" or "empty" not in (pack.type, piece.type)):
            return False
        large = pack.raw_bytes + piece.array.nbytes > PACK_BYTES
        return not large and position - pack.first_position < _MAX_SPAN


def to_piece(value: Any, *, copy: bool) -> Piece | None:
    """Return a token array as a piece, or None when it is not a flat list of one number type, array or tensor.

    Args:
        value: what the sample holds.
        copy: take a copy of arrays and tensors, which the caller may change before they are encoded.
    """
    if type(value) is list:
        converted = list_to_array(value)
        return None if converted is None else Piece("list", converted[1], converted[0])
    if type(value) is np.ndarray:
        name = dtype_name(value.dtype)
        if value.ndim == 0 or name is None or not value.dtype.isnative or value.dtype.metadata:
            return None
        return Piece("ndarray", name, value.copy(order="C") if copy else np.ascontiguousarray(value))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.ndim > 0 and layout_of(value) == "strided":
        try:
            bits, name, _ = tensor_to_bits(value)
        except UnsupportedValueError:  # the document encoder says why, with the path
            return None
        return Piece("tensor", name, bits.copy() if copy else bits)
    return None


@dataclass(frozen=True)
class OpenPack:
    """A pack's values, decompressed and not yet made into what the samples held.

    Attributes:
        of: "list", "ndarray" or "tensor".
        type: element type of lists, dtype of arrays and tensors.
    """

    of: str
    type: str
    _tail: tuple[int, ...]
    _lengths: list[int | None]
    _flat: Array

    @property
    def is_flat(self) -> bool:
        """Whether the samples' values have one dimension."""
        return not self._tail

    def arrays(self, first_position: int, positions: Container[int] | None = None) -> Iterator[tuple[int, Array]]:
        """Yield (position, values) of the samples that have some, each a view of the pack in its narrowed dtype."""
        width, start = math.prod(self._tail), 0
        for position, n in enumerate(self._lengths, first_position):
            if n is None:
                continue
            part = self._flat[start : start + n * width]
            start += n * width
            if positions is None or position in positions:
                yield position, part.reshape(n, *self._tail) if self._tail else part

    def values(self, first_position: int, positions: Container[int] | None = None) -> Iterator[tuple[int, Any]]:
        """Yield (position, value) as the samples held it, each value independent of the others.

        Raises:
            BlobCorruptError: the values do not fit what the layout says of them.
        """
        for position, array in self.arrays(first_position, positions):
            yield position, piece_value(self.of, self.type, array)

    def sums(self, first_position: int) -> dict[int, int]:
        """Return the sums of samples' integers by position, of those that have any; values of one dimension only."""
        lengths = {position: n for position, n in enumerate(self._lengths, first_position) if n}
        if not lengths:
            return {}
        starts = np.cumsum([0, *lengths.values()])[:-1]
        return dict(zip(lengths, np.add.reduceat(self._flat, starts, dtype=np.int64).tolist(), strict=True))


def open_pack(encoded: EncodedArray, layout: str, dtype: np.dtype[Any] | None = None) -> OpenPack:
    """Decompress a pack; releases the GIL for most of its time.

    Args:
        encoded: the pack; its shape is not looked at.
        layout: its JSON.
        dtype: convert the values to this one, into memory that may be written to. What ``holds_bits`` stays as it is.

    Raises:
        BlobCorruptError: the bytes or the layout are damaged.
    """
    try:
        body = json.loads(layout)
        of, kind, tail, lengths = body["of"], body["type"], tuple(body["tail"]), body["n"]
        total = sum(n for n in lengths if n is not None) * math.prod(tail)
    except (ValueError, KeyError, TypeError) as exc:
        raise BlobCorruptError(f"an array pack has the layout {layout[:80]!r}") from exc
    if dtype is None or holds_bits(of, encoded.dtype):
        flat = decode_for_reading(encoded.codec_id, encoded.dtype, (total,), encoded.data)
    else:
        flat = decode_as(encoded.codec_id, encoded.dtype, total, encoded.data, dtype)
    return OpenPack(of, kind, tail, lengths, flat)


def holds_bits(of: str, stored_dtype: str) -> bool:
    """Whether a pack may hold a tensor's bits instead of its values: numpy may not have the tensor's dtype."""
    return of == "tensor" and stored_dtype.startswith("uint")


def unpack(
    encoded: EncodedArray, layout: str, first_position: int, positions: Container[int] | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield (position, value) of a pack's samples, each value independent of the others.

    Raises:
        BlobCorruptError: the bytes or the layout are damaged.
    """
    pack = open_pack(encoded, layout)
    del encoded  # a large pack's bytes are not needed while its values are made
    yield from pack.values(first_position, positions)


def piece_value(of: str, kind: str, array: Array) -> Any:
    """Return the value of a ``Piece``, from its array in any exactly narrowed dtype; independent of the array.

    Raises:
        BlobCorruptError: the three do not fit each other.
    """
    if of == "list":
        return array_to_list(array, kind if len(array) or kind == "empty" else "empty")
    if of == "ndarray":
        dtype = DTYPES.get(kind)
        if dtype is None:
            raise BlobCorruptError(f"an array pack of dtype {kind!r}")
        return array.astype(dtype)
    if of == "tensor":
        return bits_to_tensor(array, kind, array.shape)
    raise BlobCorruptError(f"an array pack of {of!r}")
