"""Hypothesis strategies for single values: whatever a document (metadata, metrics, ...) can hold.

Like ``strategies``, which offers them to users, this module needs hypothesis, numpy, torch and Pillow.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

IMAGE_MODES = (
    *("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"),
    *("I", "F", "I;16", "I;16B"),
)
TENSOR_DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)
_EDGE_INTEGERS = (2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63) - 1, -(2**70), 2**200)


@cache  # a strategy costs far more to make than to use
def text_values() -> st.SearchStrategy[str]:
    """Text of any characters: NUL, lone surrogates and astral ones too."""
    return st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
        ["ok\x00tail", "half \ud83d emoji", "\udcc3", "\u2028\r\n", "$int", "", "é", "e\u0301"]
    )


@cache
def scalar_values() -> st.SearchStrategy[Any]:
    """Python's own indivisible values."""
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from(_EDGE_INTEGERS),
        st.floats(),
        st.sampled_from([-0.0, math.nan, math.inf, -math.inf, 5e-324, 0.1]),
        text_values(),
        st.binary(max_size=12),
        st.complex_numbers(),
    )


@cache
def rich_values() -> st.SearchStrategy[Any]:
    """Values of the standard library that metadata is known to hold."""
    offsets = st.timezones() | st.just(None)
    return st.one_of(
        st.datetimes(timezones=offsets),
        st.dates(),
        st.times(),
        st.timedeltas(),
        st.decimals(),
        st.fractions(),
        st.uuids(),
        st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([1, 2, -3])),
        st.sampled_from([Path("/data/a.mp4"), PurePosixPath("a/b"), Path()]),
        st.binary(max_size=6).map(bytearray),
    )


@cache
def array_dtypes() -> st.SearchStrategy[np.dtype[Any]]:
    """Dtypes of either byte order: numbers, text, bytes, times, records, and Python objects."""
    plain = st.one_of(
        npst.scalar_dtypes(),
        npst.unicode_string_dtypes(max_len=4),
        npst.byte_string_dtypes(max_len=4),
    )
    record: st.SearchStrategy[Any] = npst.array_dtypes(plain, min_size=1, max_size=3)
    return st.one_of(plain, record)


@cache
def arrays() -> st.SearchStrategy[Any]:
    """Arrays of up to three dimensions, also 0-dim, empty, strided and of Python objects."""
    shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    plain: st.SearchStrategy[Any] = array_dtypes().flatmap(lambda dtype: npst.arrays(dtype, shapes))
    objects = st.lists(scalar_values(), max_size=4).map(_object_array)
    return st.one_of(plain, plain.map(lambda array: array.T), objects)


@cache
def numpy_scalars() -> st.SearchStrategy[Any]:
    """Numpy scalars of every plain dtype, NaN and NaT among them."""
    dtypes = npst.scalar_dtypes() | npst.unicode_string_dtypes(max_len=4)
    scalars: st.SearchStrategy[Any] = dtypes.flatmap(
        lambda dtype: npst.arrays(dtype.newbyteorder("="), ()).map(lambda array: array[()])
    )
    return scalars


@cache
def tensors() -> st.SearchStrategy[torch.Tensor]:
    """Cpu tensors of every dtype, from 0-dim to three dimensions, also empty and not contiguous.

    The bits are arbitrary, so NaNs of any payload and denormals occur.
    """
    shapes = npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return st.builds(_tensor, st.sampled_from(TENSOR_DTYPES), shapes, st.integers(0, 2**32 - 1), st.booleans())


@cache
def images() -> st.SearchStrategy[Image.Image]:
    """Small images of every mode, some of them empty, palettes with transparency among them."""
    sizes = st.tuples(st.integers(0, 4), st.integers(0, 4))
    transparency = st.sampled_from([None, 0, b"\x00\x80\xff"])
    return st.builds(_image, st.sampled_from(IMAGE_MODES), sizes, st.integers(0, 2**32 - 1), transparency)


@cache
def hashable_values() -> st.SearchStrategy[Any]:
    """Values that may be dict keys or set elements, tuples among them."""
    numbers = numpy_scalars().filter(lambda value: value.dtype.kind in "biufU")
    leaves = st.one_of(scalar_values(), st.uuids(), st.decimals(allow_nan=False), numbers)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
        max_leaves=4,
    )


@cache
def documents() -> st.SearchStrategy[Any]:
    """Any value that the store promises to keep, nested in the containers it promises to keep."""
    leaves = st.one_of(scalar_values(), rich_values(), numpy_scalars(), arrays(), tensors(), images())
    return st.recursive(leaves, _containers, max_leaves=8)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    keyed = st.dictionaries(text_values(), inner, max_size=4)
    return st.one_of(
        lists,
        lists.map(tuple),
        keyed,
        st.dictionaries(hashable_values(), inner, max_size=4),
        keyed.map(OrderedDict),
        st.builds(deque, lists, st.sampled_from([None, 0, 3])),
        st.sets(hashable_values(), max_size=4),
        st.frozensets(hashable_values(), max_size=4),
        st.lists(st.integers(0, 200_000), max_size=40),
        st.lists(st.floats(width=32), max_size=40),
    )


def _object_array(values: list[Any]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int, transposed: bool) -> torch.Tensor:
    count = math.prod(shape)
    random = np.random.default_rng(seed)
    if dtype is torch.bool:
        flat = torch.from_numpy(random.integers(0, 2, count).astype(bool))
    else:
        data = random.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
        flat = torch.from_numpy(data).view(dtype) if count else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    return tensor.transpose(0, -1) if transposed and shape else tensor


def _image(mode: str, size: tuple[int, int], seed: int, transparency: int | bytes | None) -> Image.Image:
    random = np.random.default_rng(seed)
    image = Image.new(mode, size)
    if image.width and image.height:
        image.frombytes(random.integers(0, 256, len(image.tobytes()), dtype=np.uint8).tobytes())
    if mode in ("P", "PA"):
        image.putpalette(random.integers(0, 256, 3 * 16, dtype=np.uint8).tobytes())
    if mode == "P" and transparency is not None:
        image.info["transparency"] = transparency
    return image
