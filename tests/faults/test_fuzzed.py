"""Any bytes into any decoder: a result or one of our errors; no crash, and no memory without bound (case I1)."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slime_store.codecs import frames
from slime_store.codecs.arrays import encode_array
from slime_store.codecs.documents import DocumentDecoder
from slime_store.errors import StoreError
from tests.faults import fuzz

_FUZZ = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def _mutated(draw: st.DrawFn, name: str) -> bytes:
    content = bytearray(draw(st.sampled_from(fuzz.seeds(name))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 8))
        content[at : at + length] = draw(st.binary(max_size=8) | st.just(bytes(content[at : at + 20])))
    return bytes(content)


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_what_a_fuzzer_has_found_is_read_or_refused(name: str) -> None:
    outcomes = [fuzz.run(name, data) for data in fuzz.seeds(name)]
    assert any(outcomes), "no honest input is among them"


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_mutated_input_is_read_or_refused(name: str) -> None:
    @_FUZZ
    @given(_mutated(name))
    def feed(data: bytes) -> None:
        fuzz.run(name, data)

    feed()


_TAGS = ["$tuple", "$set", "$frozenset", "$dict", "$float", "$int", "$str", "$text", "$bytes", "$ndarray", "$tensor"]
_MORE = [
    "$image",
    "$list",
    "$datetime",
    "$enum",
    "$dataclass",
    "$placeholder",
    "$namedtuple",
    "$sample",
    "$record",
    "$decimal",
    "$range",
]


def _trees() -> st.SearchStrategy[Any]:
    keys = st.sampled_from([*_TAGS, *_MORE, "blob", "data", "dtype", "shape", "type", "n", "of", "mode", "size"])
    leaves = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["0", "uint8", "<u1", "AAAA", ""])
    )
    return st.recursive(leaves, lambda some: st.lists(some, max_size=4) | st.dictionaries(keys, some, max_size=4))


@_FUZZ
@given(_trees())
@example({"$ndarray": {"dtype": "object", "shape": [10**12], "data": ""}})
@example({"$image": {"mode": "RGB", "size": [10**6, 10**6], "frames": []}})
@example({"$list": {"type": "int", "n": 10**12, "data": ""}})
def test_any_tree_of_tags_is_read_or_refused(tree: Any) -> None:
    fuzz.run("documents", json.dumps(tree).encode())


# -- little that says it is much


@pytest.fixture
def few_bytes() -> Any:
    """See that no more than a few megabytes are taken."""
    tracemalloc.start()
    yield
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


BOMBS = [
    {"$ndarray": {"dtype": "<f8", "shape": [1 << 40], "data": ""}},
    {"$ndarray": {"dtype": "<f8", "shape": [1 << 20, 1 << 20, 0, 1 << 30], "data": ""}},
    {"$tensor": {"dtype": "bfloat16", "shape": [1 << 40], "data": "AAAA"}},
    {"$list": {"type": "int", "dtype": "uint8", "shape": [1 << 40], "data": "AAAA"}},
    {"$int": "f" * 100},
    {"$range": [0, 10**30, 1]},
    [[[{"$tuple": []}] * 10] * 10] * 10,
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: str(bomb)[:40])
@pytest.mark.usefixtures("few_bytes")
def test_a_small_document_takes_little_memory(bomb: Any) -> None:
    fuzz.run("documents", json.dumps({"a": bomb}).encode())


@pytest.mark.usefixtures("few_bytes")
def test_a_frame_that_holds_more_than_its_row_says_is_refused_before_it_is_opened() -> None:
    import numpy as np
    import zstandard

    bomb = zstandard.ZstdCompressor(level=19, write_checksum=True).compress(bytes(4 << 20))
    assert len(bomb) < 4000
    with pytest.raises(StoreError, match="declares"):
        frames.decompress(bomb, 1000)
    forged = encode_array(np.arange(3)).data
    with pytest.raises(StoreError):
        frames.decompress(forged, 1 << 40)


def test_nesting_without_bounds_is_refused() -> None:
    for text in ("[" * 100_000 + "]" * 100_000, '{"$tuple":[' * 20_000 + "]}" * 20_000):
        with pytest.raises(StoreError):
            DocumentDecoder(fuzz._Blobs()).document(text)
        assert not fuzz.run("nestings", text.encode())
