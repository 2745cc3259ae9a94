"""Bytes that were stored by a released codec decode to the same values for ever.

The files under ``assets`` were written once. A file that is missing or differs is a broken promise: the
codec changed its meaning, which takes a new id instead. Values come from arithmetic, not from a random
generator, so that they do not depend on a library's version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store.codecs import codec_ids, get_codec

ASSETS = Path(__file__).parent / "assets"


def _mixed(count: int, below: int) -> np.ndarray[Any, Any]:
    index = np.arange(count, dtype=np.uint64)
    return (index * index * np.uint64(2654435761) + index * np.uint64(40503)) % np.uint64(below)


def _log_probs() -> np.ndarray[Any, Any]:
    values = -(_mixed(300, 4096).astype(np.float64) / 1024)
    values[:5] = [-0.0, np.nan, -np.inf, 1e-30, 0.1]
    return values


CASES: dict[str, np.ndarray[Any, Any]] = {
    "tokens.raw.1": _mixed(50, 151_936).astype(np.int32),
    "floats.raw.1": _log_probs().reshape(3, 100)[:, :20],
    "bytes.zstd.1": _mixed(500, 256).astype(np.uint8).reshape(10, 50),
    "signed.zstd.1": (_mixed(200, 60_000).astype(np.int64) - 30_000).astype(np.int16),
    "tokens.zstd.1": _mixed(600, 151_936).astype(np.uint32),
    "routing.zstd.1": _mixed(5 * 6 * 8, 128).astype(np.uint8).reshape(5, 6, 8),
    "log_probs.zstd.1": _log_probs().astype(np.float32),
    "doubles.zstd.1": _log_probs() / 3,
    "complex.zstd.1": (_log_probs()[5:105] + 1j * _log_probs()[105:205]).astype(np.complex64),
    "bools.zstd.1": _mixed(77, 2).astype(np.bool_),
    "empty.zstd.1": np.empty((0, 3), np.float32),
    "scalar.zstd.1": np.array(-7, np.int64),
    "mask.bits.1": (np.arange(1001) >= 333).astype(np.uint8),
    "bools.bits.1": (_mixed(35, 5) > 2).reshape(5, 7),
    "empty.bits.1": np.empty(0, np.uint8),
}


@pytest.mark.parametrize("name", CASES)
def test_f7_bytes_of_an_old_release_decode_to_the_recorded_values(name: str) -> None:
    expected = CASES[name]
    codec = get_codec(name.partition(".")[2])
    decoded = codec.decode((ASSETS / f"{name}.bin").read_bytes(), expected.dtype, expected.shape)
    assert (decoded.dtype, decoded.shape) == (expected.dtype, expected.shape)
    assert decoded.tobytes() == expected.tobytes()


def test_f7_every_codec_has_fixtures_and_every_fixture_a_case() -> None:
    assert {path.name.removesuffix(".bin") for path in ASSETS.glob("*.bin")} == set(CASES)
    assert {name.partition(".")[2] for name in CASES} == set(codec_ids())


@pytest.mark.parametrize("name", CASES)
def test_f7_stored_bytes_are_neither_a_pickle_nor_a_zip(name: str) -> None:
    codec = get_codec(name.partition(".")[2])
    if codec.codec_id != "raw.1":  # raw bytes may begin with anything
        assert codec.encode(CASES[name])[:4] == b"\x28\xb5\x2f\xfd"  # zstd's magic number
