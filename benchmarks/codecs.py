"""Compressors on the arrays of post-training samples: speed each way and size, as a Markdown table.

    python -m benchmarks.codecs                 # what slime_store uses, and zstd at other levels
    pip install blosc2 lz4                      # then these are measured too
    python -m benchmarks.codecs --chunk 50      # megabytes a chunk; --size is the data a case

Every candidate gives back a fresh writable array and is checked for it. One thread, processor time (so that
a busy machine disturbs little), best of some rounds.
docs/measurements/compressors.md holds a run of it and what was decided.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import zstandard

from slime_store.codecs import Array, array_to_list, get_codec, list_to_array
from slime_store.codecs.arrays import narrow
from slime_store.codecs.lists import plain_list_to_array


@dataclass(frozen=True)
class Candidate:
    name: str
    compress: Callable[[Array], bytes]
    decompress: Callable[[bytes, np.dtype[Any]], Array]


def cases(n_bytes: int) -> dict[str, Array]:
    """Return arrays of about ``n_bytes``, shaped like what samples hold, from a fixed seed."""
    rng = np.random.default_rng(0)
    n = n_bytes // 4
    ranks = rng.zipf(1.2, 2 * n)
    ranks = np.resize(ranks[ranks < 151_000], n)
    width = 1024
    y, x = np.mgrid[0 : n_bytes // (3 * width), 0:width]
    picture = np.stack([np.sin(x / 90 + c) * 60 + np.cos(y / 50) * 60 + 128 for c in range(3)], -1)
    return {
        "token ids, Zipf-like (uint32)": rng.permutation(151_936).astype(np.uint32)[ranks],
        "token ids, uniform (uint32)": rng.integers(0, 151_936, n, dtype=np.uint32),
        "log-probs, sampled (float32)": -np.exp(rng.normal(-4, 3, n)).astype(np.float32),
        "log-probs, 30% zeros (float32)": np.where(rng.random(n) < 0.3, 0, -rng.exponential(0.35, n)).astype(
            np.float32
        ),
        "loss mask, runs (0/1)": np.repeat(rng.integers(0, 2, n // 400 + 1, dtype=np.uint8), 400)[:n],
        "routing, 48 layers, 8 of 128 (uint8)": _routing(rng, n_bytes // (48 * 8)),
        "image, smooth with noise (uint8)": (picture + rng.normal(0, 2, picture.shape)).clip(0, 255).astype(np.uint8),
        "pixel values (bf16 bits)": (rng.normal(size=n_bytes // 2).astype(np.float32).view(np.uint32) >> 16).astype(
            "<u2"
        ),
    }


def _routing(rng: np.random.Generator, tokens: int) -> Array:
    """Return (tokens, 48, 8) experts: each layer has its own popular ones, no token repeats another's choice."""
    chosen = np.empty((tokens, 48, 8), np.uint8)
    popularity = -0.7 * np.log(np.arange(1, 129, dtype=np.float32))
    for layer in range(48):
        score = popularity[rng.permutation(128)] - np.log(
            rng.standard_exponential((tokens, 128), np.float32) + np.float32(1e-30)
        )
        chosen[:, layer] = np.argpartition(-score, 8, axis=1)[:, :8]
    return chosen


def _ours(codec_id: str) -> Candidate:
    codec = get_codec(codec_id)
    return Candidate(
        f"**{codec_id}**", codec.encode, lambda data, dtype: codec.decode(data, dtype, _shape_of[id(data)])
    )


_shape_of: dict[int, tuple[int, ...]] = {}


def _zstd(level: int, *, shuffle: bool) -> Candidate:
    compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    decompressor = zstandard.ZstdDecompressor()

    def compress(array: Array) -> bytes:
        flat, width = array.reshape(-1).view(np.uint8), array.itemsize
        planes = np.ascontiguousarray(flat.reshape(-1, width).T) if shuffle and width > 1 else flat
        return compressor.compress(planes.reshape(-1).data)

    def decompress(data: bytes, dtype: np.dtype[Any]) -> Array:
        flat, width = np.frombuffer(decompressor.decompress(data), np.uint8), dtype.itemsize
        if not shuffle or width == 1:
            return flat.copy().view(dtype)
        elements = np.empty((flat.size // width, width), np.uint8)
        for i, plane in enumerate(flat.reshape(width, -1)):
            elements[:, i] = plane
        return elements.reshape(-1).view(dtype)

    return Candidate(f"zstd {level}, {'shuffle' if shuffle else 'plain'}", compress, decompress)


def _optional() -> list[Candidate]:
    found = []
    try:
        import lz4.frame

        found.append(
            Candidate(
                "lz4, plain",
                lambda array: lz4.frame.compress(array.reshape(-1).view(np.uint8).data, content_checksum=True),
                lambda data, dtype: np.frombuffer(lz4.frame.decompress(data), dtype).copy(),
            )
        )
    except ImportError:
        pass
    try:
        import blosc2
    except ImportError:
        return found
    for codec, level in ((blosc2.Codec.LZ4, 5), (blosc2.Codec.ZSTD, 1)):
        for name, filter in (("shuffle", blosc2.Filter.SHUFFLE), ("bitshuffle", blosc2.Filter.BITSHUFFLE)):

            def compress(array: Array, codec: Any = codec, level: int = level, filter: Any = filter) -> bytes:
                flat, width = array.reshape(-1).view(np.uint8), array.itemsize
                options = {"codec": codec, "clevel": level, "typesize": width, "filters": [filter], "nthreads": 1}
                return bytes(blosc2.compress2(flat, **options))

            def decompress(data: bytes, dtype: np.dtype[Any]) -> Array:
                return np.frombuffer(blosc2.decompress2(data, nthreads=1), dtype).copy()

            found.append(Candidate(f"blosc2 {codec.name.lower()} {level}, {name}", compress, decompress))
    return found


def _best(call: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure(candidate: Candidate, array: Array, chunk_bytes: int, rounds: int) -> tuple[float, float, float]:
    """Return megabytes a second in, out, and the share of the bytes that is left."""
    flat = array.reshape(-1)
    step = max(1, chunk_bytes // flat.itemsize)
    chunks = [np.ascontiguousarray(flat[i : i + step]) for i in range(0, flat.size, step)]
    written = [candidate.compress(chunk) for chunk in chunks]
    for chunk, data in zip(chunks, written, strict=True):
        _shape_of[id(data)] = chunk.shape
        result = candidate.decompress(data, chunk.dtype)
        assert result.tobytes() == chunk.tobytes() and result.flags.writeable, candidate.name
    seconds_in = _best(lambda: [candidate.compress(chunk) for chunk in chunks], rounds)
    seconds_out = _best(lambda: [candidate.decompress(data, flat.dtype) for data in written], rounds)
    _shape_of.clear()
    return flat.nbytes / 1e6 / seconds_in, flat.nbytes / 1e6 / seconds_out, sum(map(len, written)) / flat.nbytes


def compressors_table(chunk_bytes: int, n_bytes: int, rounds: int) -> None:
    print(f"| {chunk_bytes / 1e6:.3g} MB a chunk | compress MB/s | decompress MB/s | ratio |")
    print("| --- | ---: | ---: | ---: |")
    levels = (-5, -3, -1, 1, 2, 3)
    for name, array in cases(n_bytes).items():
        mask = array.dtype == np.uint8 and int(array.max()) <= 1
        candidates = [_ours("bits.1")] if mask else [_ours("zstd.1")]
        candidates += [_zstd(level, shuffle=True) for level in levels if array.itemsize > 1]
        candidates += [_zstd(level, shuffle=False) for level in levels]
        candidates += [*_optional(), _ours("raw.1")]
        print(f"| **{name}** | | | |")
        for candidate in candidates:
            into, out, ratio = measure(candidate, array, chunk_bytes, rounds)
            print(f"| {candidate.name} | {into:,.0f} | {out:,.0f} | {ratio:.3f} |", flush=True)


def lists_table(rounds: int) -> None:
    """Print nanoseconds an element for 512 lists of 3,281 values: both ways in, narrowing, and the way back."""
    rng = np.random.default_rng(0)
    shape = (512, 3281)
    print("| ns an element | set(map(type)) + np.array | list_to_array | narrow | array_to_list |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, item_type, values in (
        ("token ids", "int", rng.integers(0, 151_936, shape)),
        ("0/1 masks", "int", rng.integers(0, 2, shape)),
        ("log-probs", "float", rng.normal(size=shape).astype(np.float32)),
    ):
        figures = measure_lists(values.tolist(), item_type, rounds)
        print(f"| {name} | " + " | ".join(f"{seconds / values.size * 1e9:.1f}" for seconds in figures) + " |")


def measure_lists(lists: list[list[Any]], item_type: str, rounds: int) -> list[float]:
    """Return the seconds of ``lists_table``'s four columns."""
    arrays = [array for array, _ in filter(None, map(list_to_array, lists))]
    small = [narrow(array) for array in arrays]
    return [
        _best(lambda: list(map(plain_list_to_array, lists)), rounds),
        _best(lambda: list(map(list_to_array, lists)), rounds),
        _best(lambda: list(map(narrow, arrays)), rounds),
        _best(lambda: [array_to_list(array, item_type) for array in small], rounds),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunk", type=float, nargs="*", default=[1, 50], help="megabytes (MB) a chunk")
    parser.add_argument("--size", type=float, default=10, help="megabytes a case; at least one chunk is measured")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for chunk in options.chunk:
        compressors_table(int(chunk * 1e6), int(max(chunk, options.size) * 1e6), options.rounds)
        print()
    lists_table(options.rounds)


if __name__ == "__main__":
    main()
