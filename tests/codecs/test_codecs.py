"""Codecs: round trips, damage, hostile sizes, threads."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import zstandard

from slime_store.codecs import Codec, codec_ids, decode_array, encode_array, get_codec
from slime_store.errors import BlobCorruptError
from slime_store.testing import assert_same

SHAPES = [(), (0,), (1,), (7,), (64,), (0, 3), (3, 5), (2, 3, 4), (1000,)]
DTYPES = ["bool", "uint8", "int8", "<i2", ">i4", "<u8", "<f2", "<f4", ">f8", "<c8", "<c16"]


def _array(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(5)
    return np.asarray(rng.normal(size=shape) * 100).astype(np.int64).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec_id", ["raw.1", "zstd.1"])
def test_an_array_comes_back_fresh_and_writable(codec_id: str, dtype: str, shape: tuple[int, ...]) -> None:
    codec, array = get_codec(codec_id), _array(dtype, shape)
    decoded = codec.decode(codec.encode(array), array.dtype, shape)
    assert_same(decoded, array.astype(array.dtype.newbyteorder("=")))
    assert decoded.flags.writeable and decoded.flags.c_contiguous
    decoded[...] = 0


@pytest.mark.parametrize("n", [16_383, 16_384, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("dtype", ["uint16", "float16", "int32", "float32", "uint64", "float64", "complex64"])
def test_every_bit_of_a_long_array_comes_back(dtype: str, n: int) -> None:
    kind = np.dtype(dtype)
    array = np.random.default_rng(n).integers(0, 256, n * kind.itemsize, np.uint8).view(kind)
    decoded = get_codec("zstd.1").decode(get_codec("zstd.1").encode(array), kind, (n,))
    assert decoded.dtype == kind and decoded.flags.writeable
    assert decoded.tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8"])
def test_bits_come_back_fresh_and_writable(dtype: str, shape: tuple[int, ...]) -> None:
    codec, array = get_codec("bits.1"), np.asarray(_array("int64", shape) > 0).astype(dtype)
    decoded = codec.decode(codec.encode(array), array.dtype, shape)
    assert_same(decoded, array)
    decoded[...] = 0


@pytest.mark.parametrize("codec_id", ["raw.1", "zstd.1"])
def test_memory_order_and_strides_do_not_matter(codec_id: str) -> None:
    codec = get_codec(codec_id)
    array = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    for view in (array.T, array[::-1, ::2], np.broadcast_to(array[0, 0], (4, 5)), np.asfortranarray(array)):
        assert_same(codec.decode(codec.encode(view), view.dtype, view.shape), np.ascontiguousarray(view))


def test_an_unknown_codec_is_a_typed_error_that_names_it() -> None:
    with pytest.raises(BlobCorruptError, match=r"'zstd\.9'.*newer slime_store"):
        get_codec("zstd.9")
    assert codec_ids() == ("raw.1", "zstd.1", "bits.1")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(20, dtype=np.int32) * 5000,
        np.arange(300, dtype=np.uint8) // 7,
        np.zeros(400, np.float32),
        np.arange(9) % 2,
        np.empty(0, np.uint8),
        np.random.default_rng(1).normal(size=30),
    ],
    ids=["tokens", "bytes", "zeros", "mask", "empty", "doubles"],
)
def test_no_flipped_bit_and_no_cut_gives_other_values(array: np.ndarray[Any, Any]) -> None:
    encoded = encode_array(array)
    fields = encoded.codec_id, encoded.dtype, encoded.shape
    good, harmless = decode_array(*fields, encoded.data), 0
    for i in range(len(encoded.data) * 8):
        damaged = bytearray(encoded.data)
        damaged[i // 8] ^= 1 << i % 8
        try:
            decoded = decode_array(*fields, bytes(damaged))
        except BlobCorruptError:
            continue
        assert_same(decoded, good)
        harmless += 1
    assert harmless <= 3  # a frame has bits that say nothing
    for cut in range(len(encoded.data)):
        with pytest.raises(BlobCorruptError):
            decode_array(*fields, encoded.data[:cut])
    with pytest.raises(BlobCorruptError):
        decode_array(*fields, encoded.data + b"\0")
    with pytest.raises(BlobCorruptError):
        decode_array(*fields, encoded.data * 2)


def _frame(content: bytes, *, checksum: bool = True, size: bool = True) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size).compress(content)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x28\xb5\x2f\xfd",
        b"not a frame at all",
        b"\x80\x04pickle",
        _frame(b"abcd", checksum=False),
        zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(b"abcd"),
        zstandard.ZstdCompressor(write_checksum=True).compressobj().flush(),
        struct.pack("<II", 0x184D2A50, 4) + b"abcd",  # a skippable frame
        _frame(b"abcde"),
        _frame(b"abc"),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("codec_id", ["zstd.1", "bits.1"])
def test_what_is_not_exactly_one_checked_frame_is_refused(codec_id: str, data: bytes) -> None:
    count = 4 if codec_id == "zstd.1" else 32
    with pytest.raises(BlobCorruptError):
        get_codec(codec_id).decode(data, np.dtype("uint8"), (count,))
    whole = get_codec(codec_id).decode(_frame(b"abcd"), np.dtype("uint8"), (count,))
    assert whole.size == count


def test_a_bomb_is_refused_before_it_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    from slime_store.codecs import frames

    bomb = _frame(b"\0" * 10_000_000)
    assert len(bomb) < 1000
    huge = bytearray(_frame(b"\0" * 300))
    assert huge[4] & 0xE0 == 0x60  # single segment, two bytes of size
    huge[4] |= 0xC0  # now eight bytes of size
    huge[5:7] = struct.pack("<Q", 1 << 50)

    class Refuse:
        decompressor = None  # any use of it fails

    monkeypatch.setattr(frames, "_contexts", Refuse())
    for codec_id in ("zstd.1", "bits.1"):
        for data, shape in ((bomb, (1000,)), (bytes(huge), (1 << 50,)), (bytes(huge), (1 << 53,))):
            with pytest.raises(BlobCorruptError):
                get_codec(codec_id).decode(data, np.dtype("uint8"), shape)


def test_the_most_compressible_array_is_not_taken_for_a_bomb() -> None:
    array = np.zeros(40_000_000, np.uint8)
    codec = get_codec("zstd.1")
    data = codec.encode(array)
    assert len(data) < 10_000
    assert codec.decode(data, array.dtype, array.shape).size == array.size


@pytest.mark.parametrize("codec_id", ["raw.1", "zstd.1", "bits.1"])
def test_shapes_that_do_not_fit_are_refused(codec_id: str) -> None:
    codec = get_codec(codec_id)
    data = codec.encode(np.ones(64, np.uint8))
    for shape in ((63 - 8,), (80,), (-64,), (-8, -8), (8, 9), ()):
        with pytest.raises(BlobCorruptError):
            codec.decode(data, np.dtype("uint8"), shape)


def test_bits_are_refused_where_wider_elements_are_due() -> None:
    codec = get_codec("bits.1")
    with pytest.raises(BlobCorruptError):
        codec.decode(codec.encode(np.ones(64, np.uint8)), np.dtype("float32"), (64,))


def test_codecs_may_be_used_from_many_threads_at_once() -> None:
    def work(seed: int) -> bool:
        array = np.random.default_rng(seed).integers(0, 151_936, 20_000).astype(np.int32)
        codec: Codec = get_codec("zstd.1")
        return all(bool((codec.decode(codec.encode(array), array.dtype, array.shape) == array).all()) for _ in range(5))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(40)))
