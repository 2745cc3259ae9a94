"""Any bytes into any decoder: a result or one of our errors; no crash, and no memory without bound (case I1)."""

from __future__ import annotations

import array as stdlib_array
import datetime as dt
import decimal
import fractions
import json
import math
import pathlib
import tracemalloc
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from slime_store.codecs import frames
from slime_store.codecs.arrays import encode_array
from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder, decoder
from slime_store.errors import StoreError
from slime_store.types import Record, Sample
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


_TAGS = sorted(decoder._DECODERS)
_NO_BYTES = {
    "names": ["a"],
    "formats": ["S0"],
    "offsets": [0],
    "itemsize": 0,
    "aligned": False,
    "record": False,
    "titles": [None],
}
_LONG = {"$range": [0, 10**7, 1]}  # were its elements made, they would be told from a document by their memory
_BODIES: list[Any] = [
    _LONG,
    {"$tuple": [_LONG]},
    {"$decimal": "1E+9999999"},
    {"$np": {"dtype": {"base": _NO_BYTES, "shape": [10**7]}, "data": ""}},
    "1e9999999",
    10**7,
]
_WORDS = """
blob data dtype shape type n of mode size name value fields text
typecode itemsize item objects names formats offsets aligned record titles base
layout coalesced indices values compressed_indices plain_indices format frame
frames pixels palette palette_object info exif $rational $itxt $plain
"""
_NAMES = _WORDS.split()


def _trees() -> st.SearchStrategy[Any]:
    keys = st.sampled_from([*_TAGS, *_NAMES])
    texts = st.sampled_from(["0", "uint8", "<u1", "AAAA", "", "S0", "torch:_dynamo.X", "sparse_coo", "RGB", "b"])
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.sampled_from(_BODIES)
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
    {"$np": {"dtype": {"base": _NO_BYTES, "shape": [1 << 30]}, "data": ""}},
    {"$ndarray": {"dtype": {"base": _NO_BYTES, "shape": [1 << 20]}, "shape": [1 << 20], "data": ""}},
    {"$ndarray": {"dtype": _NO_BYTES, "shape": [1 << 30], "data": ""}},
    {"$ndarray": {"dtype": "<f8", "shape": [1 << 62] * 100_000, "data": ""}},
    [[[{"$tuple": []}] * 10] * 10] * 10,
]


def _one_of_each() -> list[Any]:
    from PIL import Image
    from PIL.TiffImagePlugin import IFDRational

    image = Image.new("P", (1, 1))
    image.putpalette([1, 2, 3])
    image.info = {"dpi": IFDRational(1, 2)}
    array, torch_dtype = np.zeros(2, [("a", "S1", (2,)), ("b", "<f8")]), torch.ones(1).to(torch.bfloat16)
    namespace, status = types.SimpleNamespace(a=1), [Sample.Status.ABORTED, Sample.SpecInfo(), Sample.PrefixCacheInfo()]
    dictionaries = [{1: 2}, OrderedDict(a=1), Counter("a"), defaultdict(list, a=[1]), deque([1], 2), namespace]
    zone = dt.timezone(dt.timedelta(hours=1), "x")
    times = [dt.datetime(2000, 1, 1, tzinfo=zone), dt.time(1), dt.date(2000, 1, 1), dt.timedelta(1)]
    numbers = [math.nan, 2**70, 1j, decimal.Decimal(1), fractions.Fraction(1, 2), range(3), slice(1), uuid.UUID(int=1)]
    texts = ["\0", b"a", bytearray(b"a"), pathlib.PurePosixPath("a"), np.str_("a"), np.bytes_(b"a")]
    arrays = [np.float32(1), np.array([None], object), array, array.dtype, stdlib_array.array("b", [1]), [1] * 300]
    tensors = [torch_dtype, torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr(), torch.Size([1])]
    records = [Record("a:A", "enum", {"name": "A", "value": 1}), Record("a:B", "dataclass", {"a": 1})]
    others = [
        Record("a:C", "namedtuple", {"a": 1}),
        ValueError("a"),
        torch.int8,
        torch.device("cpu"),
        image,
        Sample(),
        ...,
    ]
    return [(1,), {1}, frozenset({1}), status, dictionaries, times, numbers, texts, arrays, tensors, records, others]


def _in_place_of(part: Any, bomb: Any) -> Iterator[Any]:
    """Yield copies of a document, each with another of its parts replaced."""
    yield bomb
    if isinstance(part, dict):
        for key, value in part.items():
            yield from ({**part, key: each} for each in _in_place_of(value, bomb))
    elif isinstance(part, list):
        for n, value in enumerate(part[:4]):
            yield from ([*part[:n], each, *part[n + 1 :]] for each in _in_place_of(value, bomb))


@pytest.mark.parametrize("bomb", _BODIES, ids=lambda bomb: str(bomb)[:40])
@pytest.mark.usefixtures("few_bytes")
@pytest.mark.filterwarnings("ignore:Sparse")
def test_nothing_is_made_of_what_a_document_only_counts(bomb: Any) -> None:
    rich = [json.loads(DocumentEncoder(None).document(value)) for value in _one_of_each()]
    assert {tag for tag in _TAGS if f"'{tag}'" in str(rich)} >= set(_TAGS) - {"$text", "$placeholder"}
    for part in [*({tag: []} for tag in _TAGS), *({tag: [[], 0, 0]} for tag in _TAGS), *rich]:
        for document in _in_place_of(part, bomb):
            fuzz.run("documents", json.dumps(document).encode())


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
